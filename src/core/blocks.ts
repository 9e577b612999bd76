import type { Ending, Task } from "./task.ts"

/**
 * Why a run may not start or go on now. `by`: source of the block; `behind`: what the run waits for; `until`: when the
 * wait is over at the latest; `keepsSlot`: the waiting run keeps its slot, and its time counts; `ends`: how the run
 * ends, since it can never go on.
 */
export type Block =
  | {
      readonly by: string
      readonly behind?: string
      readonly until?: number
      readonly keepsSlot?: true
    }
  | { readonly by: string; readonly ends: Ending }

/** Source of the block of a run that waits for a free slot. `behind`: model, place or agent that has no free slot. */
export const SLOTS = "slots"

/**
 * A feature or a part of the runtime that may block runs. The scheduler asks every source about every waiting run, and
 * only the scheduler admits runs.
 */
export type BlockSource = {
  /** Lets the source look for changes. The scheduler calls this at the beginning of each pass. */
  review?(): void
  /**
   * Returns undefined where the source lets the run go on. Must not change anything. The session of `task` may not
   * exist yet.
   */
  blocks(task: Task): Block | undefined
  /** Called when the scheduler has admitted a run, before it looks at the next run. */
  admitted?(task: Task): void
}

/**
 * Whether a run has a slot or takes one: nothing blocks the run, the block ends it, or it keeps its slot while it
 * waits.
 */
export const takesSlot = (block: Block | undefined): boolean =>
  block === undefined || "ends" in block || block.keepsSlot === true
