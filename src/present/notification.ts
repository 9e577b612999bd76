import { listed } from "../core/errors.ts"
import { figuresLine } from "../core/figures.ts"
import { AUTOMATIC, endedUnanswered, nameOf, noText, summaryOf, textName } from "../core/summary.ts"
import { elapsed, type Figures, type Task } from "../core/task.ts"
import { duration } from "../lib/duration.ts"
import { count, grouped, head, inTags, oneLine } from "../lib/text.ts"

/** Parts of a notification's message: without both, it was not stored whole. */
export const NOTICE_PARTS = 2

/** Of an answer that is too long to come whole. */
const BEGINNING_CHARS = 1000
/** With more, what is told of a map could pass 3,000 tokens. */
const MOST_MAP_BYTES = 6500

/** All that a notification tells, as it is when the notification is sent. */
export type News = {
  readonly task: Task
  readonly whole: Figures
  readonly thisRun: Figures
  /** What the run had written; absent where that could not be read. `gone`: it was deleted with its session. */
  readonly answer?: Answer
  /** Tasks of the session that have not ended. */
  readonly running: readonly Task[]
  /** Those that have ended, and whose own notifications follow this one. */
  readonly untold: readonly Task[]
  /** How many tasks of the session have run since none did, with all of this one's batch. */
  readonly together: number
  /** Ended tasks of the session whose answers the parent has not got, this one left out. */
  readonly notFetched: readonly Task[]
}

export type Answer = { readonly text: string; readonly gone: boolean }

export type NoticeOptions = {
  /** Longest answer that comes whole; 0: none comes. */
  readonly notifyAnswerChars: number
  /** The statuses that may be resumed. */
  readonly resumable?: readonly string[]
  /** Adds the mark that tells a developer that a hidden hint is attached. */
  readonly development: boolean
}

/**
 * The two texts of a notification: what the user reads, and what only the model does. `handsOver`: the answer is in it
 * whole, so that it counts as fetched.
 */
export type Notice = { readonly visible: string; readonly hidden: string; readonly handsOver: boolean }

/**
 * The notification of an ended run, in the words of the specification; its lines come last in the hidden part, as they
 * stand there. What the agent wrote is data between tags.
 */
export function compose(news: News, { notifyAnswerChars, resumable, development }: NoticeOptions): Notice {
  const { task } = news
  const { done, total } = progressOf(task)
  const visible = `${headline(task)}\nTask Progress: ${done}/${total}`
  const shown = development ? `${visible}\n[hint attached]` : visible
  if (isOwnCancel(task)) {
    const hidden = automatic(task, "cancelled, by your own call.")
    return { visible: shown, hidden, handsOver: false }
  }
  const answer = answerOf(news, notifyAnswerChars)
  const hidden = [
    automatic(task, `${task.status}. ${figuresLine(news.whole, news.thisRun, task.run.generation > 0)}`),
    ...summaryOf(task, resumable),
    ...answer.lines,
    ...guidance(news, answer.whole),
  ]
  return { visible: shown, hidden: hidden.join("\n"), handsOver: answer.whole && task.retrievedAt === undefined }
}

const progressOf = ({ delivery }: Task) => (delivery.state === "none" ? { done: 0, total: 0 } : delivery)

const isOwnCancel = ({ outcome }: Task): boolean => outcome?.reason?.code === "cancelled"

function headline(task: Task): string {
  const time = duration(elapsed(task, 0))
  const resumed = task.run.generation > 0
  const subject = resumed ? `Resume #${task.run.generation}` : `Agent "${oneLine(task.description)}"`
  if (task.outcome?.reason?.code === "refused") return `⊖ **${subject} stopped at a refusal after ${time}.**`
  if (task.status === "cancelled") return `⊘ **${subject} cancelled after ${time}.**`
  if (task.status === "error") return `✗ **${subject} failed in ${time}.**`
  if (endedUnanswered(task)) return `⊖ **${subject} ended without an answer after ${time}.**`
  return `✓ **${subject} ${resumed ? "completed" : "finished"} in ${time}.**`
}

