import { batchText } from "../core/dependencies.ts"
import { CallError, listed } from "../core/errors.ts"
import { pauseText } from "../core/pause.ts"
import type { ToolResult } from "../core/ports.ts"
import type { SpendingLimits } from "../core/spending.ts"
import {
  addFigures,
  agentName,
  isActive,
  isUnmerged,
  NO_FIGURES,
  nameOf,
  type Status,
  type Task,
  type Usage,
} from "../core/task.ts"
import { grouped } from "../lib/collections.ts"
import { duration, spentOf } from "../lib/format.ts"
import { count, inTagsWithID, oneLine } from "../lib/text.ts"
import {
  firstLines,
  fitting,
  MOST_ANSWER_BYTES,
  MOST_ANSWER_LINES,
  markedID,
  mergeLines,
  statusOf,
  stillRunning,
} from "./output.ts"
import { type MayDo, noText, summaryOf, workSummary } from "./summary.ts"
import type { Cleared, Report, TaskView } from "./view.ts"
import { usageText } from "./words.ts"

const MOST_REASON_CHARS = 120

const NOTHING = "No background tasks found"

/**
 * Usage with its limits: of all tasks of the session, even those not shown, and of the project in the last 24 hours.
 */
export type ListTotals = { readonly session: Usage; readonly day: Usage; readonly limits: SpendingLimits }

/** One row for each task, and their total; `bill` where there are limits. */
export function renderList(views: readonly TaskView[], droppedUnread: number, bill?: ListTotals): ToolResult {
  if (views.length === 0) return { title: "No background tasks", output: NOTHING }
  const sum = views.reduce((figures, { whole }) => addFigures(figures, whole), NO_FIGURES)
  const title = titleOf(views)
  const sums = [title, count(sum.toolCalls, "tool call"), ...(bill ? billTexts(bill) : [usageText(sum)])]
  const lines = [...views.map(row), [...sums, ...pauseTexts(views)].filter(Boolean).join(" | ")]
  if (droppedUnread > 0)
    lines.push(`${count(droppedUnread, "older task")} dropped unread from this list (option maxHistory).`)
  return { title, output: lines.join("\n") }
}

function titleOf(views: readonly TaskView[]): string {
  const running = views.filter(({ task }) => isActive(task)).length
  const failed = views.filter(({ task }) => task.status === "error").length
  return `${count(views.length, "task")}, ${running} running${failed > 0 ? `, ${failed} failed` : ""}`
}

/** Counts paused tasks by cause. Example: `12 parked until 07:12 (mock/one)`. */
function pauseTexts(views: readonly TaskView[]): readonly string[] {
  const paused = views.flatMap(({ pause, at }) => (pause ? { behind: pause.waitsFor, text: pauseText(pause, at) } : []))
  return [...grouped(paused, ({ behind }) => behind)].map(
    ([behind, alike]) => `${alike.length} ${alike[0].text} (${oneLine(behind)})`,
  )
}

/** Text where a filter matches none of `all` tasks. */
export function renderNone({ status, batch }: { status?: Status; batch?: string }, all: number): ToolResult {
  const filters = [...(status ? [`status "${status}"`] : []), ...(batch ? [`batch "${oneLine(batch)}"`] : [])]
  const output = `${NOTHING} with ${filters.join(" and ")}; this session has ${count(all, "task")} in all.`
  return { title: "No background tasks", output }
}

function billTexts({ session, day, limits }: ListTotals): readonly string[] {
  const { maxTokensPerSession: tokens, maxCostPerSession: cost, maxCostPerDay } = limits
  const whole = usageText({ usage: session }, { tokens, cost })
  return maxCostPerDay > 0 ? [whole, `last 24 hours ${spentOf(day.cost, maxCostPerDay, day.atLeast)}`] : [whole]
}

/**
 * `batch`: the batch that was to be cancelled; `running`: the session's tasks still at work; `left`: how many of the
 * selected ones another process runs.
 */
