import type { Ending, Task } from "./task.ts"

/**
 * Why a run may not start or go on now, by the source that says so. `behind`: what it waits for; `until`: when that is
 * over at the latest. With `keepsSlot` its slot is its own meanwhile, and its time counts. `ends`: it never will.
 */
export type Block =
  | {
      readonly by: string
      readonly behind?: string
      readonly until?: number
      readonly keepsSlot?: true
    }
  | { readonly by: string; readonly ends: Ending }

/** A feature or a part of the runtime that may block runs. The scheduler asks every source about every run that waits, and alone admits runs. */
export type BlockSource = {
  /** Looks at what has changed: called at the beginning of each pass. */
  review?(): void
  /** Undefined where it lets the run go. Changes nothing. `task` may be one whose session is still being made. */
  blocks(task: Task): Block | undefined
  /** The run goes: called before the next one is looked at. */
  admitted?(task: Task): void
}

/** Whether a run has a slot, or takes one: an end, or a wait that keeps the slot, counts where nothing else blocks the run. */
export const takesSlot = (block: Block | undefined): boolean =>
  block === undefined || "ends" in block || block.keepsSlot === true
