import { cents, formatTime, spentShort } from "../../../lib/format.ts"
import { capital, count, formatInteger, oneLine } from "../../../lib/text.ts"

/** This module makes a purse's report from records, without a model. */

/** Results that a task can have in a report. The result of a paused task is `parked`. */
const RESULTS = ["done", "partial", "blocked", "parked", "not begun"] as const

export type PurseResult = (typeof RESULTS)[number]

export type ReportTask = {
  readonly id: string
  readonly title: string
  readonly result: PurseResult
  /** Runs that the purse paid, in whole or in part. */
  readonly runs: number
  readonly tokens: number
  /** Cost of the task that the purse paid, in US dollars. The report's `spent` is the sum of these costs. */
  readonly cost: number
  /** Set if a step of unknown cost was aborted: the task has cost at least `cost`. */
  readonly atLeast?: true
  /**
   * By result: receipt of done work, progress and last word of partial work, question of a blocked task, or end of a
   * pause.
   */
  readonly text?: string
  /** Text on how the task goes on, for example `next step: …`; absent for an archived task. */
  readonly next?: string
}

export type PurseReport = {
  readonly max: number
  readonly until: string
  readonly openedAt: string
  readonly endedAt: string
  readonly why: "closed" | "time" | "money" | "nothing left"
  readonly spent: number
  /** Set if a step of unknown cost was aborted: the purse has spent at least `spent`. */
  readonly atLeast?: true
  readonly tasks: readonly ReportTask[]
}

/** Stored report, named by the minute in which the purse ended. */
export type StoredReport = PurseReport & { readonly name: string }

/** Report without its tasks, for lists. */
export type ReportHead = Omit<StoredReport, "tasks"> & { readonly tasks: number }

/** Report with its text. */
export type NamedReport = StoredReport & { readonly text: string }

const REASONS: Readonly<Record<PurseReport["why"], string>> = {
  closed: "it was closed",
  time: "its time was over",
  money: "its money was used up",
  "nothing left": "no task could go on",
}

const MOST_TEXT_CHARS = 600

/** Rounds an amount to a millionth of a dollar, which removes rounding errors of sums. */
const exact = (amount: number): number => Number(amount.toFixed(6))

export function reportOf(head: Omit<PurseReport, "spent" | "tasks">, tasks: readonly ReportTask[]): PurseReport {
  const rows = tasks.map((task) => ({
    ...task,
    cost: exact(task.cost),
    ...(task.text !== undefined && { text: shown(task.text) }),
    ...(task.next !== undefined && { next: shown(task.next) }),
  }))
  return { ...head, spent: exact(rows.reduce((sum, { cost }) => sum + cost, 0)), tasks: rows }
}

/** Example: `Purse: $4.37 of $5.00`. */
export const titleOf = ({ spent, max, atLeast }: PurseReport): string => `Purse: ${spentShort(spent, max, atLeast)}`

/** Example: `5 done, 2 partial, 1 blocked`. */
export function countsOf({ tasks }: PurseReport): string {
  const counts = RESULTS.flatMap((result) => {
    const many = tasks.filter((task) => task.result === result).length
    return many > 0 ? [`${many} ${result}`] : []
  })
  return counts.length === 0 ? "no task was active" : counts.join(", ")
}

/** The report as Markdown. */
export function reportText(report: PurseReport): string {
  const { spent, max, atLeast, openedAt, endedAt, why, tasks } = report
  // The day of a time is shown only if it differs from the day of the end.
  const time = (at: string) => formatTime(Date.parse(at), Date.parse(endedAt))
  const head = `Spent ${spentShort(spent, max, atLeast)}, ${time(openedAt)} to ${time(endedAt)}: ${REASONS[why]}.`
  const sections = RESULTS.flatMap((result) => {
    const own = tasks.filter((task) => task.result === result)
    return own.length === 0 ? [] : [section(capital(result), own.map(lineOf))]
  })
  const next = tasks.flatMap(({ id, next }) => (next === undefined ? [] : [`#${id}: ${next}`]))
  const sums = [
    tasks.reduce((sum, { runs }) => sum + runs, 0),
    tasks.reduce((sum, { tokens }) => sum + tokens, 0),
  ] as const
  const last = `In all: ${countsOf(report)}; ${count(sums[0], "run")}, ${formatInteger(sums[1])} tokens, ${cents(spent, atLeast)}.`
  return [head, ...sections, ...(next.length > 0 ? [section("Still open", next)] : []), last].join("\n\n")
}

const section = (title: string, lines: readonly string[]): string =>
  [`## ${title}`, "", ...lines.map((line) => `- ${line}`)].join("\n")

function lineOf({ id, title, cost, atLeast, runs, text }: ReportTask): string {
  const took = runs === 0 && cost === 0 ? "" : `: ${cents(cost, atLeast)}, ${count(runs, "run")}`
  return `#${id} ${oneLine(title)}${took}.${text ? ` ${text}` : ""}`
}

const shown = (text: string): string => oneLine(text, MOST_TEXT_CHARS)
