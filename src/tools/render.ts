import { duration } from "../core/duration.ts"
import { addUsage, billedTokens, isActive, NO_USAGE, type Task, type Usage } from "../core/task.ts"
import type { Report } from "../manager/task-manager.ts"
import type { TaskView } from "../manager/view.ts"
import type { ToolResult } from "./tool.ts"

/** The host cuts tool output at 2,000 lines or 50 KB; an answer is cut before that, and says how to read on. */
export const MOST_ANSWER_CHARS = 32_000
const MOST_ANSWER_LINES = 1900
const MOST_ANSWER_BYTES = 46_000
const LATEST_TEXT_CHARS = 1000
const MOST_FILES = 50

export function renderLaunch({ view, reused }: { view: TaskView; reused: boolean }): ToolResult {
  const { task } = view
  const head = reused
    ? `An identical task was launched before; this is that one: it is ${statusOf(view)}.`
    : `Background task launched${view.phase === "queued" ? `; it waits for a free slot (place ${view.place})` : ""}.`
  const lines = [head, `Task ID: ${task.id}`, `Agent: ${task.agent}${modelOf(task)}`, ...forkLines(task)]
  const next = isActive(task)
    ? "Go on with other work. You will be told when it ends; do not wait for it in a loop."
    : `Fetch its answer with superagents_output(task_id="${task.id}").`
  return result(task.description, [...lines, "", next], view)
}

export function renderResume(view: TaskView): ToolResult {
  const { task } = view
  const lines = [
    `Resume #${task.run.generation} of task ${task.id} (${task.description}) ${view.phase === "queued" ? "waits for a free slot" : "started"}.`,
    `Agent: ${task.agent}${modelOf(task)}, with its whole history.`,
    "",
    "Go on with other work. You will be told when it ends; do not wait for it in a loop.",
  ]
  return result(task.description, lines, view)
}

/** A task with its facts in a short head and, if it has ended, its answer from character `offset` on. */
export function renderOutput({ view, answer }: Report, offset: number): ToolResult {
  const { task } = view
  const head = [
    `Task: ${marked(task)} ${task.description}`,
    `Agent: ${task.agent}${modelOf(task)}`,
    `Status: ${statusOf(view)}`,
    `Time: ${duration(view.elapsed)}${view.waited >= 1000 ? ` (after ${duration(view.waited)} in the queue)` : ""}`,
    `Tool calls: ${view.toolCalls}${view.recentTools.length > 0 ? ` (last: ${view.recentTools.join(", ")})` : ""}`,
    `Usage: ${usageText(view.usage)}`,
    ...forkLines(task),
  ]
  const body = answer === undefined ? runningLines(view) : endedLines(task, answer, offset)
  return result(task.description, [...head, ...body], view)
}

export function renderList(views: readonly TaskView[], droppedUnread: number): ToolResult {
  if (views.length === 0) return { title: "No background tasks", output: "No background tasks found" }
  const running = views.filter(({ task }) => isActive(task)).length
  const total = views.reduce((sum, view) => addUsage(sum, view.usage), NO_USAGE)
  const lines = views.map(row)
  const calls = views.reduce((sum, view) => sum + view.toolCalls, 0)
  lines.push(`${count(views.length, "task")}, ${running} running | ${count(calls, "tool call")} | ${usageText(total)}`)
  if (droppedUnread > 0)
    lines.push(`${count(droppedUnread, "older task")} that nobody had read left this list (option maxHistory).`)
  return { title: `${count(views.length, "task")}, ${running} running`, output: lines.join("\n") }
}

export function renderCancelled(views: readonly TaskView[]): ToolResult {
  if (views.length === 0) return { title: "Nothing to cancel", output: "No task was running; nothing was cancelled." }
  const lines = views.map(({ task, elapsed }) => `- ${task.id} ${task.description} (after ${duration(elapsed)})`)
  return {
    title: `Cancelled ${views.length}`,
    output: [`Cancelled ${count(views.length, "task")}:`, ...lines].join("\n"),
  }
}

export function renderCleared({ cleared, stopped }: { cleared: number; stopped: number }): ToolResult {
  if (cleared === 0) return { title: "Nothing to clear", output: "No background tasks found" }
  const extra = stopped > 0 ? ` ${count(stopped, "running one")} ${stopped === 1 ? "was" : "were"} stopped first.` : ""
  return { title: `Cleared ${cleared}`, output: `Cleared ${count(cleared, "background task")}.${extra}` }
}

/** What the model must still know of its tasks when its conversation is compacted; empty where there are none. */
export function renderForCompaction(views: readonly TaskView[]): string {
  if (views.length === 0) return ""
  const lines = views.map((view) => {
    const { task } = view
    const fetched = isActive(task)
      ? ""
      : task.retrievedAt === undefined
        ? ", answer not fetched yet"
        : ", answer fetched"
    return `- ${task.id} ${task.description} (${task.agent}): ${statusOf(view)}${fetched}`
  })
  return [
    "Background tasks of this session (keep their ids in the summary):",
    ...lines,
    "A message tells when a running one ends; superagents_output(task_id) fetches an answer.",
  ].join("\n")
}

/** `12,345 tokens, $0.0123`. */
export const usageText = (usage: Usage): string =>
  `${billedTokens(usage).toLocaleString("en-US")} tokens, $${usage.cost.toFixed(4)}`

