import { CallError, messageOf } from "../../core/errors.ts"
import { messageID, partID } from "../../core/ids.ts"
import { isActive, type Task } from "../../core/task.ts"
import { persistently } from "../../lib/retry.ts"
import type { Queue } from "../launch/queue.ts"
import type { Parts } from "../parts.ts"
import type { ProgressTracker } from "../run/progress.ts"
import { sendTo } from "./sending.ts"

/**
 * Says a word to a task that has not ended. From the moment of the call its run cannot end by itself before it has read
 * it: the judgement waits for the message, so that a word is either read or the call an error.
 */
export class Teller {
  readonly #parts: Parts
  readonly #queue: Queue
  /** A tracker was told that a word will not come: its run may have ended while it waited for that. */
  readonly #lookAgain: (taskID: string) => void
  #lastAt = 0

  constructor(parts: Parts, queue: Queue, lookAgain: (taskID: string) => void) {
    this.#parts = parts
    this.#queue = queue
    this.#lookAgain = lookAgain
  }

  /** Throws a `CallError` where the task cannot read it. `waits`: it stands behind the prompt of a run that has not begun. */
  async tell(task: Task, text: string): Promise<{ waits: boolean }> {
    const { store } = this.#parts
    if (!isActive(task)) throw new CallError(this.#ended(task))
    if (store.isForeign(task.id))
      throw new CallError(`Task ${task.id} is run by another OpenCode process. Tell it there.`)
    if (this.#queue.append(task.id, text)) return { waits: true }
    const tracker = store.tracker(task.id)
    if (!tracker) throw new CallError(this.#ended(task))
    if (tracker.lastWord)
      throw new CallError(
        `Task ${task.id} is near a limit and is saying its last word: it can be told nothing more. You will be told when it ends.`,
      )
    await this.#send(task, tracker, text)
    return { waits: false }
  }

  /** Says it once more, as a message of now: the session has let the first one lie. */
  async again(task: Task, tracker: ProgressTracker, text: string): Promise<void> {
    try {
      await this.#send(task, tracker, text)
    } catch (error) {
      this.#parts.host.log("warn", "a task was not told again", { task: task.id, error: messageOf(error) })
    }
  }

  async #send(task: Task, tracker: ProgressTracker, text: string): Promise<void> {
    const { host, store, clock, stopped } = this.#parts
    const { id, sessionID, agent, model, run } = task
    const at = this.#time()
    const word = messageID("word", id, run.generation, at)
    tracker.expect(word)
    // The host answers what stands last, in the order of coming: the prompt comes first.
    await this.#queue.prompted(id)
    if (!store.runs(task)) throw new CallError(this.#ended(store.get(id) ?? task))
    const parts = [{ id: partID("word", id, run.generation, at, 0), text }]
    try {
      // Sent again under the same id it is the same message.
      const send = async () => {
        if (store.runs(task)) await host.prompt({ sessionID, messageID: word, agent, model, parts })
      }
      if (await sendTo(this.#parts, task, () => persistently(clock, stopped, send)))
        return void tracker.words.set(word, text)
    } catch (error) {
      tracker.expectNot(word)
      this.#lookAgain(id)
      if (store.runs(task)) throw new CallError(`Task ${id} was not told: ${messageOf(error)} Try again.`)
    }
    // It was ended meanwhile, by a limit or a cancel.
    throw new CallError(this.#ended(store.get(id) ?? task))
  }

  #ended({ id, status }: Task): string {
    const resumable: readonly string[] = this.#parts.options.resumable
    const next = resumable.includes(status)
      ? `To ask it again, use superagents_task(resume="${id}", prompt).`
      : "It cannot be resumed either (option resumable): launch a new one."
    return `Task ${id} is ${status}: it was told nothing. ${next}`
  }

  /** Ids come from the time: two words in one millisecond are two messages. */
  #time(): number {
    this.#lastAt = Math.max(this.#parts.clock.now(), this.#lastAt + 1)
    return this.#lastAt
  }
}
