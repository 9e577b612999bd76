import { count, cut, oneLine } from "../../lib/text.ts"
import type { ToolResult } from "../../tools/tool.ts"
import { beginning, linkText } from "../block.ts"
import type { Archived, Board } from "../service.ts"
import { type BoardTask, headOf } from "../task.ts"

/** Answers for a model. Indices are shown wherever they are needed for a further call. */

/** Of a description, and of a step's details, where only their beginning is shown. */
const MOST_TEXT_CHARS = 500

/** `whole`: with the whole of its long texts. */
export async function renderTask(
  board: Board,
  task: BoardTask,
  head: string,
  { whole = false } = {},
): Promise<ToolResult> {
  const { id, title, description, owner, createdBy, steps, resources, status, archivedAt, threadId } = task
  const state = board.state(task)
  const subtask = await board.subtasksIn(task)
  const lines = [
    head,
    headOf(task),
    `Status: ${status}${state.text === status ? "" : `, ${state.text}`}. Owner: ${oneLine(owner)}. Created by: ${oneLine(createdBy)}.`,
    ...(archivedAt === undefined ? [] : [`Archived: ${archivedAt}`]),
    ...(threadId === undefined ? [] : [`Thread: ${threadId}`]),
    ...(description === "" ? [] : [`Description:\n${whole ? description : beginning(description, MOST_TEXT_CHARS)}`]),
    steps.length === 0 ? "Steps: none" : "Steps:",
    ...steps.flatMap(({ title, details, done, taskId }, index) => [
      `${index}. [${done ? "x" : " "}] ${oneLine(title)}${taskId === undefined ? "" : ` -> ${linkText(taskId, subtask)}`}`,
      ...(details ? [`   ${whole ? details.replaceAll("\n", "\n   ") : oneLine(details, MOST_TEXT_CHARS)}`] : []),
    ]),
    resources.length === 0 ? "Resources: none" : "Resources:",
    ...resources.map(
      ({ type, value, label }, index) =>
        `${index}. ${type} ${oneLine(value, 2000)}${label ? ` (${oneLine(label)})` : ""}`,
    ),
  ]
  return { title: `#${id} ${oneLine(title, 80)}`, output: lines.filter((line) => line !== "").join("\n") }
}

export function renderArchived({ task, canceled, open }: Archived): ToolResult {
  const named = (tasks: readonly BoardTask[]) => tasks.map(({ id, title }) => `#${id} ${oneLine(title, 60)}`).join(", ")
  const lines = [
    `Task #${task.id} is ${task.status} and stands in history now.`,
    ...(canceled.length > 0 ? [`Canceled with it: ${named(canceled)}.`] : []),
    ...(open.length > 0
      ? [`Its subtasks go on, and nobody is told of their end: ${named(open)}. Cancel what is not needed.`]
      : []),
  ]
  return { title: `#${task.id} ${task.status}`, output: lines.join("\n") }
}

export function renderList(board: Board, tasks: readonly BoardTask[], agent: string): ToolResult {
  const lines = tasks.map((task) => `${row(task)} ${board.state(task).text}`)
  const head =
    tasks.length === 0 ? `No open task is owned by "${agent}".` : `${count(tasks.length, "open task")} of "${agent}":`
  return { title: count(tasks.length, "task"), output: [head, ...lines].join("\n") }
}

export function renderHistory(tasks: readonly BoardTask[]): ToolResult {
  const lines = tasks.map((task) => `${row(task)} ${task.status} ${task.archivedAt} (owner ${oneLine(task.owner, 60)})`)
  return {
    title: count(tasks.length, "task"),
    output: tasks.length === 0 ? "No task has ended yet." : lines.join("\n"),
  }
}

function row({ id, title, steps }: BoardTask): string {
  const done = steps.filter((step) => step.done).length
  return `#${id} ${cut(oneLine(title), 100)} ${steps.length === 0 ? "no plan" : `${done}/${steps.length}`}`
}
