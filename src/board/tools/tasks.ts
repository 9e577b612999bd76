import { z } from "zod"
import type { Tool } from "../../tools/tool.ts"
import { MOST_HISTORY } from "../service.ts"
import { isSameText, newTaskSchema, taskPatchSchema } from "../task.ts"
import { type BoardToolPorts, boardTool } from "./define.ts"
import { runPurse } from "./purse.ts"
import { renderArchived, renderHistory, renderList, renderTask, renderWhole } from "./render.ts"

/** Lengths are checked by the board's rules, whoever calls: here stands the form alone. */
export const taskID = z.string().max(40).describe('The task\'s id, such as "5".')

const made = newTaskSchema.shape

/** Tasks as a whole. */
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
    get_task: boardTool(ports, {
      description: "Read any task of the board whole, with its steps, resources and state; ended ones too.",
      args: { task_id: taskID },
      async run({ task_id }) {
        return renderWhole(board, await board.get(task_id))
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
      description: "Cancel a task: what works on it is stopped, and its subtasks are canceled too.",
      args: { task_id: taskID },
      async run({ task_id }, by) {
        return renderArchived(await board.cancel(task_id, by))
      },
    }),
    list_tasks: boardTool(ports, {
      description: "List your own open tasks with their progress and state.",
      args: { all: z.boolean().optional().describe("Those of all agents.") },
      async run({ all = false }, { agent }) {
        const tasks = await board.list()
        if (all) return renderList(board, tasks)
        const own = tasks.filter(({ owner }) => owner === agent)
        return renderList(board, own, agent)
      },
    }),
    purse: boardTool(ports, {
      description:
        "Have the board worked on without a pause until the money or the time is used up; then one report comes here. Without arguments: how it stands.",
      args: {
        max: z.number().optional().describe("US dollars."),
        until: z.string().optional().describe('"07:00", or an ISO time.'),
        close: z.boolean().optional().describe("End it now."),
      },
      run: (args, by) => runPurse(board, args, by),
    }),
    list_history: boardTool(ports, {
      description: "List ended tasks of all agents, newest first.",
      args: { limit: z.int().min(1).max(MOST_HISTORY).optional().describe("Default 20.") },
      async run({ limit }) {
        return renderHistory(await board.history(limit))
      },
    }),
  }
}