export function renderCancelled(
  views: readonly TaskView[],
  { batch, running = [], left = 0 }: { batch?: string; running?: readonly TaskView[]; left?: number } = {},
): ToolResult {
  if (views.length === 0) {
    const none = `No task ${batch === undefined ? "" : `of batch "${oneLine(batch)}" `}was running; nothing was cancelled.`
    const others = running.length > 0 ? ` Still running: ${listed(running.map(({ task }) => nameOf(task)))}.` : ""
    return { title: "Nothing to cancel", output: `${none}${others}` }
  }
  const merging = views.filter(({ task }) => task.status === "completed")
  const cancelled = views.filter((view) => !merging.includes(view))
  const lines = [
    ...(cancelled.length > 0 ? [`Cancelled ${count(cancelled.length, "task")}:`] : []),
    ...cancelled.map(cancelledLine),
    ...merging.map(stoppedLine),
    ...foreignLines(left, "cancel"),
  ]
  const title = cancelled.length > 0 ? `Cancelled ${cancelled.length}` : `Stopped ${count(merging.length, "merge")}`
  return { title, output: lines.join("\n") }
}

function cancelledLine({ task, elapsed }: TaskView): string {
  const isStranded = task.outcome?.reason?.code === "after"
  const when = elapsed === 0 ? "before it began" : `after ${duration(elapsed)}`
  return `- ${task.id} ${oneLine(task.description)} (${isStranded ? "it waited for one of these" : when})`
}

/** A completed task whose merge was stopped. */
const stoppedLine = ({ task, groupKind }: TaskView): string =>
  [
    `${nameOf(task)} had completed; what was still done to merge its work was stopped.`,
    ...workSummary(task, groupKind),
  ].join("\n")

export function renderCleared({ cleared, stopped, unmerged = [], left = 0 }: Cleared): ToolResult {
  if (cleared + left === 0) return { title: "Nothing to clear", output: NOTHING }
  const extra = stopped > 0 ? ` ${count(stopped, "running one")} ${stopped === 1 ? "was" : "were"} stopped first.` : ""
  const kept =
    unmerged.length > 0
      ? ` Work that was not merged is kept in the repository: ${unmerged.map((id) => `refs/superagents/${id}`).join(", ")}.`
      : ""
  return {
    title: `Cleared ${cleared}`,
    output: [`Cleared ${count(cleared, "background task")}.${extra}${kept}`, ...foreignLines(left, "clear")].join(" "),
  }
}

function foreignLines(left: number, what: "cancel" | "clear"): string[] {
  if (left === 0) return []
  const [belong, them] = left === 1 ? ["belongs", "it"] : ["belong", "them"]
  return [`${left} more ${belong} to another OpenCode process: only the user can ${what} ${them}, there.`]
}

/** Lists the tasks that the model must remember after a compaction; empty without tasks. */
export function renderForCompaction(views: readonly TaskView[]): string {
  if (views.length === 0) return ""
  return [
    "Background tasks of this session (keep their ids in the summary):",
    ...views.map(kept),
    "A message tells when a running one ends; superagents_output(task_id) fetches an answer.",
  ].join("\n")
}

const kept = (view: TaskView): string => {
  const { description, agent } = view.task
  return `- ${markedID(view)} ${oneLine(description)} (${oneLine(agent)}): ${statusOf(view)}${fetchedOf(view)}`
}

const fetchedOf = ({ task }: TaskView): string => {
  if (isActive(task)) return ""
  return task.retrievedAt === undefined ? ", answer not fetched yet" : ", answer fetched"
}

/** Reason of a failure, cut to fit a row. */
const failureOf = ({ status, outcome }: Task): string =>
  status === "error" && outcome?.reason ? ` (${oneLine(outcome.reason.text, MOST_REASON_CHARS)})` : ""

function row(view: TaskView): string {
  const { task, whole, elapsed } = view
  const name = batchText(task)
  const cells = [
    `${markedID(view)} ${oneLine(task.description)}`,
    oneLine(agentName(task)),
    `${statusOf(view)}${failureOf(task)}`,
    duration(elapsed),
    count(whole.toolCalls, "tool call"),
    usageText(whole),
    name && `batch ${name}`,
  ]
  return cells.filter(Boolean).join(" | ")
}

/** Smallest share of one task. */
const LEAST_SHARE_BYTES = 400
/** Lines of one task around its answer. */
const FRAME_LINES = 5

const TOLD = "You will be told when each ends. Do not ask again until then."

/** Most tasks named in the line about those left out, so that it takes at most 40,000 bytes. */
const MOST_LEFT_OUT = 1500

type Section = { readonly name: string; readonly text: string }