/** A model takes a message for the user's unless it says otherwise. The visible part names all but resumed tasks. */
function automatic(task: Task, end: string): string {
  const { generation } = task.run
  const subject = generation > 0 ? `Resume #${generation} of task ${nameOf(task)}` : `Task ${task.id}`
  return `${AUTOMATIC} ${subject}: ${end}`
}

/** Whether the answer is of any use to a notification. */
export const wantsAnswer = (task: Task): boolean => task.retrievedAt === undefined && !isOwnCancel(task)

/** The answer as far as it comes along; `whole`: nothing is left to fetch. */
function answerOf(
  { task, answer }: News,
  most: number,
): { readonly lines: readonly string[]; readonly whole: boolean } {
  if (task.retrievedAt !== undefined) return { lines: ["You have fetched its answer already."], whole: true }
  if (answer === undefined || most === 0) return { lines: [], whole: false }
  const { text, gone } = answer
  if (text === "") return { lines: [noText(task, gone)], whole: true }
  const name = task.outcome?.team?.kind === "each" ? "rows" : textName(task)
  if (text.length <= most && (name !== "rows" || fits(task, text)))
    return {
      lines: [`Its whole ${name}:`, inTags("task_output", text)],
      whole: true,
    }
  if (name === "rows")
    return {
      lines: [`superagents_output(task_id="${task.id}") shows the rows, those that failed first.`],
      whole: false,
    }
  const beginning = head(text, Math.min(BEGINNING_CHARS, most))
  const rest = `superagents_output(task_id="${task.id}", offset=${beginning.length})`
  return {
    lines: [
      `Its ${name} has ${count(text.length, "character")}, of which these are the first ${grouped(beginning.length)}; ${rest} reads on:`,
      inTags("task_output", beginning),
    ],
    whole: false,
  }
}

/** Rows, and why items failed, may be of any language: a token has one byte at least, and two and more of most. */
const fits = (task: Task, rows: string): boolean =>
  Buffer.byteLength(summaryOf(task).join("\n")) + Buffer.byteLength(rows) <= MOST_MAP_BYTES

const LEFTOVERS = "WATCH OUT for leftovers, you will likely WANT to wait for all agents to complete."

/** What runs and what was not fetched, by name, and then the specification's hint for the case. */
function guidance({ task, running, untold, notFetched, together }: News, whole: boolean): string[] {
  if (running.length + untold.length > 0)
    return [
      ...(running.length > 0 ? [`Still running: ${listed(running.map(nameOf))}`] : []),
      ...(untold.length > 0 ? [`Ended too, told next: ${listed(untold.map(nameOf))}`] : []),
      `If you need results immediately, use superagents_output(task_id="${task.id}").`,
      "You can continue working or just say 'waiting' and halt.",
      LEFTOVERS,
    ]
  const unfetched = whole ? notFetched : [...notFetched, task]
  return [
    ...(unfetched.length > 0 ? [`Not fetched yet: ${listed(unfetched.map(nameOf))}`] : []),
    `All ${together} tasks finished.`,
    "Use superagents_output tools to see agent responses.",
  ]
}

const STILL_RUNNING = /(?:\n(?:Still running|Ended too, told next): [^\n]+){1,2}(?:\n[^\n]+){3}$/

/** True for the hidden part of a notification; the one line on a task that its parent cancelled says nothing of others. */
export const isNotice = (hidden: string): boolean =>
  hidden.startsWith(AUTOMATIC) && /^ (?:Task|Resume #\d+ of task) bg_.*\n/.test(hidden.slice(AUTOMATIC.length))

/**
 * The hidden part of a notification that the next one follows directly: without what ran when it was sent, which the
 * next one says anew.
 */
export const withoutRunning = (hidden: string): string =>
  hidden.endsWith(LEFTOVERS) ? hidden.replace(STILL_RUNNING, "") : hidden
