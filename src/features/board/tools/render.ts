import type { ToolResult } from "../../../core/ports.ts"
import { count, cut, oneLine } from "../../../lib/text.ts"
import type { Archived, Board } from "../service.ts"
import { type BoardTask, headOf, MOST_VALUE_CHARS, shownStatus, toModel } from "../task.ts"
import { beginning, linkText } from "../threads.ts"
import type { AgentActor } from "./access.ts"

/** Texts for models. Indexes are shown wherever a further call needs them. */

/** Most characters of a description, or of a step's details, where a task is not shown as a whole. */
const MOST_TEXT_CHARS = 500

/**
 * Answer to a call that changed a task. In the task's own thread the answer is short, because the request contains the
 * task.
 */
export async function renderTask(board: Board, task: BoardTask, head: string, by: AgentActor): Promise<ToolResult> {
  if (by.sessionID !== task.threadId) return renderWhole(board, task, head, MOST_TEXT_CHARS)
  return { title: titleOf(task), output: `${head} The task as it is now stands in this request.` }
}

/** The whole task; texts longer than `most` are cut. */
export async function renderWhole(
  board: Board,
  task: BoardTask,
  head = "",
  most = Number.POSITIVE_INFINITY,
): Promise<ToolResult> {
  const { description, owner, createdBy, steps, resources, status, archivedAt, threadId } = task
  const [shown, state] = [shownStatus(status), toModel(board.state(task))]
  const subtask = await board.subtasksIn(task)
  const detailsOf = (details: string) =>
    details.length > most ? oneLine(details, most) : details.replaceAll("\n", "\n   ")
  const lines = [
    head,
    headOf(task),
    `Status: ${shown}${state === shown ? "" : `, ${state}`}. Owner: ${oneLine(owner)}. Created by: ${oneLine(createdBy)}.`,
    ...(archivedAt === undefined ? [] : [`Archived: ${archivedAt}`]),
    ...(threadId === undefined ? [] : [`Thread: ${threadId}`]),
    ...(description === "" ? [] : [`Description:\n${beginning(description, most)}`]),
    steps.length === 0 ? "Steps: none" : "Steps:",
    ...steps.flatMap(({ title, details, done, taskId }, index) => [
      `${index}. [${done ? "x" : " "}] ${oneLine(title)}${taskId === undefined ? "" : ` -> ${linkText(taskId, subtask)}`}`,
      ...(details ? [`   ${detailsOf(details)}`] : []),
    ]),
    resources.length === 0 ? "Resources: none" : "Resources:",
    ...resources.map(
      ({ type, value, label }, index) =>
        `${index}. ${type} ${oneLine(value, MOST_VALUE_CHARS)}${label ? ` (${oneLine(label)})` : ""}`,
    ),
  ]
  return { title: titleOf(task), output: lines.filter((line) => line !== "").join("\n") }
}

const titleOf = ({ id, title }: BoardTask): string => `#${id} ${oneLine(title, 80)}`

export function renderArchived({ task, canceled, open }: Archived): ToolResult {
  const named = (tasks: readonly BoardTask[]) => tasks.map(({ id, title }) => `#${id} ${oneLine(title, 60)}`).join(", ")
  const lines = [
    `Task #${task.id} is ${shownStatus(task.status)} and stands in history now.`,
    ...(canceled.length > 0 ? [`Cancelled with it: ${named(canceled)}.`] : []),
    ...(open.length > 0
      ? [`Its subtasks go on, and nobody is told of their end: ${named(open)}. Cancel what is not needed.`]
      : []),
  ]
  return { title: `#${task.id} ${shownStatus(task.status)}`, output: lines.join("\n") }
}

/** List of open tasks. `agent`: owner of all these tasks; undefined for the whole board. */
export function renderList(board: Board, tasks: readonly BoardTask[], agent?: string): ToolResult {
  const ownerOf = ({ owner }: BoardTask) => (agent === undefined ? ` (owner ${oneLine(owner, 60)})` : "")
  const lines = tasks.map((task) => `${row(task)} ${toModel(board.state(task))}${ownerOf(task)}`)
  const whose = agent === undefined ? "on the board" : `of "${agent}"`
  const none = agent === undefined ? "No task is open." : `No open task is owned by "${agent}".`
  const head = tasks.length === 0 ? none : `${count(tasks.length, "open task")} ${whose}:`
  const lost = board.lost().length
  const gone = `The board's file has gone, with ${count(lost, "open task")}. A copy is kept; only the user can bring it back, by /board.`
  return { title: count(tasks.length, "task"), output: [head, ...lines, ...(lost > 0 ? [gone] : [])].join("\n") }
}

export function renderHistory(tasks: readonly BoardTask[]): ToolResult {
  const lines = tasks.map(
    (task) => `${row(task)} ${shownStatus(task.status)} ${task.archivedAt} (owner ${oneLine(task.owner, 60)})`,
  )
  return {
    title: count(tasks.length, "task"),
    output: tasks.length === 0 ? "No task has ended yet." : lines.join("\n"),
  }
}

function row({ id, title, steps }: BoardTask): string {
  const done = steps.filter((step) => step.done).length
  return `#${id} ${cut(oneLine(title), 100)} ${steps.length === 0 ? "no plan" : `${done}/${steps.length}`}`
}
