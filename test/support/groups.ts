import { groupKinds } from "../../src/core/feature.ts"
import type { Task } from "../../src/core/task.ts"
import { FEATURES } from "../../src/features/index.ts"
import { recordDecoder } from "../../src/runtime/record/codec.ts"

/** The kinds of groups that the features bring. */
export const KINDS = groupKinds(FEATURES)

export const decodeRecord = recordDecoder(KINDS)

/** Kind of a task's group, of which a test may have made the result alone. */
export const groupKindOf = ({ group, member, outcome }: Partial<Task>) =>
  KINDS.find(({ kind }) => kind === (group ?? member ?? outcome?.group)?.kind)
