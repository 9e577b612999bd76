import { chosenIn, type Group } from "../core/group.ts"
import { shownRows } from "../core/items.ts"
import { answerText } from "../core/outcome.ts"
import { isActive, type Task } from "../core/task.ts"
import { valueIn } from "../core/value.ts"
import type { Ledgers } from "../features/maps/ledger.ts"
import { pause } from "../lib/clock.ts"
import type { Answer } from "../present/notification.ts"
import type { Parts } from "./parts.ts"

/** Waits before a further look at whether the host has closed the message that it was stopped in. */
const CLOSING_DELAYS_MS = [20, 100, 400] as const
/** How much is kept together, in UTF-16 units: memory does not grow with the answers. The oldest go first. */
const MOST_KEPT_CHARS = 1_000_000

/**
 * The answers of ended runs: read from their sessions, and kept for `resultCacheTTL` so that reading on at an offset
 * does not read the session again.
 */
export class Answers {
  readonly #parts: Parts

  readonly #ledgers: () => Promise<Ledgers>

  constructor(parts: Parts, ledgers: () => Promise<Ledgers>) {
    this.#parts = parts
    this.#ledgers = ledgers
  }

  /**
   * The text of a run, empty where there is none. `next` is the prompt of a later run, if there is one: what comes from
   * there on is another answer. Rejects with a `HostError`.
   */
  async of(task: Task, next?: string): Promise<Answer> {
    return (await this.#read(task, next)).answer
  }

  /** The same, of a run that was stopped: the host closes its last message a moment after it has stopped. */
  async ofClosed(task: Task, next?: string): Promise<Answer> {
    for (const ms of CLOSING_DELAYS_MS) {
      const { answer, closed } = await this.#read(task, next)
      if (closed || this.#parts.stopped.aborted) return answer
      await pause(this.#parts.clock, ms)
    }
    return this.of(task, next)
  }

  async #read(task: Task, next?: string): Promise<{ answer: Answer; closed: boolean }> {
    const { host, clock } = this.#parts
    if (task.team) return this.#ofTeam(task.team)
    const kept = this.#parts.store.handle(task.id)?.answer
    if (kept?.generation === task.run.generation && kept.until > clock.now()) return { answer: kept, closed: true }
    const since = await host.messagesSince(task.sessionID, task.run.promptID)
    const end = since.findIndex(({ id }) => id === next)
    const messages = end < 0 ? since : since.slice(0, end)
    const gone = messages.length === 0 && (await host.session(task.sessionID)) === undefined
    // What its parent was handed whole stays readable.
    if (gone && kept?.generation === task.run.generation)
      return { answer: { text: kept.text, gone: false }, closed: true }
    const answer = { text: valueIn(task, answerText(messages)), gone }
    const last = messages.findLast(({ role }) => role === "assistant")
    const closed = last === undefined || last.completedAt !== undefined
    if (closed && !isActive(task) && next === undefined) this.keep(task, answer)
    return { answer, closed }
  }

  /** Of tries, that of the one that won; of a map, the rows of its ledger. */
  async #ofTeam(team: Group): Promise<{ answer: Answer; closed: boolean }> {
    if (team.kind === "each") {
      const ledgers = await this.#ledgers()
      return { answer: { text: shownRows(await ledgers.read(team.file)), gone: false }, closed: true }
    }
    const chosen = this.#parts.store.get(chosenIn(team) ?? "")
    return chosen ? this.#read(chosen) : { answer: { text: "", gone: false }, closed: true }
  }

  /** One that comes whole with its notification: it is kept beyond its time, in case its session is deleted. */
  #isShort(text: string): boolean {
    return text !== "" && text.length <= this.#parts.options.notifyAnswerChars
  }

  /** Keeps an answer that was just read. */
  keep({ id, run }: Task, { text, gone }: Answer): void {
    const { clock, options, store } = this.#parts
    const kept = store.handle(id)
    if (!kept || (options.resultCacheTTL === 0 && !this.#isShort(text))) return
    const now = clock.now()
    kept.answer = { text, gone, generation: run.generation, keptAt: now, until: now + options.resultCacheTTL }
    const entries = [...store.entries()].filter(({ answer }) => answer !== undefined)
    let chars = entries.reduce((sum, { answer }) => sum + (answer?.text.length ?? 0), 0)
    for (const entry of entries.toSorted((a, b) => (a.answer?.keptAt ?? 0) - (b.answer?.keptAt ?? 0))) {
      const stays = (entry.answer?.until ?? 0) > now || this.#isShort(entry.answer?.text ?? "")
      if (stays && chars <= MOST_KEPT_CHARS) continue
      chars -= entry.answer?.text.length ?? 0
      entry.answer = undefined
    }
  }
}