/** Figures of an ended task for the model, in its notification. */
export const usageLine = (view: TaskView): string =>
  `It used ${count(view.toolCalls, "tool call")} and ${usageText(view.usage)}.`

function row(view: TaskView): string {
  const { task } = view
  const cells = [
    `${marked(task)} ${task.description}`,
    task.agent,
    statusOf(view),
    duration(view.elapsed),
    count(view.toolCalls, "tool call"),
    usageText(view.usage),
  ]
  return cells.join(" | ")
}

function marked(task: Task): string {
  return `${task.id}${task.fork ? " (forked)" : ""}${task.run.generation > 0 ? " (resumed)" : ""}`
}

function statusOf(view: TaskView): string {
  const { task, phase } = view
  if (phase === undefined) return task.status
  if (phase === "queued") return `${task.status}, queued (place ${view.place})`
  if (view.retry) return `${task.status}, retrying (attempt ${view.retry.attempt}: ${view.retry.message})`
  const ask = view.asks[0]
  return ask ? `${task.status}, ${phase} (${ask.what})` : `${task.status}, ${phase}`
}

function forkLines({ fork }: Task): string[] {
  if (!fork) return []
  const cuts = [
    ...(fork.droppedMessages > 0 ? [`${count(fork.droppedMessages, "older message")} dropped`] : []),
    ...(fork.cutResults > 0 ? [`${count(fork.cutResults, "tool result")} cut`] : []),
  ]
  return [
    `Inherited: ${count(fork.messages, "message")}, about ${fork.tokens.toLocaleString("en-US")} tokens${cuts.length > 0 ? `; ${cuts.join(", ")}` : ""}`,
  ]
}

function runningLines(view: TaskView): string[] {
  const lines = view.lastSignAt === undefined ? [] : [`Last sign of life: ${new Date(view.lastSignAt).toISOString()}`]
  const asks = view.asks.map((ask) => `Waits for an answer from the user (${ask.kind}): ${ask.what}`)
  const text = view.lastText.trim()
  const latest = text.length > LATEST_TEXT_CHARS ? `…${text.slice(-LATEST_TEXT_CHARS)}` : text
  return [
    ...lines,
    ...asks,
    ...(latest === "" ? [] : ["Latest text:", wrapped(latest, view.task.id)]),
    "",
    "It is still running. You will be told when it ends; do not ask again until then.",
  ]
}

function endedLines(task: Task, answer: string, offset: number): string[] {
  const { outcome } = task
  const files = outcome?.filesChanged ?? []
  const facts = [
    ...(outcome?.reason ? [`Reason: ${outcome.reason.text}`] : []),
    ...(outcome?.note ? [`Note: ${outcome.note}`] : []),
    ...(outcome && outcome.openTodos > 0 ? [`Todos left open: ${outcome.openTodos}`] : []),
    ...(files.length > 0 ? [`Files changed: ${fileList(files)}`] : []),
    ...(outcome?.reason?.code === "interrupted" ? [INTERRUPTED_ADVICE] : []),
  ]
  if (answer === "")
    return [...facts, "", task.status === "completed" ? "The agent ended without any text." : "It had written no text."]
  if (offset >= answer.length)
    return [...facts, "", `Nothing at offset ${offset}: the answer has ${answer.length} characters.`]
  const shown = slice(answer, offset)
  const end = offset + shown.length
  const range = end < answer.length || offset > 0 ? [`Characters ${offset} to ${end} of ${answer.length}.`] : []
  const more = end < answer.length ? [`The answer goes on: read on with offset=${end}.`] : []
  const title = task.status === "completed" ? "Answer:" : "Text it had written:"
  return [...facts, ...range, "", title, wrapped(shown, task.id), ...more]
}

const INTERRUPTED_ADVICE = "To go on: launch the task again, and tell the agent what is done already."

/** As much of the answer as one tool result can hold, in whole characters. */
function slice(answer: string, offset: number): string {
  const chars = answer.slice(offset, offset + MOST_ANSWER_CHARS)
  const lines = withinBytes(chars).split("\n")
  const cut = lines.slice(0, MOST_ANSWER_LINES).join("\n")
  const last = cut.charCodeAt(cut.length - 1)
  const halfPair = last >= 0xd800 && last <= 0xdbff && offset + cut.length < answer.length
  return halfPair ? cut.slice(0, -1) : cut
}

/** As much of the text as the byte limit allows: scripts other than Latin take several bytes a character. */
function withinBytes(text: string): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(MOST_ANSWER_BYTES))
  return text.slice(0, read)
}

/** A child's text between tags that it cannot close itself: it is data, not instruction. */
function wrapped(text: string, id: string): string {
  const safe = text.replaceAll(/<(\s*\/?\s*task_output)/gi, "&lt;$1")
  return `<task_output id="${id}">\n${safe}\n</task_output>`
}

function fileList(files: readonly string[]): string {
  const shown = files.slice(0, MOST_FILES).join(", ")
  return files.length > MOST_FILES ? `${shown} and ${files.length - MOST_FILES} more` : shown
}

const modelOf = ({ model }: Task): string => (model ? ` (${model.provider}/${model.id})` : "")

const count = (number: number, what: string): string =>
  `${number.toLocaleString("en-US")} ${what}${number === 1 ? "" : "s"}`

function result(title: string, lines: readonly string[], view: TaskView): ToolResult {
  const { task } = view
  return {
    title,
    output: lines.join("\n"),
    metadata: { taskId: task.id, sessionId: task.sessionID, status: task.status },
  }
}
