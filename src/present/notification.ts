import { listed } from "../core/errors.ts"
import type { GroupKind, Note } from "../core/feature.ts"
import { AUTOMATIC } from "../core/run/prompts.ts"
import {
  type Ask,
  elapsed,
  type Figures,
  type Merge,
  type MessageKind,
  nameOf,
  STATUSES,
  type Status,
  type Task,
} from "../core/task.ts"
import { duration, formatTime } from "../lib/format.ts"
import { count, formatInteger, head, inTags, oneLine } from "../lib/text.ts"
import { conflictAdvice, type MayDo, named, noText, summaryOf, textName } from "./summary.ts"
import { ENDS, type End, endOf, figuresLine } from "./words.ts"

/** Number of parts of a notification. A stored notification with fewer parts is incomplete. */
export const NOTICE_PARTS = 2

/** Characters shown of an answer that is too long. */
const BEGINNING_CHARS = 1000
/** Most bytes of rows with their summary. More bytes could make the notification exceed 3,000 tokens. */
const MOST_ROWS_BYTES = 6500

/** Facts of a notification at the time it is sent. */
export type NotificationFacts = {
  readonly task: Task
  /** Kind of a group. */
  readonly groupKind?: GroupKind
  readonly whole: Figures
  readonly thisRun: Figures
  /** The run's answer; absent where it could not be read. `gone`: the answer was deleted with its session. */
  readonly answer?: Answer
  /** Tasks of the session that have not ended. */
  readonly running: readonly Task[]
  /** Ended tasks of the session, about which notifications follow after this one. */
  readonly pendingTasks: readonly Task[]
  /** Number of tasks that the session has had since none was running. All tasks of this task's batch count, too. */
  readonly together: number
  /** Other ended tasks of the session whose answers the parent has not fetched. */
  readonly notFetched: readonly Task[]
}

export type Answer = { readonly text: string; readonly gone: boolean }

export type NoticeOptions = MayDo & {
  /** Length of the longest answer that is included whole; 0 for none. */
  readonly notifyAnswerChars: number
  /** Adds a visible mark to a notification with a hidden hint. */
  readonly development: boolean
}

/**
 * `visible`: text for the user. `hidden`: text only for the model. `handsOver`: the answer is included whole and counts
 * as fetched.
 */
export type NotificationTexts = { readonly visible: string; readonly hidden: string; readonly handsOver: boolean }

/**
 * Writes the notification of an ended run, with the agent's text as data between tags. The lines of the specification
 * come last in the hidden part, unchanged.
 */
export function compose(facts: NotificationFacts, options: NoticeOptions): NotificationTexts {
  const { task } = facts
  const { notifyAnswerChars, development } = options
  const { done, total } = progressOf(task)
  const visible = `${headline(task)}\nTask Progress: ${done}/${total}`
  const shown = development ? `${visible}\n[hint attached]` : visible
  if (isOwnCancel(task)) {
    const hidden = automatic(task, OWN_CANCEL)
    return { visible: shown, hidden, handsOver: false }
  }
  const answer = answerOf(facts, notifyAnswerChars)
  const hidden = [
    automatic(task, `${task.status}. ${figuresLine(facts.whole, facts.thisRun, task.run.generation > 0)}`),
    ...summaryOf(task, facts.groupKind, options),
    ...answer.lines,
    ...guidance(facts, answer.whole),
  ]
  return { visible: shown, hidden: hidden.join("\n"), handsOver: answer.whole && task.retrievedAt === undefined }
}

const progressOf = ({ delivery }: Task) => (delivery.state === "none" ? { done: 0, total: 0 } : delivery)

const OWN_CANCEL = "cancelled, by your own call."

const isOwnCancel = ({ outcome }: Task): boolean => outcome?.reason?.code === "cancelled"

function headline(task: Task): string {
  const time = duration(elapsed(task, 0))
  const resumed = task.run.generation > 0
  const subject = resumed ? `Resume #${task.run.generation}` : `Agent "${oneLine(task.description)}"`
  const end = endOf(task)
  return `${ENDS[end].mark} **${subject} ${end === "completed" && !resumed ? "finished" : ENDS[end].text} ${PREPOSITIONS[end]} ${time}.**`
}

const PREPOSITIONS: Readonly<Record<End, "in" | "after">> = {
  completed: "in",
  unanswered: "after",
  error: "in",
  cancelled: "after",
  refused: "after",
}

/**
 * First line of the hidden part: without it a model would take the message for the user's. A task that was not resumed
 * has only its id here, because the visible part names it.
 */
function automatic(task: Task, end: string): string {
  const { generation } = task.run
  const subject = generation > 0 ? `Resume #${generation} of task ${nameOf(task)}` : `Task ${task.id}`
  return `${AUTOMATIC} ${subject}: ${end}`
}

/** Whether the notification includes the answer. */
export const wantsAnswer = (task: Task): boolean => task.retrievedAt === undefined && !isOwnCancel(task)

