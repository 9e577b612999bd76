import { count, formatInteger, head, inTagsWithID, oneLine } from "../lib/text.ts"
import { isLong } from "./outcome.ts"
import { newestOf, type Pause, pauseOf } from "./pause.ts"
import { endedUnanswered, isActive, isQueued, isUnmerged, nameOf as named, type Reason, type Task } from "./task.ts"

/**
 * Tasks that wait for other tasks. All facts are derived from the tasks themselves: no second state can get out of
 * step.
 */

/** Longest part of one answer in the prompt of a task that waited for the answer, in UTF-16 units. */
export const MOST_ANSWER_CHARS = 8000
/** Longest total of all answers in the prompt of a task that waited for them, in UTF-16 units. */
const MOST_ANSWERS_CHARS = 60_000

type Find = (id: string) => Task | undefined

/** Ids of the tasks that a run still waits for, in the order given; empty once the run may begin. */
export function waitsFor(task: Task, find: Find): readonly string[] {
  if (!isQueued(task)) return []
  return (task.run.after ?? []).filter((id) => find(id)?.status !== "completed")
}

/**
 * A task that can never begin, and the reason. `wakes` is false where the parent caused this itself and need not be
 * woken.
 */
export type StrandedTask = { readonly task: Task; readonly reason: Reason; readonly wakes: boolean }

/**
 * Tasks that can never begin because a task they wait for did not complete or was cleared, and the tasks that wait for
 * them. Each task comes after the task that strands it.
 */
export function stranded(tasks: readonly Task[], find: Find): readonly StrandedTask[] {
  const found = new Map<string, StrandedTask>()
  for (let news: readonly StrandedTask[] | undefined; news?.length !== 0; ) {
    news = tasks.flatMap((task) => {
      const cause = found.has(task.id) ? undefined : causeFor(task, find, found)
      return cause ? { task, ...cause } : []
    })
    for (const each of news) found.set(each.task.id, each)
  }
  return [...found.values()]
}

function causeFor(
  task: Task,
  find: Find,
  found: ReadonlyMap<string, StrandedTask>,
): { reason: Reason; wakes: boolean } | undefined {
  for (const id of waitsFor(task, find)) {
    const other = find(id)
    const before = found.get(id)
    const fate = before ? "was cancelled" : whyNeverCompletes(other)
    if (!fate) continue
    const text = `It never began: it waited for ${nameOf(id, other)}, which ${fate}.`
    return { reason: { code: "after", text }, wakes: before?.wakes ?? !endedByParent(other) }
  }
  return undefined
}

/** True where the parent cancelled or cleared the task: the parent need not be woken. */
const endedByParent = (task: Task | undefined): boolean =>
  task?.outcome?.reason?.code === "cancelled" || task?.outcome?.reason?.code === "parent-ended"

/** Why a task can no longer complete; undefined where it can. */
export function whyNeverCompletes(task: Task | undefined): string | undefined {
  if (!task) return "was cleared"
  if (task.status === "error") return "failed"
  return task.status === "cancelled" ? "was cancelled" : undefined
}

const nameOf = (id: string, task: Task | undefined): string => (task ? named(task) : id)

/** `gone`: the answer was deleted with its session. `rows`: file with all rows, where the text consists of rows. */
export type DependencyAnswer = {
  readonly task: Task
  readonly text: string
  readonly gone?: boolean
  readonly rows?: string
}

/**
 * Prompt of a run that waited for other tasks, after the answers of these tasks. Each answer is data between tags that
 * its text cannot close. `isElsewhere`: the run has a place of its own, where it cannot read the files of its parent.
 */