/** Chooses the sections that fit into one tool result, the first ones first. `rest`: line about those left out. */
function fittingSections<S extends Section>(sections: readonly S[]): { shown: readonly S[]; rest: readonly string[] } {
  const namesOf = (some: readonly S[]) =>
    listed(
      some.map(({ name }) => name),
      MOST_LEFT_OUT,
    )
  const [shown, leftOut]: [S[], S[]] = [[], []]
  let bytes = MOST_ANSWER_BYTES - Buffer.byteLength(namesOf(sections))
  let lines = MOST_ANSWER_LINES
  for (const section of sections) {
    const more = { bytes: Buffer.byteLength(section.text) + 2, lines: section.text.split("\n").length + 1 }
    const fits = more.bytes <= bytes && more.lines <= lines
    if (fits) [bytes, lines] = [bytes - more.bytes, lines - more.lines]
    ;(fits ? shown : leftOut).push(section)
  }
  const line = `Left out, since this result is full: ${namesOf(leftOut)}. superagents_output(task_id) shows each.`
  return { shown, rest: leftOut.length > 0 ? [line] : [] }
}

/**
 * Reports on the tasks of a batch: each with its summary and as much of its answer as fits into an equal share of the
 * space. `shown`: reports that the result has room for.
 */
export function renderOutputs(reports: readonly Report[]): { result: ToolResult; shown: readonly Report[] } {
  const heads = reports.map((report) => headOf(report).join("\n"))
  const facts = heads.join("\n")
  const shareOf = (most: number) => Math.floor(most / reports.length)
  const bytes = shareOf(MOST_ANSWER_BYTES - Buffer.byteLength(facts)) - LEAST_SHARE_BYTES
  const lines = shareOf(MOST_ANSWER_LINES - facts.split("\n").length) - FRAME_LINES
  const share = { bytes: Math.max(LEAST_SHARE_BYTES, bytes), lines: Math.max(1, lines) }
  const sections = reports.map((report, nth) => ({
    report,
    name: report.view.task.id,
    text: [heads[nth], ...answerOf(report, share)].join("\n"),
  }))
  const { shown, rest } = fittingSections(sections)
  const read = reports.filter(({ error }) => error === undefined)
  const running = read.filter(({ answer }) => answer === undefined).length
  const unread = reports.length - read.length
  const title = titleOf(read.map(({ view }) => view))
  return {
    result: {
      title: unread > 0 ? `${title}, ${unread} not read` : title,
      output: [...shown.map(({ text }) => text), ...rest, ...(running > 0 ? [TOLD] : [])].join("\n\n"),
    },
    shown: shown.map(({ report }) => report),
  }
}

function headOf({ view, may, error }: Report): string[] {
  const { task, elapsed, whole, groupKind } = view
  if (error !== undefined) return [`${nameOf(task)}: ${error}`]
  return [
    [`${nameOf(task)}: ${statusOf(view)}`, duration(elapsed), usageText(whole)].filter(Boolean).join(", "),
    ...summaryOf(task, groupKind, may),
  ]
}

function answerOf({ view, answer, gone, waited, error }: Report, share: { bytes: number; lines: number }): string[] {
  const { task, asks } = view
  if (error !== undefined) return []
  if (answer === undefined) {
    const open = asks.length > 0 ? " It waits for an answer from the user." : ""
    return [`${stillRunning(waited)}${open}`]
  }
  if (answer === "") return [noText(task, gone)]
  const shown = firstLines(fitting("task_output", answer, share.bytes), share.lines)
  const rest = `The answer goes on: superagents_output(task_id="${task.id}", offset=${shown.length}).`
  return [inTagsWithID("task_output", task.id, shown), ...(shown.length < answer.length ? [rest] : [])]
}

/** Results of merges by their tasks' ids. What was not merged comes first. */
export function renderMerges(results: ReadonlyMap<string, TaskView | CallError>, may: MayDo): ToolResult {
  if (results.size === 0) return { title: "Nothing to merge", output: "No item has completed: nothing to merge." }
  const sections = [...results].map(([id, result]) => {
    const isMerged = !(result instanceof CallError) && !isUnmerged(result.task, result.groupKind)
    const text = result instanceof CallError ? result.message : mergeLines(result, may).join("\n")
    return { name: isMerged ? id : `${id} (not merged)`, text, isMerged }
  })
  const merged = sections.filter(({ isMerged }) => isMerged)
  const { shown, rest } = fittingSections([...sections.filter(({ isMerged }) => !isMerged), ...merged])
  const title = `Merged ${merged.length} of ${results.size}`
  const counted = rest.length > 0 ? [`${title}.`] : []
  return { title, output: [...counted, ...shown.map(({ text }) => text), ...rest].join("\n\n") }
}
