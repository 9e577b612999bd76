import type { Clock, Host } from "../core/ports.ts"
import { isActive, type Task } from "../core/task.ts"
import { answerText } from "../core/verdict.ts"

/**
 * The answers of ended runs: read from their sessions, and kept for a while so that reading on at an offset does not
 * read the session again.
 */
export class Answers {
  readonly #host: Host
  readonly #clock: Clock
  readonly #ttl: number
  readonly #kept = new Map<string, { readonly generation: number; readonly text: string; readonly until: number }>()

  /** `ttl` in ms; 0 keeps nothing. */
  constructor(host: Host, clock: Clock, ttl: number) {
    this.#host = host
    this.#clock = clock
    this.#ttl = ttl
  }

  /** The text of the task's last run, empty where there is none. Rejects with a `HostError`. */
  async of(task: Task): Promise<string> {
    const kept = this.#kept.get(task.id)
    if (kept?.generation === task.run.generation && kept.until > this.#clock.now()) return kept.text
    const text = answerText(await this.#host.messagesSince(task.sessionID, task.run.promptID))
    if (this.#ttl > 0 && !isActive(task)) this.#keep(task, text)
    return text
  }

  forget(taskID: string): void {
    this.#kept.delete(taskID)
  }

  #keep(task: Task, text: string): void {
    const now = this.#clock.now()
    for (const [id, entry] of this.#kept) if (entry.until <= now) this.#kept.delete(id)
    this.#kept.set(task.id, { generation: task.run.generation, text, until: now + this.#ttl })
  }
}
