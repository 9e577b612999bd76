import { cut, oneLine, within } from "../lib/text.ts"
import { type BoardTask, headOf, type Step, type TaskState } from "./task.ts"

/** The longest description and details that a request carries. */
const MOST_DESCRIPTION_CHARS = 8000
const MOST_DETAILS_CHARS = 1000
/** No resource that was checked is longer. */
const MOST_VALUE_CHARS = 2000

export type BlockInput = {
  readonly task: BoardTask
  /** What is known of a step's subtask: its owner and state, or how it ended. */
  readonly subtask: (id: string) => { readonly owner: string; readonly text: string } | undefined
  readonly state: TaskState
}

/** The task of a thread, as its model sees it in the system prompt of each request. */
export function taskBlock({ task, subtask, state }: BlockInput): string {
  const { id, description, owner, createdBy, steps, resources } = task
  return [
    `<Task id="${id}">`,
    headOf(task),
    `Status: ${task.status}${state.state === "running" || state.state === task.status ? "" : ` (${state.text})`}. Owner: ${oneLine(owner)}. Created by: ${oneLine(createdBy)}.`,
    "",
    "Description:",
    description.trim() === "" ? "(none)" : shown(description, MOST_DESCRIPTION_CHARS),
    "",
    "Steps (numbered from 0):",
    ...(steps.length === 0 ? ["(no plan yet: make one with tasks_update_steps)"] : steps.flatMap(stepLines(subtask))),
    "",
    "Resources (numbered from 0):",
    ...(resources.length === 0
      ? ["(none)"]
      : resources.map(
          (each, index) =>
            `${index}. ${each.type} ${oneLine(each.value, MOST_VALUE_CHARS)}${each.label ? ` (${oneLine(each.label)})` : ""}`,
        )),
    "",
    `This conversation is the thread of task #${id}. Keep to this task; for anything else, say that it belongs elsewhere.`,
    "</Task>",
  ].join("\n")
}

const stepLines = (subtask: BlockInput["subtask"]) => (step: Step, index: number) => {
  const { title, details, done, taskId } = step
  const line = `${index}. [${done ? "x" : " "}] ${oneLine(title)}${taskId === undefined ? "" : ` -> ${linkText(taskId, subtask)}`}`
  return details ? [line, `   ${shown(details, MOST_DETAILS_CHARS).replaceAll("\n", "\n   ")}`] : [line]
}

export function linkText(taskId: string, subtask: BlockInput["subtask"]): string {
  const known = subtask(taskId)
  return known ? `subtask #${taskId} (${oneLine(known.owner)}): ${known.text}` : `subtask #${taskId}: no longer there`
}

/** A long text's beginning, with a word on where the rest is. */
export const beginning = (text: string, most: number): string =>
  text.length <= most ? text : `${cut(text, most)} (cut; tasks_get_task has it whole)`

/** Text of others, which cannot end the block that it stands in. */
const shown = (text: string, most: number): string => within("task", beginning(text.trim(), most))
