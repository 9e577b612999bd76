import { z } from "zod"
import { CallError } from "../../../core/errors.ts"
import type { ToolResult } from "../../../core/ports.ts"
import type { Tool } from "../../../tools/tool.ts"
import { purseText } from "../purse/purses.ts"
import { isSame } from "../rules/verify.ts"
import type { Board } from "../service.ts"
import {
  historyLimit,
  idSchema,
  line,
  newResourceSchema,
  newSubtaskSchema,
  newTaskSchema,
  type PurseTerms,
  purseSchema,
  stepPatchSchema,
  stepsSchema,
  taskPatchSchema,
} from "../task.ts"
import { type AgentActor, type BoardToolPorts, boardTool } from "./access.ts"
import { renderArchived, renderHistory, renderList, renderTask, renderWhole } from "./render.ts"

const taskID = idSchema.describe('The task\'s id, such as "5".')

const made = newTaskSchema.shape

const MOST_MESSAGE_CHARS = 2000

/** Tools that create, change and end tasks. */
function taskTools(ports: BoardToolPorts): Record<string, Tool> {
  const { board } = ports
  return {
    create_task: boardTool(ports, {
      description: `Put a task on the project's board: work that outlives this conversation, with a plan and a thread of its own, in which its owner works on it. Its owner is woken there at once, you too; then at each round (hourly by default) until the task is done. Nobody tells you of its end.

Not for what you can do now, for a quick answer from another agent, or for what recurs: a task is done once.`,
      args: z.strictObject({
        title: made.title.describe("What is to be done, in a few words."),
        description: made.description.describe("All that the owner has to know; it has not seen this conversation."),
        owner: made.owner.describe("The agent that works on it. Default: you."),
        status: made.status.describe("A draft waits until somebody makes it active."),
        steps: made.steps.describe("The plan, if there is one already."),
      }),
      async run(args, by) {
        const task = await board.create(args, by)
        return renderTask(board, task, `Task #${task.id} was made.`, by)
      },
    }),
    update_task: boardTool(ports, {
      description:
        "Change a task. What you leave out stays. done and canceled end it for good; a draft made active wakes its owner.",
      args: taskPatchSchema.safeExtend({
        task_id: taskID,
        owner: taskPatchSchema.shape.owner.describe("It goes on in the same thread, with the next run."),
      }),
      async run({ task_id, ...patch }, by) {
        const before = await board.get(task_id)
        const change = await board.update(task_id, patch, by)
        const { task } = change
        if (task.archivedAt !== undefined) return renderArchived(change)
        if (!isSame(task, before)) return renderTask(board, task, `Task #${task.id} was changed.`, by)
        const { text } = board.state(task)
        return { title: "nothing changed", output: `Nothing changed: task #${task.id} is like that already (${text}).` }
      },
    }),
    complete_task: boardTool(ports, {
      description: "Mark a task as done. Its open subtasks go on.",
      args: z.strictObject({ task_id: taskID }),
      async run({ task_id }, by) {
        return renderArchived(await board.complete(task_id, by))
      },
    }),
    cancel_task: boardTool(ports, {
      description: "Cancel a task: what works on it is stopped, and its subtasks are cancelled too.",
      args: z.strictObject({ task_id: taskID }),
      async run({ task_id }, by) {
        return renderArchived(await board.cancel(task_id, by))
      },
    }),
  }
}

const stepIndex = z.int().min(0).describe("From 0.")

/** Tools for a task's plan and subtasks. */
function stepTools(ports: BoardToolPorts): Record<string, Tool> {
  const { board } = ports
  return {
    update_steps: boardTool(ports, {
      description:
        "Set a task's plan, in place of all steps that it had, with their marks. Not while a step has an open subtask.",
      args: z.strictObject({ task_id: taskID, steps: stepsSchema }),
      async run({ task_id, steps }, by) {
        return renderTask(board, await board.updateSteps(task_id, steps, by), "The plan was set.", by)
      },
    }),
    update_step: boardTool(ports, {
      description: "Mark one step as done, or change its text.",
      args: stepPatchSchema.safeExtend({ task_id: taskID, step_index: stepIndex }),
      async run({ task_id, step_index, ...patch }, by) {
        return renderTask(
          board,
          await board.updateStep(task_id, step_index, patch, by),
          `Step ${step_index} was changed.`,
          by,
        )
      },
    }),
    create_subtask: boardTool(ports, {
      description:
        "Give a step of your own task to an agent, as a task of its own. It is woken at once, and you in this task's thread when it has ended.",
      args: z.strictObject({ task_id: taskID, step_index: stepIndex, ...newSubtaskSchema.shape }),
      async run({ task_id, step_index, ...input }, by) {
        const { parent, subtask } = await board.createSubtask(task_id, step_index, input, by)
        return renderTask(
          board,
          parent,
          `Step ${step_index} was given to "${subtask.owner}" as task #${subtask.id}.`,
          by,
        )
      },
    }),
  }
}

