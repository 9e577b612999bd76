import { mkdir, realpath } from "node:fs/promises"
import { join } from "node:path"
import { CallError } from "../core/errors.ts"
import type { ResultFiles } from "../core/feature.ts"
import { chosenIn } from "../core/group.ts"
import { answerText, classify, valueIn } from "../core/outcome.ts"
import type { Message, OpencodeApi } from "../core/ports.ts"
import { type Ending, isActive, isUnattended, type Task } from "../core/task.ts"
import { appendPlain, NoFile, readPlain, replaceFile } from "../lib/atomic-file.ts"
import { sleepFor } from "../lib/clock.ts"
import { keepOutOfGit } from "../lib/repository.ts"
import { formatInteger } from "../lib/text.ts"
import { type Answer, toldStatus } from "../present/notification.ts"
import { notificationID } from "./mailbox/sender.ts"
import type { Signer } from "./record/identity.ts"
import type { Services } from "./services.ts"
import { isByOthers } from "./sessions.ts"

/** Delays between checks whether OpenCode has closed the message of an aborted turn. */
const CLOSING_DELAYS_MS = [20, 100, 400] as const
/** Most characters of all cached answers, in UTF-16 units. Beyond this limit the oldest answers are dropped. */
const MOST_KEPT_CHARS = 1_000_000

/**
 * Answers of ended runs, read from their sessions and cached for `resultCacheTTL`, so that paging does not read a
 * session again.
 */
export class Answers {
  readonly #services: Services

  readonly #results: ResultFolder

  constructor(services: Services, results: ResultFolder) {
    this.#services = services
    this.#results = results
  }

