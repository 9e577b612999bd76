import { CallError } from "../../core/errors.ts"
import { worktreeKind } from "../../features/worktrees/place-kind.ts"
import type { Options } from "../../options/options.ts"
import { hereKind } from "./here.ts"
import type { PlaceKind, PlacePorts } from "./place.ts"

/** All kinds of places. A new kind exports a `PlaceKind` and is added here. */
export const placeKinds = (options: Options, ports: PlacePorts): readonly PlaceKind[] => [
  hereKind,
  worktreeKind(options.worktree, ports),
]

/** Throws a `CallError` where no kind has that name. */
export function kindOf(kinds: readonly PlaceKind[], name: string): PlaceKind {
  const kind = kinds.find(({ names }) => names.includes(name))
  if (kind) return kind
  const known = kinds.flatMap(({ names }) => names).map((each) => `"${each}"`)
  throw new CallError(`There is no place "${name}" here. There are: ${known.join(", ")}.`)
}
