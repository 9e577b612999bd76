import { z } from "zod"
import { CallError, listed } from "../../../core/errors.ts"
import type { ToolResult } from "../../../core/ports.ts"
import { count, cut, oneLine } from "../../../lib/text.ts"
import { type CallContext, defineTool, type Tool } from "../../../tools/tool.ts"
import { BOARD_TOOLS } from "../options.ts"
import { purseText } from "../purse/purses.ts"
import { isSame } from "../rules/verify.ts"
import { type Actor, type Archived, type Board, BoardError } from "../service.ts"
import {
  type BoardTask,
  headOf,
  historyLimit,
  idSchema,
  line,
  newResourceSchema,
  newSubtaskSchema,
  newTaskSchema,
  type PurseTerms,
  purseSchema,
  shownStatus,
  stepPatchSchema,
  stepsSchema,
  taskPatchSchema,
  toModel,
} from "../task.ts"
import { beginning, resourceLines, stepLines } from "../threads.ts"

const taskID = idSchema.describe('The task\'s id, such as "5".')

const made = newTaskSchema.shape

const MOST_MESSAGE_CHARS = 2000

const stepIndex = z.int().min(0).describe("From 0.")

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
    const output =
      "The purse is closed: what it runs is stopped. Its report comes here if this conversation opened it; otherwise tasks_purse shows in a moment what it took."
    return { title: "purse closed", output }
  }
  const isOpening = max !== undefined && until !== undefined
  if (!isOpening && (max !== undefined || until !== undefined))
    throw new CallError('A purse needs both `max` and `until`, such as 5 and "07:00".')
  const view = isOpening ? await purse.open({ max, until }, by) : await purse.view()
  if (!isOpening || !view) {
    const [last] = await purse.reports()
    return { title: "purse", output: purseText(view, last) }
  }
  const output = `The purse is open: ${view.text}. Each active task that waits for nobody is worked on until either ends. One report comes here then: do not wait or poll.`
  return { title: "purse open", output }
}