/** The lines of the answer that the notification includes. `whole`: the parent has nothing left to fetch. */
function answerOf(
  { task, answer, groupKind: kind }: NotificationFacts,
  most: number,
): { readonly lines: readonly string[]; readonly whole: boolean } {
  if (task.retrievedAt !== undefined) return { lines: ["You have fetched its answer already."], whole: true }
  if (answer === undefined || most === 0) return { lines: [], whole: false }
  const { text, gone } = answer
  if (text === "") return { lines: [noText(task, gone)], whole: true }
  const isRows = kind?.rows !== undefined
  const name = isRows ? "rows" : textName(task)
  if (text.length <= most && (!isRows || fits(task, kind, text)))
    return {
      lines: [`Its whole ${name}:`, inTags("task_output", text)],
      whole: true,
    }
  if (isRows)
    return {
      lines: [`superagents_output(task_id="${task.id}") shows the rows, those that failed first.`],
      whole: false,
    }
  const beginning = head(text, Math.min(BEGINNING_CHARS, most))
  const rest = `superagents_output(task_id="${task.id}", offset=${beginning.length})`
  return {
    lines: [
      `Its ${name} has ${count(text.length, "character")}, of which these are the first ${formatInteger(beginning.length)}; ${rest} reads on:`,
      inTags("task_output", beginning),
    ],
    whole: false,
  }
}

/** Whether the rows fit. Bytes are counted, because rows may be in any language and a token has at least one byte. */
const fits = (task: Task, kind: GroupKind, rows: string): boolean =>
  Buffer.byteLength(summaryOf(task, kind).join("\n")) + Buffer.byteLength(rows) <= MOST_ROWS_BYTES

const LEFTOVERS = "WATCH OUT for leftovers, you will likely WANT to wait for all agents to complete."

/** Lines that name running and unfetched tasks, then the hint of the specification for this case. */
function guidance({ task, running, pendingTasks, notFetched, together }: NotificationFacts, whole: boolean): string[] {
  if (running.length + pendingTasks.length > 0)
    return [
      ...(running.length > 0 ? [`Still running: ${listed(running.map(nameOf))}`] : []),
      ...(pendingTasks.length > 0 ? [`Also ended, messages follow: ${listed(pendingTasks.map(nameOf))}`] : []),
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

const STILL_RUNNING = /(?:\n(?:Still running|Also ended, messages follow): [^\n]+){1,2}(?:\n[^\n]+){3}$/

/** Status that is named in the hidden part of this task's notification; undefined for any other text. */
export const toldStatus = (task: Task, hidden: string): Status | undefined =>
  hidden === automatic(task, OWN_CANCEL)
    ? "cancelled"
    : STATUSES.find((status) => hidden.startsWith(automatic(task, `${status}.`)))

/**
 * True for the hidden part of a notification. False for the single line about a task that its parent cancelled, because
 * this line names no other tasks.
 */
export const isNotice = (hidden: string): boolean =>
  hidden.startsWith(AUTOMATIC) && /^ (?:Task|Resume #\d+ of task) bg_.*\n/.test(hidden.slice(AUTOMATIC.length))

/** Hidden part without the list of running tasks, because the next notification repeats this list. */
export const withoutRunning = (hidden: string): string =>
  hidden.endsWith(LEFTOVERS) ? hidden.replace(STILL_RUNNING, "") : hidden

/** Notes to a parent's model about a task that has not ended. */

const MOST_NAMES = 10

/** Note that a task waits for an answer. `group`: that of a member; `until`: when the question is refused. */
export function askNote(
  task: Task,
  ask: Ask,
  { group, kind, until, now }: { group?: Task; kind?: GroupKind; until: number; now: number },
): Note {
  const who = group ? `${kind?.noun.one} ${(task.member?.nth ?? 0) + 1} of ${nameOf(group)}` : nameOf(task)
  const end = Number.isFinite(until)
    ? ` If nobody answers, it is refused at ${formatTime(until, now)}, and the agent goes on without it.`
    : ""
  return noteOf(
    task,
    "hint",
    `Background task ${who} waits for the user's answer to a ${ask.kind}: ${oneLine(ask.what)}.${end} Tell the user when you next speak to them. superagents_output(task_id="${(group ?? task).id}") shows whether it still waits.`,
  )
}

/** Note that a merge was cut off by a crash and no longer applies. */
export const cutOffMergeNote = (task: Task, merge: Merge, may: MayDo): Note =>
  noteOf(
    task,
    "merge",
    `OpenCode was stopped while the work of background task ${nameOf(task)} was merged into your files, and the rest of it no longer fits to what was changed since: ${named(merge.files, MOST_NAMES)}. Each file is as it was, or as it was merged; nothing more was touched. ${conflictAdvice(task, merge, may)} Tell the user when you next speak to them.`,
  )

const noteOf = (task: Task, kind: MessageKind, text: string): Note => ({
  task,
  kind,
  at: task.run.startedAt ?? 0,
  text,
})
