import { isActive, type Task } from "../core/task.ts"
import { answerText } from "../core/verdict.ts"
import type { Parts } from "./parts.ts"

/** `gone`: the session was deleted, and the text with it. */
export type Answer = { readonly text: string; readonly gone: boolean }

/**
 * The answers of ended runs: read from their sessions, and kept for `resultCacheTTL` so that reading on at an offset
 * does not read the session again.
 */
export class Answers {
  readonly #parts: Parts
  readonly #kept = new Map<string, Answer & { readonly generation: number; readonly until: number }>()

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /** The text of the task's last run, empty where there is none. Rejects with a `HostError`. */
  async of(task: Task): Promise<Answer> {
    const { host, clock, options } = this.#parts
    const kept = this.#kept.get(task.id)
    if (kept?.generation === task.run.generation && kept.until > clock.now()) return kept
    const messages = await host.messagesSince(task.sessionID, task.run.promptID)
    const gone = messages.length === 0 && (await host.session(task.sessionID)) === undefined
    const answer = { text: answerText(messages), gone }
    if (options.resultCacheTTL > 0 && !isActive(task)) this.#keep(task, answer)
    return answer
  }

  forget(taskID: string): void {
    this.#kept.delete(taskID)
  }

  #keep({ id, run }: Task, answer: Answer): void {
    const { clock, options } = this.#parts
    const now = clock.now()
    for (const [id, entry] of this.#kept) if (entry.until <= now) this.#kept.delete(id)
    this.#kept.set(id, { ...answer, generation: run.generation, until: now + options.resultCacheTTL })
  }
}
