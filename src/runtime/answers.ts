import { chosenIn, type Group } from "../core/group.ts"
import { shownRows } from "../core/members.ts"
import { answerText, classify, valueIn } from "../core/outcome.ts"
import type { Message, OpencodeApi } from "../core/ports.ts"
import { type Ending, isActive, type Task } from "../core/task.ts"
import { sleepFor } from "../lib/clock.ts"
import { type Answer, toldStatus } from "../present/notification.ts"
import type { Ledgers } from "./ledgers.ts"
import { notificationID } from "./mailbox/sender.ts"
import type { Parts } from "./parts.ts"

/** Delays between checks whether OpenCode has closed the message of an aborted turn. */
const CLOSING_DELAYS_MS = [20, 100, 400] as const
/** Bounds memory: the oldest answers are dropped first. In UTF-16 units. */
const MOST_KEPT_CHARS = 1_000_000

/**
 * Answers of ended runs, read from their sessions and cached for `resultCacheTTL`, so that paging does not read a
 * session again.
 */
export class Answers {
  readonly #parts: Parts

  readonly #ledgers: () => Promise<Ledgers>

  constructor(parts: Parts, ledgers: () => Promise<Ledgers>) {
    this.#parts = parts
    this.#ledgers = ledgers
  }

  /**
   * Text of a run, empty for none. `next`: prompt of a later run, where this run's answer ends; rejects with a
   * `OpencodeError`.
   */
  async of(task: Task, next?: string): Promise<Answer> {
    return (await this.#read(task, next)).answer
  }

  /** Answer of a stopped run, whose last message OpenCode closes a moment after the abort. */
  async ofClosed(task: Task, next?: string): Promise<Answer> {
    for (const ms of CLOSING_DELAYS_MS) {
      const { answer, closed } = await this.#read(task, next)
      if (closed || this.#parts.stopped.aborted) return answer
      await sleepFor(this.#parts.clock, ms)
    }
    return this.of(task, next)
  }

  async #read(task: Task, next?: string): Promise<{ answer: Answer; closed: boolean }> {
    const { host, clock } = this.#parts
    if (task.group) return this.#ofTeam(task.group)
    const kept = this.#parts.store.handle(task.id)?.answer
    if (kept?.generation === task.run.generation && kept.until > clock.now()) return { answer: kept, closed: true }
    const since = await host.messagesSince(task.sessionID, task.run.promptID)
    const end = since.findIndex(({ id }) => id === next)
    const messages = end < 0 ? since : since.slice(0, end)
    const gone = messages.length === 0 && (await host.session(task.sessionID)) === undefined
    // An answer that the parent received whole stays readable.
    if (gone && kept?.generation === task.run.generation)
      return { answer: { text: kept.text, gone: false }, closed: true }
    const answer = { text: valueIn(task, answerText(messages)), gone }
    const last = messages.findLast(({ role }) => role === "assistant")
    const closed = last === undefined || last.completedAt !== undefined
    if (closed && !isActive(task) && next === undefined) this.keep(task, answer)
    return { answer, closed }
  }

  /** For tries, the winner's answer; for a map, the rows of its ledger. */
  async #ofTeam(group: Group): Promise<{ answer: Answer; closed: boolean }> {
    if (group.kind === "each") {
      const ledgers = await this.#ledgers()
      return { answer: { text: shownRows(await ledgers.read(group.file)), gone: false }, closed: true }
    }
    const chosen = this.#parts.store.get(chosenIn(group) ?? "")
    return chosen ? this.#read(chosen) : { answer: { text: "", gone: false }, closed: true }
  }

  /** Answers delivered whole in a notification are kept longer, in case the session is deleted. */
  #isShort(text: string): boolean {
    return text !== "" && text.length <= this.#parts.options.notifyAnswerChars
  }

  keep({ id, run }: Task, { text, gone }: Answer): void {
    const { clock, options, store } = this.#parts
    const kept = store.handle(id)
    if (!kept || (options.resultCacheTTL === 0 && !this.#isShort(text))) return
    const now = clock.now()
    kept.answer = { text, gone, generation: run.generation, keptAt: now, until: now + options.resultCacheTTL }
    const entries = [...store.entries()].filter(({ answer }) => answer !== undefined)
    let chars = entries.reduce((sum, { answer }) => sum + (answer?.text.length ?? 0), 0)
    for (const handle of entries.toSorted((a, b) => (a.answer?.keptAt ?? 0) - (b.answer?.keptAt ?? 0))) {
      const stays = (handle.answer?.until ?? 0) > now || this.#isShort(handle.answer?.text ?? "")
      if (stays && chars <= MOST_KEPT_CHARS) continue
      chars -= handle.answer?.text.length ?? 0
      handle.answer = undefined
    }
  }
}

/** `told`: the end that the parent was told, where messages no longer prove it. */
type Before = { readonly messages: readonly Message[]; readonly told?: Ending }

/**
 * Messages after the notification, or written by the user while it was sent, are the user's: they do not change the
 * answer.
 */
export async function answerBeforeNotice(host: OpencodeApi, task: Task, messages: readonly Message[]): Promise<Before> {
  const isAlone = messages.every(({ role, id }) => role !== "user" || id === task.run.promptID)
  if (isAlone && classify(messages, "idle").proven) return { messages }
  const id = notificationID(host.messageID, task)
  // Most runs that a crash ended were not told: one small request shows it.
  if (!(await host.hasMessage(task.parentID, id, 0))) return { messages }
  const [notice] = await host.messagesSince(task.parentID, id)
  if (!notice) return { messages }
  const before = messages.filter(
    ({ createdAt, completedAt = createdAt }) => createdAt < notice.createdAt && completedAt < notice.createdAt,
  )
  // An end that messages do not prove was recorded before it was told.
  const end = before.findLastIndex((_message, index) => classify(before.slice(0, index + 1), "idle").proven)
  return end < 0 ? { messages: before, told: endIn(task, notice) } : { messages: before.slice(0, end + 1) }
}

/** End that a notification names; its session's user has replaced the messages that proved it. */
function endIn(task: Task, { parts, createdAt: at }: Message): Ending | undefined {
  const status = parts.flatMap((part) => (part.type === "text" ? [toldStatus(task, part.text)] : [])).find(Boolean)
  if (status === "completed") return { type: "completed", at }
  if (status === "error") return { type: "failed", reason: { code: "provider", text: GONE }, at }
  return status && { type: "cancelled", reason: { code: "refused", text: GONE }, at }
}

const GONE = "The messages that showed its end were replaced. Its notification says how it ended."
