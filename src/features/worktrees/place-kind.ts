import { existsSync } from "node:fs"
import type { Options } from "../../options/options.ts"
import type { PlaceKind, PlacePorts } from "../../runtime/places/place.ts"
import { WORKTREES } from "../../runtime/places/root.ts"

/** Git worktrees of the parent's repository on this machine. */
export const worktreeKind = (
  settings: Options["worktree"],
  { processes, commands, hostFolder }: PlacePorts,
): PlaceKind => ({
  names: ["worktree"],
  described: `"worktree": a git worktree of its own, from your files as they are${ignoredIn(settings)}.`,
  called: () => "a git worktree of its own",
  remains: () => "its worktree's folder",
  keeps: settings,
  isShared: true,
  guards: true,
  mayHaveLeft: () => existsSync(WORKTREES),
  async open() {
    const { Worktrees } = await import("./worktrees.ts")
    const { keeper, isOthers } = commands
    return new Worktrees({ root: WORKTREES, settings, processes, commands, hostFolder, keeper, isOthers })
  },
})

function ignoredIn({ setup, dependencies }: Options["worktree"]): string {
  if (setup !== "") return ""
  return dependencies === "auto"
    ? ", ignored dependencies (node_modules) copied"
    : ", without ignored ones (node_modules)"
}