  /**
   * Returns the answer of the task's run, with an empty text for none, or rejects with an `OpencodeError`. `next`:
   * prompt of a later run, before which this run's answer ends.
   */
  async of(task: Task, next?: string): Promise<Answer> {
    return (await this.#read(task, next)).answer
  }

  /** Returns the answer of a stopped run, whose last message OpenCode closes a moment after the abort. */
  async ofClosed(task: Task, next?: string): Promise<Answer> {
    for (const ms of CLOSING_DELAYS_MS) {
      const { answer, closed } = await this.#read(task, next)
      if (closed || this.#services.stopped.aborted) return answer
      await sleepFor(this.#services.clock, ms)
    }
    return this.of(task, next)
  }

  async #read(task: Task, next?: string): Promise<{ answer: Answer; closed: boolean }> {
    const { opencode, clock } = this.#services
    if (task.group) return this.#ofGroup(task)
    const kept = this.#services.store.handle(task.id)?.answer
    if (kept?.generation === task.run.generation && kept.until > clock.now()) return { answer: kept, closed: true }
    const since = await opencode.messagesSince(task.sessionID, task.run.promptID)
    const messages = ofRun(opencode, task, since, next)
    const gone = messages.length === 0 && (await opencode.session(task.sessionID)) === undefined
    // The session was deleted: use the cached answer, even after its time in the cache.
    if (gone && kept?.generation === task.run.generation)
      return { answer: { text: kept.text, gone: false }, closed: true }
    const answer = { text: valueIn(task, answerText(messages)), gone }
    const last = messages.findLast(({ role }) => role === "assistant")
    const closed = last === undefined || last.completedAt !== undefined
    if (closed && !isActive(task) && next === undefined) this.keep(task, answer)
    return { answer, closed }
  }

  /** Returns a group's answer: that of the chosen member, or the rows of a kind with rows. */
  async #ofGroup(task: Task): Promise<{ answer: Answer; closed: boolean }> {
    const { store, groupKindOf } = this.#services
    const chosen = store.get(chosenIn(task.group) ?? "")
    if (chosen) return this.#read(chosen)
    const work = await groupKindOf(task)?.work()
    const rows = task.group && (await work?.rows?.(task.group, this.#results))
    return { answer: { text: rows?.text ?? "", gone: false }, closed: true }
  }

  /**
   * Whether a notification delivers the answer whole. Such an answer stays in the cache, in case the session is
   * deleted.
   */
  #isShort(text: string): boolean {
    return text !== "" && text.length <= this.#services.options.notifyAnswerChars
  }

  keep({ id, run }: Task, { text, gone }: Answer): void {
    const { clock, options, store } = this.#services
    const kept = store.handle(id)
    if (!kept || (options.resultCacheTTL === 0 && !this.#isShort(text))) return
    const now = clock.now()
    kept.answer = { text, gone, generation: run.generation, cachedAt: now, until: now + options.resultCacheTTL }
    const entries = [...store.entries()].filter(({ answer }) => answer !== undefined)
    let chars = entries.reduce((sum, { answer }) => sum + (answer?.text.length ?? 0), 0)
    for (const handle of entries.toSorted((a, b) => (a.answer?.cachedAt ?? 0) - (b.answer?.cachedAt ?? 0))) {
      const stays = (handle.answer?.until ?? 0) > now || this.#isShort(handle.answer?.text ?? "")
      if (stays && chars <= MOST_KEPT_CHARS) continue
      chars -= handle.answer?.text.length ?? 0
      handle.answer = undefined
    }
  }
}

/** The run's messages, without a conversation that somebody else begins in its session after its end. */
function ofRun(
  opencode: OpencodeApi,
  { run: { endedAt = Number.POSITIVE_INFINITY } }: Task,
  since: readonly Message[],
  next: string | undefined,
): readonly Message[] {
  const end = since.findIndex(
    (message, at) => message.id === next || (at > 0 && message.createdAt > endedAt && isByOthers(opencode, message)),
  )
  return end < 0 ? since : since.slice(0, end)
}

/** `reportedEnding`: the end that the notification told the parent, set where the messages no longer prove that end. */
type Before = { readonly messages: readonly Message[]; readonly reportedEnding?: Ending }

/**
 * Returns the run's messages from before its notification. Messages after the notification, or written while it was
 * sent, belong to the user and do not change the answer.
 */
export async function answerBeforeNotice(
  opencode: OpencodeApi,
  task: Task,
  messages: readonly Message[],
): Promise<Before> {
  const isAlone = messages.every(({ role, id }) => role !== "user" || id === task.run.promptID)
  // Nobody is notified of an unattended run: without a parent, OpenCode would answer with an error.
  if (isUnattended(task) || (isAlone && classify(messages, "idle").proven)) return { messages }
  const id = notificationID(opencode.messageID, task)
  // For most runs that a crash ended, no notification was sent. One small request shows whether there is one.
  if (!(await opencode.hasMessage(task.parentID, id, 0))) return { messages }
  const [notice] = await opencode.messagesSince(task.parentID, id)
  if (!notice) return { messages }
  const before = messages.filter(
    ({ createdAt, completedAt = createdAt }) => createdAt < notice.createdAt && completedAt < notice.createdAt,
  )
  const told = endIn(task, notice)
  for (let length = before.length; length > 0; length--) {
    const messages = before.slice(0, length)
    const { proven, type } = classify(messages, "idle")
    // The user's turn may have been answered, too, while the notification was sent: the end is the one that it tells.
    if (proven && (!told || type === told.type)) return { messages }
  }
  // If no message proves the end that was told, take it from the notification.
  return { messages: before, reportedEnding: told }
}

/** Reads a run's end from its notification. */
function endIn(task: Task, { parts, createdAt: at }: Message): Ending | undefined {
  const status = parts.flatMap((part) => (part.type === "text" ? [toldStatus(task, part.text)] : [])).find(Boolean)
  if (status === "completed") return { type: "completed", at }
  if (status === "error") return { type: "failed", reason: { code: "provider", text: GONE }, at }
  return status && { type: "cancelled", reason: { code: "refused", text: GONE }, at }
}

const GONE = "The messages that showed its end were replaced. Its notification says how it ended."

/** Most bytes read of a group's rows: anybody may write to their file, and reading takes OpenCode's one thread. */
const MOST_ROW_BYTES = 200_000_000

/** Folder for results of tasks, in the main checkout. */
const resultsFolder = (project: string): string => join(project, ".opencode", "superagents")

/**
 * Creates the folder, which is not committed. Throws where the folder is a link, since a repository could make the link
 * point to a user's files.
 */
async function makeResultsFolder(project: string): Promise<string> {
  const folder = resultsFolder(project)
  await mkdir(folder, { recursive: true })
  const [real, expected] = await Promise.all([realpath(folder), realpath(project).then(resultsFolder)])
  if (real !== expected)
    throw new CallError(`Results lie in ${folder}, and that is a link to ${real}. Make it a folder of the project.`)
  await keepOutOfGit(folder)
  return folder
}

/** Values of tasks and rows of groups, in the main checkout, not committed. */
export class ResultFolder implements ResultFiles {
  /** The main checkout, which is looked for at the first use. */
  readonly #project: () => string
  readonly signer: Signer

  constructor(project: () => string, signer: Signer) {
    this.#project = project
    this.signer = signer
  }

  /** Path of a group's rows. */
  rowsOf(taskID: string): string {
    return `${this.valueOf(taskID)}l`
  }

  /** Path of a task's value. */
  valueOf(taskID: string): string {
    return join(resultsFolder(this.#project()), `${taskID}.json`)
  }

  /** Stores a task's value and returns its path. */
  async keep(taskID: string, json: string): Promise<string> {
    const file = this.valueOf(taskID)
    await this.write(file, json)
    return file
  }

  async write(file: string, text: string): Promise<void> {
    await makeResultsFolder(this.#project())
    await replaceFile(file, text)
  }

  /** Appends lines, after a line break in case a crash has cut off the line before. */
  append(file: string, lines: string): Promise<void> {
    return appendPlain(file, `\n${lines}`)
  }

  /** Returns "" for a missing file, or for something else in its place. Throws for a file that cannot be read. */
  async read(file: string): Promise<string> {
    const tooLong = (bytes: number) =>
      new CallError(
        `The rows in ${file} cannot be read: it has ${formatInteger(bytes)} bytes; at most ${formatInteger(MOST_ROW_BYTES)} are read.`,
      )
    try {
      return (await readPlain(file, MOST_ROW_BYTES, tooLong)).toString("utf8")
    } catch (error) {
      if (error instanceof NoFile || ["ENOENT", "ELOOP"].includes((error as NodeJS.ErrnoException).code ?? ""))
        return ""
      throw error
    }
  }
}