/** The board's tools, by name without `tasks_`. */
const TOOLS = {
  create_task: boardTool({
    description: `Put a task on the project's board: work that outlives this conversation, with a plan and a thread of its own, in which its owner works on it. Its owner is woken there at once, you too; then at each round (by default hourly by day) until the task is done. Nobody tells you of its end.

Not for what you can do now, for a quick answer from another agent, or for what recurs: a task is done once.`,
    args: z.strictObject({
      title: made.title.describe("What is to be done, in a few words."),
      description: made.description.describe("All that the owner has to know; it has not seen this conversation."),
      owner: made.owner.describe("The agent that works on it. Default: you."),
      status: made.status.describe("A draft waits until somebody makes it active."),
      steps: made.steps.describe("The plan, if there is one already."),
    }),
    async run(args, by, board) {
      const task = await board.create(args, by)
      return renderTask(board, task, `Task #${task.id} was made.`, by)
    },
  }),
  update_task: boardTool({
    description:
      "Change a task. What you leave out stays. done and canceled end it for good; a draft made active wakes its owner.",
    args: taskPatchSchema.safeExtend({
      task_id: taskID,
      owner: taskPatchSchema.shape.owner.describe("It goes on in the same thread, with the next run."),
    }),
    async run({ task_id, ...patch }, by, board) {
      const before = await board.get(task_id)
      const change = await board.update(task_id, patch, by)
      const { task } = change
      if (task.archivedAt !== undefined) return renderArchived(change)
      if (!isSame(task, before)) return renderTask(board, task, `Task #${task.id} was changed.`, by)
      const { text } = board.state(task)
      return { title: "nothing changed", output: `Nothing changed: task #${task.id} is like that already (${text}).` }
    },
  }),
  complete_task: boardTool({
    description: "Mark a task as done. Its open subtasks go on.",
    args: z.strictObject({ task_id: taskID }),
    async run({ task_id }, by, board) {
      return renderArchived(await board.complete(task_id, by))
    },
  }),
  cancel_task: boardTool({
    description: "Cancel a task: what works on it is stopped, and its subtasks are cancelled too.",
    args: z.strictObject({ task_id: taskID }),
    async run({ task_id }, by, board) {
      return renderArchived(await board.cancel(task_id, by))
    },
  }),
  get_task: boardTool({
    description: "Read any task of the board whole, with its steps, resources and state; ended ones too.",
    args: z.strictObject({ task_id: taskID }),
    async run({ task_id }, _by, board) {
      return renderWhole(board, await board.get(task_id))
    },
  }),
  list_tasks: boardTool({
    description: "List your own open tasks with their progress and state.",
    args: z.strictObject({ all: z.boolean().optional().describe("Those of all agents.") }),
    async run({ all = false }, { agent }, board) {
      const tasks = await board.list()
      if (all) return renderList(board, tasks)
      const own = tasks.filter(({ owner }) => owner === agent)
      return renderList(board, own, agent)
    },
  }),
  list_history: boardTool({
    description: "List ended tasks of all agents, newest first.",
    args: z.strictObject({ limit: historyLimit.optional().describe("Default 20.") }),
    async run({ limit }, _by, board) {
      return renderHistory(await board.history(limit))
    },
  }),
  purse: boardTool({
    description:
      "Have the board worked on without a pause until the money or the time is used up; then one report comes here. Without arguments: how it stands.",
    args: z.strictObject({
      ...purseSchema.partial().shape,
      close: z.boolean().optional().describe("End it now."),
    }),
    run: (args, by, board) => runPurse(board, args, by),
  }),
  update_steps: boardTool({
    description:
      "Set a task's plan, in place of all steps that it had, with their marks. Not while a step has an open subtask.",
    args: z.strictObject({ task_id: taskID, steps: stepsSchema }),
    async run({ task_id, steps }, by, board) {
      return renderTask(board, await board.updateSteps(task_id, steps, by), "The plan was set.", by)
    },
  }),
  update_step: boardTool({
    description: "Mark one step as done, or change its text.",
    args: stepPatchSchema.safeExtend({ task_id: taskID, step_index: stepIndex }),
    async run({ task_id, step_index, ...patch }, by, board) {
      return renderTask(
        board,
        await board.updateStep(task_id, step_index, patch, by),
        `Step ${step_index} was changed.`,
        by,
      )
    },
  }),
  create_subtask: boardTool({
    description:
      "Give a step of your own task to an agent, as a task of its own. It is woken at once, and you in this task's thread when it has ended.",
    args: z.strictObject({ task_id: taskID, step_index: stepIndex, ...newSubtaskSchema.shape }),
    async run({ task_id, step_index, ...input }, by, board) {
      const { parent, subtask } = await board.createSubtask(task_id, step_index, input, by)
      return renderTask(board, parent, `Step ${step_index} was given to "${subtask.owner}" as task #${subtask.id}.`, by)
    },
  }),
  add_resource: boardTool({
    description: "Attach a URL or a file to a task.",
    args: newResourceSchema.safeExtend({ task_id: taskID }),
    async run({ task_id, ...resource }, by, board) {
      return renderTask(board, await board.addResource(task_id, resource, by), "The resource was added.", by)
    },
  }),
  remove_resource: boardTool({
    description: "Take a resource off a task.",
    args: z.strictObject({ task_id: taskID, index: z.int().min(0).describe("From 0.") }),
    async run({ task_id, index }, by, board) {
      return renderTask(board, await board.removeResource(task_id, index, by), "The resource was removed.", by)
    },
  }),
  notify_user: boardTool({
    description: "From a task's thread: reach the person whom you need for a decision or for help. Then end your turn.",
    args: z.strictObject({
      message: line(MOST_MESSAGE_CHARS).describe("What you need, so that it can be answered at once."),
    }),
    async run({ message }, by, board) {
      const task = await board.notifyUser(message, by)
      const output = `Task #${task.id} is shown as needing the user until somebody writes here. Who has OpenCode open sees your message now; perhaps nobody has. End your turn: you go on when they have written.`
      return { title: `#${task.id} needs the user`, output }
    },
  }),
}

/** The board's tools, named like those of an MCP server `tasks`. */
export const boardTools = (ports: BoardToolPorts): Readonly<Record<string, Tool>> =>
  Object.fromEntries(Object.entries(TOOLS).map(([name, toolFor]) => [`tasks_${name}`, toolFor(ports)]))

/** Texts for models. Indexes are shown wherever a further call needs them. */

/** Most characters of a description, or of a step's details, where a task is not shown as a whole. */
const MOST_TEXT_CHARS = 500

/**
 * Answer to a call that changed a task. In the task's own thread the answer is short, because the request contains the
 * task.
 */
async function renderTask(board: Board, task: BoardTask, head: string, by: AgentActor): Promise<ToolResult> {
  if (by.sessionID !== task.threadId) return renderWhole(board, task, head, MOST_TEXT_CHARS)
  return { title: titleOf(task), output: `${head} The task as it is now stands in this request.` }
}

/** The whole task; texts longer than `most` are cut. */
async function renderWhole(
  board: Board,
  task: BoardTask,
  head = "",
  most = Number.POSITIVE_INFINITY,
): Promise<ToolResult> {
  const { description, owner, createdBy, steps, resources, status, archivedAt, threadId } = task
  const [shown, state] = [shownStatus(status), toModel(board.state(task))]
  const subtask = await board.subtasksIn(task)
  const detailsOf = (details: string) => (details.length > most ? oneLine(details, most) : details)
  const lines = [
    head,
    headOf(task),
    `Status: ${state.startsWith(shown) ? state : `${shown}, ${state}`}. Owner: ${oneLine(owner)}. Created by: ${oneLine(createdBy)}.`,
    ...(archivedAt === undefined ? [] : [`Archived: ${archivedAt}`]),
    ...(threadId === undefined ? [] : [`Thread: ${threadId}`]),
    ...(description === "" ? [] : [`Description:\n${beginning(description, most)}`]),
    steps.length === 0 ? "Steps: none" : "Steps:",
    ...stepLines(steps, subtask, detailsOf),
    resources.length === 0 ? "Resources: none" : "Resources:",
    ...resourceLines(resources),
  ]
  return { title: titleOf(task), output: lines.filter((line) => line !== "").join("\n") }
}

