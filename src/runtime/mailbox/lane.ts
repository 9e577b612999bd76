import type { Prompt } from "../../core/ports.ts"
import type { Task } from "../../core/task.ts"
import type { NotificationTexts } from "../../present/notification.ts"

/** Notification of a run, with the task as it ended: a resume meanwhile does not change it. */
export type LaneItem = {
  readonly task: Task
  wake: boolean
  readonly maybeDelivered: boolean
  /** Set by the first send: repeated sends are identical. */
  notice?: NotificationTexts
}

/**
 * State of a parent's lane:
 * - `resting`: nothing to send; kept while a waking message may be unread.
 * - `sending`: messages are sent one at a time.
 * - `until idle`: the parent works, and no waiting message may start its model.
 * - `until redone`: the parent's user has undone messages.
 */
type LaneState = "resting" | "sending" | "until idle" | "until redone"

export type Lane = {
  state: LaneState
  readonly items: LaneItem[]
  /** The parent became idle after the last send began. */
  idled: boolean
  /** Tasks whose pending notification must wake the parent; the lane stays until it is sent. */
  readonly roused: Set<string>
  /** Ends the current wait of the lane. */
  release: () => void
  /** A stored message whose wake-up was left to the next one, which takes it over. */
  owed?: Waking
  /**
   * Last message that should start the parent's model, until it has. `isPassed`: the parent became idle since, perhaps
   * without reading it.
   */
  waking?: Waking & { wakesAgain: number; isPassed: boolean }
  /** OpenCode is storing a message. */
  isTelling: boolean
  /** A message that starts the parent's model is being sent. */
  isWaking: boolean
}

/** Message that should start its parent's model, and the task it reports. */
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
