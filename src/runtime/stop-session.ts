import type { Message } from "../core/ports.ts"
import type { Ask, Task } from "../core/task.ts"
import { retry } from "../lib/clock.ts"
import type { Parts } from "./parts.ts"

/** Time to wait for an abort, which OpenCode carries out anyway. */
const ABORT_LIMIT_MS = 5000

/** `soon`: stopped or timed out; `done`: no call is pending. */
export type Stopping = { readonly soon: Promise<void>; readonly done: Promise<void> }

/**
 * Refuses the session's open questions, which an abort would leave open for ever, then aborts it. `asks`: questions of
 * the session and those below; failures are logged, never rejected.
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
  // Without a text: a text would start the child's model before the abort.
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
 * Deletes the remains of a refused step, so that it is neither an end nor sent again. A step with a tool call is kept.
 */
export async function deleteRefusedStep({ clock, host, stopped }: Parts, { sessionID }: Task): Promise<void> {
  await retry(clock, stopped, async () => {
    const left = unfinishedAnswer([await host.lastMessage(sessionID)])
    if (left) await host.deleteMessage(sessionID, left.id)
  })
}

/** Last message of a run that must be undone before the run continues. */
export function unfinishedAnswer(messages: readonly (Message | undefined)[]): Message | undefined {
  const last = messages.at(-1)
  const isUnfinished = last?.role === "assistant" && last.finish === undefined
  return isUnfinished && !last.parts.some(({ type }) => type === "tool") ? last : undefined
}
