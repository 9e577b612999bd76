import type { Note } from "../../core/feature.ts"
import type { Model, Task } from "../../core/task.ts"
import type { NotificationTexts } from "../../present/notification.ts"

/** `isHeld`: the message had to wait when it was last looked at. */
type Queued = { attempts: number; isHeld?: boolean }

/**
 * Notification of a run. `task`: the task as it ended, so that a resume since then does not change the notification.
 */
export type EndMail = Queued & {
  readonly kind: "end"
  readonly task: Task
  wakes: boolean
  readonly maybeDelivered: boolean
  /** How long it has waited for other ends. */
  gatheredMs: number
  /** Set by the first send, so that a repeated send has the same text. */
  notice?: NotificationTexts
}

/**
 * A note that waits until its session is idle, and until no notification waits. `compose` is called at each look: it
 * returns undefined where there is nothing to say any more, and "later" where there may be again. `done` is called once
 * the note is sent or dropped.
 */
export type NoteMail = Queued & {
  readonly kind: "note"
  readonly compose: () => Note | "later" | undefined
  readonly done?: (sent: boolean) => void
  /** Set by the first send, so that a repeated send has the same text and id. */
  sent?: Note
}

/**
 * Newest notification for which the parent's model should run, until the parent has answered it:
 * - `owed`: stored without starting the model. The next notification starts the model for both; without one, this is sent
 *   again.
 * - `deferred`: owed, and the model must not be asked now.
 * - `sent`: it has started the model.
 * - `passed`: the parent became idle after it, perhaps without reading it.
 */
export type WakeMail = Queued & {
  readonly kind: "wake"
  readonly task: Task
  state: "owed" | "deferred" | "sent" | "passed"
  /** Time since when it is owed or sent. */
  readonly at: number
  /** How often it was sent again because the parent did not answer it. */
  repeats: number
  /** The model that must not be asked, and since when the wake waits for it. */
  deferred?: { readonly at: number; readonly model: Model | undefined }
  /** Stored notifications for which the model should run, too, should the parent answer this one without reading them. */
  readonly others: Task[]
}

export type Mail = EndMail | NoteMail | WakeMail

/**
 * Wait of a lane, which ends at the latest after `ms`: until other tasks end, the parent is idle, its user has redone
 * messages, or a send may be tried again.
 */
export type Wait = { readonly until: "others" | "idle" | "redone" | "retry"; readonly ms: number }

/** Messages to one session. */
export type Lane = {
  readonly ends: EndMail[]
  readonly notes: NoteMail[]
  wake?: WakeMail
  /** Tasks whose notification must wake the parent once it is queued. The lane is kept until then. */
  readonly wakeRequests: Set<string>
  isRunning: boolean
  wait?: Wait & { readonly end: () => void }
  /** Something has happened since the lane last began to look at a message. */
  hasChanged: boolean
  /** The parent became idle after the last send began. */
  idled: boolean
  /** A message that starts the parent's model is being sent. */
  isWaking: boolean
  /** A message was sent or dropped since `drained` was last called. */
  isDirty: boolean
  /** `drained` is being called. */
  isDraining: boolean
}

export const newLane = (): Lane => ({
  ends: [],
  notes: [],
  wakeRequests: new Set(),
  isRunning: false,
  hasChanged: false,
  idled: false,
  isWaking: false,
  isDirty: false,
  isDraining: false,
})

/** Whether the parent is still to be woken. */
export const isOwed = (wake: WakeMail | undefined): wake is WakeMail =>
  wake?.state === "owed" || wake?.state === "deferred"