/** Tools for resources, and for messages to the user. */
function resourceTools(ports: BoardToolPorts): Record<string, Tool> {
  const { board } = ports
  return {
    add_resource: boardTool(ports, {
      description: "Attach a URL or a file to a task.",
      args: newResourceSchema.safeExtend({ task_id: taskID }),
      async run({ task_id, ...resource }, by) {
        return renderTask(board, await board.addResource(task_id, resource, by), "The resource was added.", by)
      },
    }),
    remove_resource: boardTool(ports, {
      description: "Take a resource off a task.",
      args: z.strictObject({ task_id: taskID, index: z.int().min(0).describe("From 0.") }),
      async run({ task_id, index }, by) {
        return renderTask(board, await board.removeResource(task_id, index, by), "The resource was removed.", by)
      },
    }),
    notify_user: boardTool(ports, {
      description:
        "From a task's thread: reach the person whom you need for a decision or for help. Then end your turn.",
      args: z.strictObject({
        message: line(MOST_MESSAGE_CHARS).describe("What you need, so that it can be answered at once."),
      }),
      async run({ message }, by) {
        const task = await board.notifyUser(message, by)
        const output = `Task #${task.id} is shown as needing the user until somebody writes here. Who has OpenCode open sees your message now; perhaps nobody has. End your turn: you go on when they have written.`
        return { title: `#${task.id} needs the user`, output }
      },
    }),
  }
}

/** Tools that read board and history. */
function readingTools(ports: BoardToolPorts): Record<string, Tool> {
  const { board } = ports
  return {
    get_task: boardTool(ports, {
      description: "Read any task of the board whole, with its steps, resources and state; ended ones too.",
      args: z.strictObject({ task_id: taskID }),
      async run({ task_id }) {
        return renderWhole(board, await board.get(task_id))
      },
    }),
    list_tasks: boardTool(ports, {
      description: "List your own open tasks with their progress and state.",
      args: z.strictObject({ all: z.boolean().optional().describe("Those of all agents.") }),
      async run({ all = false }, { agent }) {
        const tasks = await board.list()
        if (all) return renderList(board, tasks)
        const own = tasks.filter(({ owner }) => owner === agent)
        return renderList(board, own, agent)
      },
    }),
    list_history: boardTool(ports, {
      description: "List ended tasks of all agents, newest first.",
      args: z.strictObject({ limit: historyLimit.optional().describe("Default 20.") }),
      async run({ limit }) {
        return renderHistory(await board.history(limit))
      },
    }),
  }
}

function purseTools(ports: BoardToolPorts): Record<string, Tool> {
  const { board } = ports
  return {
    purse: boardTool(ports, {
      description:
        "Have the board worked on without a pause until the money or the time is used up; then one report comes here. Without arguments: how it stands.",
      args: z.strictObject({
        ...purseSchema.partial().shape,
        close: z.boolean().optional().describe("End it now."),
      }),
      run: (args, by) => runPurse(board, args, by),
    }),
  }
}

/** Opens, closes or shows the purse. */
async function runPurse(
  { purse }: Board,
  { max, until, close = false }: Partial<PurseTerms> & { readonly close?: boolean },
  by: AgentActor,
): Promise<ToolResult> {
  if (close) {
    if (max !== undefined || until !== undefined)
      throw new CallError("With `close`, leave out `max` and `until`: it ends the purse that is open.")
    await purse.close(by)
    return { title: "purse closed", output: "The purse is closed: what it runs is stopped, and its report follows." }
  }
  if (max === undefined && until === undefined) {
    const [last] = await purse.reports()
    return { title: "purse", output: purseText(await purse.view(), last) }
  }
  if (max === undefined || until === undefined)
    throw new CallError('A purse needs both `max` and `until`, such as 5 and "07:00".')
  const view = await purse.open({ max, until }, by)
  const output = `The purse is open: ${view.text}. Each active task that waits for nobody is worked on until either ends. One report comes here then: do not wait or poll.`
  return { title: "purse open", output }
}

/** The board's tools, named like those of an MCP server `tasks`. */
export function boardTools(ports: BoardToolPorts): Readonly<Record<string, Tool>> {
  const kinds = [taskTools, readingTools, purseTools, stepTools, resourceTools]
  const tools = Object.assign({}, ...kinds.map((toolsOf) => toolsOf(ports))) as Record<string, Tool>
  return Object.fromEntries(Object.entries(tools).map(([name, tool]) => [`tasks_${name}`, tool]))
}
