import { z } from "zod"
import type { Tool } from "../../../tools/tool.ts"
import { isSameText, newTaskSchema, taskPatchSchema } from "../task.ts"
import { type BoardToolPorts, boardTool } from "./define.ts"
import { renderArchived, renderTask } from "./render.ts"

/** Only types are checked here; the board's rules check lengths for every caller. */
export const taskID = z.string().max(40).describe('The task\'s id, such as "5".')

const made = newTaskSchema.shape

/** Tools that create, change and end tasks. */
export function taskTools(ports: BoardToolPorts): Record<string, Tool> {
  const { board } = ports
  return {
    create_task: boardTool(ports, {
      description: `Put a task on the project's board: work that outlives this conversation, with a plan and a thread of its own, in which its owner works on it. Its owner is woken there at once, you too; then at each round (hourly by default) until the task is done. Nobody tells you of its end.

Not for what you can do now, for a quick answer from another agent, or for what recurs: a task is done once.`,
      args: {
        title: made.title.describe("What is to be done, in a few words."),
        description: made.description.describe("All that the owner has to know; it has not seen this conversation."),
        owner: made.owner.describe("The agent that works on it. Default: you."),
        status: made.status.describe("A draft waits until somebody makes it active."),
        steps: made.steps.describe("The plan, if there is one already."),
      },
      async run(args, by) {
        const task = await board.create(args, by)
        return renderTask(board, task, `Task #${task.id} was made.`, by)
      },
    }),
    update_task: boardTool(ports, {
      description:
        "Change a task. What you leave out stays. done and canceled end it for good; a draft made active wakes its owner.",
      args: {
        task_id: taskID,
        ...taskPatchSchema.shape,
        owner: taskPatchSchema.shape.owner.describe("It goes on in the same thread, with the next run."),
      },
      async run({ task_id, ...patch }, by) {
        const before = await board.get(task_id)
        const change = await board.update(task_id, patch, by)
        const { task } = change
        if (task.archivedAt !== undefined) return renderArchived(change)
        if (!isSameText(task, before)) return renderTask(board, task, `Task #${task.id} was changed.`, by)
        const { text } = board.state(task)
        return { title: "nothing changed", output: `Nothing changed: task #${task.id} is like that already (${text}).` }
      },
    }),
    complete_task: boardTool(ports, {
      description: "Mark a task as done. Its open subtasks go on.",
      args: { task_id: taskID },
      async run({ task_id }, by) {
        return renderArchived(await board.complete(task_id, by))
      },
    }),
    cancel_task: boardTool(ports, {
      description: "Cancel a task: what works on it is stopped, and its subtasks are cancelled too.",
      args: { task_id: taskID },
      async run({ task_id }, by) {
        return renderArchived(await board.cancel(task_id, by))
      },
    }),
  }
}
