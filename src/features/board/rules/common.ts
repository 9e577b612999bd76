import { listed, nearest } from "../../../core/errors.ts"
import { head } from "../../../lib/text.ts"
import { type Actor, type Archived, BoardError } from "../service.ts"
import { type BoardState, findTask, frozen, subtasksOf } from "../state.ts"
import type { BoardTask, NewStep, PlanStep } from "../task.ts"
import { resetFailures } from "./archive.ts"
import type { BoardChange, BoardFacts } from "./command.ts"

/** The open task with this id; otherwise an error that tells how it ended. */
export function openTask(state: BoardState, id: string, { ended }: BoardFacts): BoardTask {
  const task = findTask(state, id)
  if (task) return task
  const status = ended(id)
  if (status === undefined) throw noSuchTask(id)
  throw new BoardError(
    "conflict",
    `Task #${id} is ${status} and stands in history, which does not change. Make a new task instead.`,
  )
}

export const noSuchTask = (id: string): BoardError =>
  new BoardError(
    "not found",
    `There is no task #${head(id, 40)}, neither open nor in history. Ids are numbers such as 5, as the lists of tasks show them.`,
  )

/** `name`, if it is one of the agents that may own tasks. */
export function ownerNamed(name: string, agents: readonly string[]): string {
  if (agents.includes(name)) return name
  const close = nearest(name, agents)
  const hint = close.length > 0 ? ` Did you mean: ${listed(close)}?` : ""
  throw new BoardError(
    "invalid",
    `"${name}" is not an agent that may own tasks.${hint} There are: ${listed(agents, 20)}.`,
  )
}

/** Entry at an index, from 0. */
export function entryAt<Item>(what: string, entries: readonly Item[], index: number): Item {
  const entry = entries[index]
  if (entry !== undefined) return entry
  const there = entries.length === 0 ? `it has no ${what}s` : `its ${what}s are numbered 0 to ${entries.length - 1}`
  throw new BoardError("not found", `There is no ${what} ${index}: ${there}.`)
}

export const threadTask = (state: BoardState, threadId: string): BoardTask | undefined =>
  state.tasks.find((task) => task.threadId === threadId)

export const planStep = ({ title, details, done = false }: NewStep): PlanStep => ({
  title,
  ...(details && { details }),
  done,
})

export const changed = (state: BoardState, task: BoardTask, by: Actor, { now }: BoardFacts): BoardChange => {
  const next = { ...task, updatedAt: now }
  return { archived: [], task: next, state: resetUnlessOwnRun(replaceTask(state, next), next, by) }
}

/** Changes by a task's own run are its work and do not end its rest. */
export const resetUnlessOwnRun = (state: BoardState, task: BoardTask, by: Actor): BoardState =>
  by.kind === "agent" && by.sessionID === task.threadId ? state : resetFailures(state, task.id)

export const replaceTask = (state: BoardState, task: BoardTask): BoardState => ({
  ...state,
  tasks: state.tasks.map((each) => (each.id === task.id ? task : each)),
})

export const changeTo = (state: BoardState): BoardChange => ({ archived: [], state })

export const nameOf = (by: Actor): string => (by.kind === "user" ? "user" : by.agent)

/** The changed task, frozen for callers. */
export const taskOf = ({ task }: BoardChange): BoardTask => frozen(task as BoardTask)

/** Result of a change that archived tasks. */
export function archivedBy(change: BoardChange): Archived {
  const [, ...canceled] = change.archived
  const task = taskOf(change)
  return Object.freeze({
    task,
    canceled: canceled.map(frozen),
    open: task.status === "done" ? subtasksOf(change.state, task).map(frozen) : [],
  })
}
