import { messageID, partID } from "../../core/ids.ts"
import { lastWordRefusal, lastWordRequest } from "../../core/last-word.ts"
import type { Ask, LastWord, Reason, Task } from "../../core/task.ts"
import type { Parts } from "../parts.ts"
import type { Endings } from "../run/endings.ts"
import type { ProgressTracker } from "../run/progress.ts"
import { stopSession } from "../run/stopping.ts"
import { sendTo } from "../talk/sending.ts"

/** What goes along with a request to a session's model. */
export type WordInRequest = { readonly text: string; readonly withoutTools: boolean }

/**
 * Asks runs near a limit for their last word, once. Nothing of that outlives the run: the question goes along with the
 * session's next request and is not stored, calls of tools are refused by a hook, and no rule of the session changes.
 */
export class LastWords {
  readonly #parts: Parts
  readonly #endings: Endings

  constructor(parts: Parts, endings: Endings) {
    this.#parts = parts
    this.#endings = endings
  }

  /** Asks a run that is at work, or before a question that is refused for that; one that rests is prompted. */
  ask(task: Task, tracker: ProgressTracker, reason: Reason): void {
    const { store, clock, journal, background, host } = this.#parts
    const at = clock.now()
    tracker.lastWord = { state: "told", reason, at }
    const change = store.apply(task.id, { type: "warned", generation: task.run.generation, at, reason }, at)
    if (change) background.run("save", () => journal.save(change.after))
    host.log("info", "task asked for its last word", {
      task: task.id,
      session: task.sessionID,
      generation: task.run.generation,
      reason: reason.code,
    })
    const { asks } = tracker.snapshot()
    // Who dismisses a question ends the turn of the agent that asked it.
    if (asks.some(({ kind, sessionID }) => kind === "question" && sessionID === task.sessionID))
      return this.askAgain(task, tracker)
    for (const ask of asks) this.#refuse(ask, tracker, reason)
    if (store.hasOpen(task.sessionID)) this.askIfResting(task, tracker)
  }

  /** A run that waits for its own tasks asks its model nothing by itself: it is prompted, unless something else is on its way. */
  askIfResting(task: Task, tracker: ProgressTracker): void {
    this.#parts.background.run("ask for a last word", async () => {
      if ((await this.#parts.host.activity()).has(task.sessionID)) return
      const { lastWord } = tracker
      if (lastWord?.state === "told" && !tracker.expects) await this.#prompt(task, tracker, lastWord)()
    })
  }

  /** Stops what a run is doing, and asks it once more: it has some time of its own, and no tools. */
  askAgain(task: Task, tracker: ProgressTracker): void {
    const { clock, background } = this.#parts
    const { lastWord } = tracker
    if (!lastWord) return
    tracker.lastWord = { ...lastWord, state: "told", againAt: clock.now() }
    const { asks } = tracker.snapshot()
    const send = this.#prompt(task, tracker, lastWord)
    background.run("ask again for a last word", async () => {
      await stopSession(this.#parts, task.sessionID, asks)
      await send()
    })
  }

  /** What to tell a session's model with the request that is about to be sent; undefined for nothing. */
  inRequest(sessionID: string): WordInRequest | undefined {
    const tracker = this.#trackerOf(sessionID)
    const lastWord = tracker?.lastWord
    if (!tracker || !lastWord) return undefined
    const { state, againAt, reason } = lastWord
    if (state === "told") tracker.lastWord = { ...lastWord, state: "speaking" }
    return { text: lastWordRequest(reason), withoutTools: againAt !== undefined || state === "spoke" }
  }

  /** Why a session may call no tool; undefined where it may. */
  refusal(sessionID: string): string | undefined {
    const lastWord = this.#trackerOf(sessionID)?.lastWord
    return lastWord && lastWordRefusal(lastWord.reason)
  }

  #trackerOf(sessionID: string): ProgressTracker | undefined {
    const { store } = this.#parts
    const task = store.bySession(sessionID)
    return task && !store.isForeign(task.id) ? store.tracker(task.id) : undefined
  }

  #refuse(ask: Ask, tracker: ProgressTracker, reason: Reason): void {
    tracker.replied(ask.id)
    this.#parts.background.run("refuse", () => this.#parts.host.refuse(ask, lastWordRefusal(reason)))
  }

  /** From the call on the run does not end before the question was read; the function returned sends it. */
  #prompt(task: Task, tracker: ProgressTracker, { reason }: LastWord): () => Promise<void> {
    const { host, clock, store } = this.#parts
    const { id, sessionID, agent, model, run } = task
    const now = clock.now()
    const question = messageID("last-word", id, run.generation, now)
    tracker.expect(question)
    return async () => {
      if (!store.runs(task)) return
      try {
        const parts = [{ id: partID("last-word", id, run.generation, now, 0), text: lastWordRequest(reason) }]
        await sendTo(this.#parts, task, () => host.prompt({ sessionID, messageID: question, agent, model, parts }))
      } catch (error) {
        host.log("warn", "could not ask for a last word", { task: id, session: sessionID, error: String(error) })
        this.#endings.end(id, run.generation, { type: "failed", reason })
      }
    }
  }
}