export function withAnswers(prompt: string, answers: readonly DependencyAnswer[], isElsewhere = false): string {
  if (answers.length === 0) return prompt
  const share = shareOf(answers.map(({ text }) => text.length))
  const pieces = answers.map(({ task, text, gone, rows }) => {
    const { value, group } = task.outcome ?? {}
    const isKept = isUnmerged(task) || group?.unmerged !== undefined
    const unmerged = isKept ? " (its changes are not merged: you do not have them)" : ""
    if (!isElsewhere && value?.valid && value.file && isLong(text))
      return `${named(task)}${unmerged}: ${formatInteger(text.length)} characters of JSON, in ${value.file}`
    if (!isElsewhere && rows !== undefined)
      return `${named(task)}${unmerged}:\n${wholeRows(rows, text, share, task.id)}`
    const shown = head(text, share)
    const before =
      endedUnanswered(task) && text !== "" ? " (it ended without an answer; this is earlier text of it)" : ""
    const cut = shown.length < text.length ? ` (the first ${shown.length} of ${text.length} characters)` : ""
    const nothing = gone ? "(its session was deleted, and its answer with it)" : "(it ended without any text)"
    const body = text === "" ? nothing : inTagsWithID("task_answer", task.id, shown)
    return `${named(task)}${unmerged}${before}${cut}:\n${body}`
  })
  return `The answers of ${count(answers.length, "agent")} that worked before you, as data:\n\n${pieces.join("\n\n")}\n\nYour task:\n\n${prompt}`
}

/** Returns as many whole rows as fit. Where rows are left out, the text names the file with all rows. */
function wholeRows(file: string, text: string, share: number, id: string): string {
  const fitting = text.length <= share ? text : head(text, share).replace(/\n[^\n]*$/, "")
  const rows = inTagsWithID("task_answer", id, fitting)
  return fitting.length < text.length ? `${rows}\nThese are not all rows; all are in ${file}.` : rows
}

/** Characters allowed for each answer. Short answers leave the characters that they do not need to the long ones. */
function shareOf(lengths: readonly number[]): number {
  let left = MOST_ANSWERS_CHARS
  let share = MOST_ANSWER_CHARS
  for (const [index, length] of lengths.toSorted((a, b) => a - b).entries()) {
    share = Math.min(MOST_ANSWER_CHARS, Math.floor(left / (lengths.length - index)))
    left -= Math.min(length, share)
  }
  return share
}

export type BatchProgress = { readonly done: number; readonly total: number; readonly running: number }

export const batchKeyOf = (name: string): string => `name:${name}`

export const batchName = (key: string): string | undefined =>
  key.startsWith("name:") ? key.slice("name:".length) : undefined

/** Name of the task's batch for a reader; undefined where nobody named the batch. */
export function batchText({ batch }: Pick<Task, "batch">): string | undefined {
  const name = batchName(batch)
  return name === undefined ? undefined : oneLine(name)
}

/**
 * The batch that a new task joins: the named batch, else the unnamed batch with a running task of its session, else a
 * new batch.
 */
export function batchFor(name: string | undefined, taskID: string, siblings: Iterable<Task>): string {
  if (name !== undefined) return batchKeyOf(name)
  for (const task of siblings) if (isActive(task) && batchName(task.batch) === undefined) return task.batch
  return `auto:${taskID}`
}

export function batchProgress(key: string, tasks: Iterable<Task>): BatchProgress {
  let total = 0
  let running = 0
  for (const task of tasks) {
    if (task.batch !== key) continue
    total++
    if (isActive(task)) running++
  }
  return { done: total - running, total, running }
}

/**
 * Newest among the task's own pause and the pauses of `others` with the same cause. Undefined where the task is not
 * paused.
 */
export function pauseAmong(task: Task, others: Iterable<Task>): Pause | undefined {
  const pause = isActive(task) ? pauseOf(task.run) : undefined
  if (!pause) return undefined
  return newestOf(
    pause,
    [...others].flatMap((other) => (isActive(other) ? (pauseOf(other.run) ?? []) : [])),
  )
}

/**
 * Time since when all active tasks are paused or wait for paused children. Undefined where a task is at work, or no
 * task is active.
 */
export function allPausedSince(tasks: readonly Task[]): number | undefined {
  const times = tasks.flatMap((task) => {
    return isActive(task) && !isQueued(task) ? [task.run.stoppedSince ?? Number.POSITIVE_INFINITY] : []
  })
  const since = Math.max(...times)
  return Number.isFinite(since) ? since : undefined
}
