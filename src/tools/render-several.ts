import { CallError } from "../core/errors.ts"
import { usageText } from "../core/figures.ts"
import { nameOf, noText, summaryOf, workSummary } from "../core/summary.ts"
import { isUnmerged } from "../core/task.ts"
import { duration } from "../lib/duration.ts"
import { count, inTagsWithID } from "../lib/text.ts"
import type { Report } from "../runtime/reports.ts"
import type { TaskView } from "../runtime/tasks/view.ts"
import { MOST_ANSWER_BYTES, statusOf, withinBytes } from "./render.ts"
import type { ToolResult } from "./tool.ts"

/** Smallest share of one task. */
const LEAST_SHARE_BYTES = 400

const TOLD = "You will be told when each ends. Do not ask again until then."

/** Reports of a batch: for each task its summary, and its answer within an equal share of the space. */
export function renderOutputs(reports: readonly Report[]): ToolResult {
  const heads = reports.map(headOf)
  const facts = heads.reduce((sum, lines) => sum + Buffer.byteLength(lines.join("\n")), 0)
  const share = Math.max(
    LEAST_SHARE_BYTES,
    Math.floor((MOST_ANSWER_BYTES - facts) / reports.length) - LEAST_SHARE_BYTES,
  )
  const parts = reports.map((report, nth) => [...(heads[nth] ?? []), ...answerOf(report, share)].join("\n"))
  const running = reports.filter(({ answer }) => answer === undefined).length
  const title = `${count(reports.length, "task")}, ${running} running`
  return { title, output: [...parts, ...(running > 0 ? [TOLD] : [])].join("\n\n") }
}

function headOf({ view, resumable }: Report): string[] {
  const { task, elapsed, whole } = view
  return [
    [`${nameOf(task)}: ${statusOf(view)}`, duration(elapsed), usageText(whole)].filter(Boolean).join(", "),
    ...summaryOf(task, resumable),
  ]
}

function answerOf({ view, answer, gone, waited }: Report, share: number): string[] {
  const { task, asks } = view
  if (answer === undefined) {
    const open = asks.length > 0 ? " It waits for an answer from the user." : ""
    return [`It is still running${waited === undefined ? "" : ` after a wait of ${duration(waited)}`}.${open}`]
  }
  if (answer === "") return [noText(task, gone)]
  const shown = withinBytes(answer, share)
  const rest = `The answer goes on: superagents_output(task_id="${task.id}", offset=${shown.length}).`
  return [inTagsWithID("task_output", task.id, shown), ...(shown.length < answer.length ? [rest] : [])]
}

/** Results of a batch's merges, in order. */
export function renderMerges(results: readonly (TaskView | CallError)[]): ToolResult {
  const lines = results.map((result) =>
    result instanceof CallError
      ? result.message
      : [`Task: ${nameOf(result.task)}`, ...workSummary(result.task)].join("\n"),
  )
  const merged = results.filter((result) => !(result instanceof CallError) && !isUnmerged(result.task)).length
  return { title: `Merged ${merged} of ${results.length}`, output: lines.join("\n\n") }
}
