import type { Message } from "../core/ports.ts"
import type { Ask, Task } from "../core/task.ts"
import { retry } from "../lib/clock.ts"
import type { Parts } from "./parts.ts"

/** How long an abort may take before the caller goes on; the host carries it out all the same. */
const ABORT_LIMIT_MS = 5000

/** `soon` resolves when it has stopped, or may not be waited for any longer; `done` when nothing of it is on its way. */
export type Stopping = { readonly soon: Promise<void>; readonly done: Promise<void> }

/**
 * Ends what a session does: refuses its open questions first, since an abort would leave them open for ever, then
 * aborts it. `asks` are the open questions of the session and of those below it. Never rejects; a failure is logged.
 */
export function stopSession(parts: Parts, sessionID: string, asks: readonly Ask[] = []): Stopping {
  const done = refuseAndAbort(parts, sessionID, asks)
  const soon = new Promise<void>((resolve) => {
    const cancel = parts.clock.after(ABORT_LIMIT_MS, resolve)
    void done.then(() => {
      cancel()
      resolve()
    })
  })
  return { soon, done }
}

async function refuseAndAbort(parts: Parts, sessionID: string, asks: readonly Ask[]): Promise<void> {
  const { host } = parts
  const sessions = new Set([sessionID, ...asks.map((ask) => ask.sessionID)])
  // Without a message: with one, the child's model would be asked again before the abort comes.
  await Promise.all(asks.map((ask) => attempt(parts, () => host.refuse(ask, ""), ask.sessionID)))
  await Promise.all([...sessions].map((id) => attempt(parts, () => host.abort(id), id)))
}

async function attempt({ clock, host, stopped }: Parts, work: () => Promise<void>, sessionID: string): Promise<void> {
  try {
    await retry(clock, stopped, work)
  } catch (error) {
    host.log("warn", "could not stop a session", { session: sessionID, error: String(error) })
  }
}

/**
 * Takes back what is left of the step in which a run came to stand still: that is no end, and is not sent again. One with
 * a tool call has done its work.
 */
export async function takeBack({ clock, host, stopped }: Parts, { sessionID }: Task): Promise<void> {
  await retry(clock, stopped, async () => {
    const left = leftIn([await host.lastMessage(sessionID)])
    if (left) await host.deleteMessage(sessionID, left.id)
  })
}

/** A run's last message, where it is to be taken back before the run goes on. */
export function leftIn(messages: readonly (Message | undefined)[]): Message | undefined {
  const last = messages.at(-1)
  const isUnfinished = last?.role === "assistant" && last.finish === undefined
  return isUnfinished && !last.parts.some(({ type }) => type === "tool") ? last : undefined
}
