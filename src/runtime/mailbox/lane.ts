import type { Prompt } from "../../core/ports.ts"
import type { Task } from "../../core/task.ts"
import type { Notice } from "../../present/notification.ts"

/** A run's notification. It is told as the task was when the run had ended: a resume meanwhile does not change it. */
export type Item = {
  readonly task: Task
  wake: boolean
  readonly maybeDelivered: boolean
  /** Once it was sent, whatever came of that: what is sent again is the same. */
  notice?: Notice
}

/**
 * - `resting`: nothing is to be sent. Kept only while a message that was to wake the parent may be unread.
 * - `sending`: messages go out, one after the other.
 * - `until idle`: the parent is at work, and nothing that waits is to start its model.
 * - `until redone`: the parent's user has undone something.
 */
type LaneState = "resting" | "sending" | "until idle" | "until redone"

export type Lane = {
  state: LaneState
  readonly items: Item[]
  /** The parent became idle since the last send began. */
  idled: boolean
  /** Tasks whose news is to wake the parent, which is not there yet: the lane stays for it. */
  readonly roused: Set<string>
  /** Ends the wait of a lane that may not send now. */
  release: () => void
  /** A stored message that was to wake the parent and left that to the next; the next takes it off. */
  owed?: Waking
  /**
   * The last message that was to start the parent's model, until it is seen to have done so. `isPassed`: the parent has
   * become idle since, perhaps without having read it.
   */
  waking?: Waking & { wakesAgain: number; isPassed: boolean }
  /** The host takes a message. */
  isTelling: boolean
  /** What is to start the parent's model is on its way. */
  isWaking: boolean
}

/** A message that is to start its parent's model, and what it tells of. */
export type Waking = { readonly prompt: Prompt; readonly task: Task }

export const newLane = (): Lane => ({
  state: "resting",
  items: [],
  roused: new Set(),
  idled: false,
  isTelling: false,
  isWaking: false,
  release: () => {},
})