const titleOf = ({ id, title }: BoardTask): string => `#${id} ${oneLine(title, 80)}`

function renderArchived({ task, canceled, open }: Archived): ToolResult {
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
function renderList(board: Board, tasks: readonly BoardTask[], agent?: string): ToolResult {
  const ownerOf = ({ owner }: BoardTask) => (agent === undefined ? ` (owner ${oneLine(owner, 60)})` : "")
  const lines = tasks.map((task) => `${row(task)} ${toModel(board.state(task))}${ownerOf(task)}`)
  const whose = agent === undefined ? "on the board" : `of "${agent}"`
  const none = agent === undefined ? "No task is open." : `No open task is owned by "${agent}".`
  const head = tasks.length === 0 ? none : `${count(tasks.length, "open task")} ${whose}:`
  const lost = board.lost().length
  const gone = `The board's file has gone, with ${count(lost, "open task")}. A copy is kept; only the user can bring it back, by /board.`
  return { title: count(tasks.length, "task"), output: [head, ...lines, ...(lost > 0 ? [gone] : [])].join("\n") }
}

function renderHistory(tasks: readonly BoardTask[]): ToolResult {
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

type AgentActor = Extract<Actor, { kind: "agent" }>

type BoardToolPorts = {
  readonly board: Board
  /** Whether the session belongs to a background task, or lies below such a session. */
  readonly isBackground: (sessionID: string) => Promise<boolean>
}

/**
 * A tool that only the board's agents may call, and not in background tasks. Other callers get an error with the
 * reason.
 */
function boardTool<Shape extends z.ZodRawShape>(tool: {
  readonly description: string
  readonly args: z.ZodObject<Shape>
  readonly run: (args: z.infer<z.ZodObject<Shape>>, by: AgentActor, board: Board) => Promise<ToolResult>
}): (ports: BoardToolPorts) => Tool {
  return ({ board, isBackground }) => {
    const run = async (args: z.infer<z.ZodObject<Shape>>, context: CallContext) => {
      try {
        return await tool.run(args, await actorOf(context), board)
      } catch (error) {
        throw error instanceof BoardError ? new CallError(error.message) : error
      }
    }
    const actorOf = async ({ agent, sessionID, messageID }: CallContext): Promise<AgentActor> => {
      const agents = (await board.agents()).map(({ name }) => name)
      if (agent === undefined || !agents.includes(agent)) {
        const whose =
          agents.length === 0
            ? "The option board.agents names no agent that there is."
            : `Its agents are: ${listed(agents, 20)}.`
        throw new CallError(`The board is not for the agent "${agent}". ${whose} Leave the board; tell the user.`)
      }
      if (await isBackground(sessionID))
        throw new CallError("The board is not for background tasks. Say in your answer what is to be put there.")
      return { kind: "agent", agent, sessionID, messageID }
    }
    return defineTool({ description: tool.description, args: tool.args.shape, schema: tool.args, run })
  }
}

type Rules = string | Record<string, unknown>
type Agent = { hidden?: boolean; disable?: boolean; permission?: Rules } & Record<string, unknown>
/** OpenCode's configuration of agents and permissions. */
export type AgentConfig = { permission?: Rules; agent?: Record<string, Agent | undefined> }

/** OpenCode's visible built-in agents. They exist even where the configuration does not name them. */
const BUILT_IN = ["build", "plan", "general", "explore"]
/** OpenCode's agent whose rules deny everything they do not name. */
const DENIES_ALL = "explore"

/**
 * Offers the board's tools to its agents only, by permission rules in OpenCode's configuration. Must run before
 * OpenCode creates its agents.
 */
export function restrictTools(config: AgentConfig, allowed: readonly string[] | null): void {
  config.agent ??= {}
  const agents = config.agent
  for (const name of new Set([...BUILT_IN, ...Object.keys(agents)])) {
    const agent = agents[name]
    const isAllowed = !agent?.hidden && (allowed === null || allowed.includes(name))
    const rules = asRules(agent?.permission)
    if (!isAllowed) {
      const { [BOARD_TOOLS]: _ours, ...others } = rules
      agents[name] = { ...agent, permission: { ...others, [BOARD_TOOLS]: "deny" } }
    } else if (name === DENIES_ALL || rules["*"] === "deny" || asRules(config.permission)["*"] === "deny") {
      const { "*": all, ...others } = rules
      agents[name] = {
        ...agent,
        permission: { ...(all !== undefined && { "*": all }), [BOARD_TOOLS]: "allow", ...others },
      }
    }
  }
}

/** Rules as a table. The short form, a single word, becomes the rule for everything. */
const asRules = (rules: Rules | undefined): Record<string, unknown> =>
  typeof rules === "string" ? { "*": rules } : { ...rules }
