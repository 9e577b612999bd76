import { BoardError } from "../service.ts"
import { type BoardState, findTask, isSkippedByRounds, isUnverified, runStateOf } from "../state.ts"
import type { ArchivedTask } from "../task.ts"
import { endedAs, OUTSIDE, removeArchived, resetFailures, setRunState, wake, wokenAt } from "./archive.ts"
import {
  accept,
  type BoardChange,
  type BoardCommand,
  type BoardFacts,
  type CommandOf,
  changeTo,
  forget,
  openTask,
  type RunResult,
  replaceTask,
  restore,
  threadTask,
  trustTask,
} from "./command.ts"
import { closePurse, endPurse, idleAfter, openPurse, pay, purseEnded, recordReportDelivery } from "./purse.ts"
import { addResource, create, createSubtask, end, removeResource, replacePlan, update, updateStep } from "./tasks.ts"

/** Rules for changes of threads, run states and rounds. */

function notify(state: BoardState, { message: needs, by }: CommandOf<"notify">): BoardChange {
  const task = by.kind === "agent" ? threadTask(state, by.sessionID) : undefined
  if (!task)
    throw new BoardError(
      "conflict",
      "Only the thread of an open task can notify a person. Here, say it in your answer.",
    )
  return { archived: [], task, state: setRunState(state, task.id, { ...runStateOf(state, task.id), needs }) }
}

function recordUserMessage(state: BoardState, threadId: string): BoardChange {
  const task = threadTask(state, threadId)
  if (!task) return changeTo(state)
  const { needs: _needs, ...runState } = runStateOf(resetFailures(state, task.id), task.id)
  return { archived: [], task, state: setRunState(state, task.id, runState) }
}

function setThread(state: BoardState, id: string, threadId: string): BoardChange {
  const task = findTask(state, id)
  return task
    ? { ...changeTo(replaceTask(state, { ...task, threadId })), task: { ...task, threadId } }
    : changeTo(state)
}

function run(state: BoardState, id: string, facts: BoardFacts): BoardChange {
  const task = openTask(state, id, facts)
  if (task.status === "draft")
    throw new BoardError("conflict", `Task #${id} is a draft: make it active, and its owner begins.`)
  if (facts.isRunning(id)) throw new BoardError("conflict", `Task #${id} is being worked on already.`)
  if (!facts.agents.includes(task.owner))
    throw new BoardError(
      "conflict",
      `The owner of task #${id}, "${task.owner}", is no agent that may own tasks: give it another.`,
    )
  return { archived: [], task, state: wake(resetFailures(trustTask(state, id), id), id, "hand", facts.now) }
}

/**
 * Records a run's end. A wake later than the run's start stays for the next run, and a wake in the future, set before
 * the clock was set back, counts as now.
 */
function recordRunEnd(
  state: BoardState,
  { id, startedAt, result }: CommandOf<"ran">,
  { now }: BoardFacts,
): BoardChange {
  const task = findTask(state, id)
  if (!task) return changeTo(state)
  const { wake, failures = 0, failure, idle, needs = undefined, ...runState } = runStateOf(state, id)
  const isDue = wake && (wake.at > startedAt || result.kind === "unbegun")
  const needed = result.needs ?? needs
  const idleRuns = result.kind === "unbegun" ? idle : idleAfter(state, task, startedAt, idle)
  const next = {
    ...runState,
    ran: startedAt,
    ...(isDue && { wake: wake.at > now ? { ...wake, at: now } : wake }),
    ...failuresAfter(result, failures, failure),
    ...(idleRuns !== undefined && { idle: idleRuns }),
    ...(needed !== undefined && { needs: needed }),
  }
  return { ...changeTo(setRunState(state, id, next)), task }
}

function failuresAfter(result: RunResult, failures: number, failure?: string) {
  if (result.kind === "completed") return {}
  if (result.kind === "failed") return { failures: failures + 1, failure: result.reason }
  return failures > 0 ? { failures, failure } : {}
}

/**
 * Records for which tasks the budget allows no run. A refused run is no failure: the task stays due until there is
 * budget.
 */
function recordRefusals(state: BoardState, reasons: Readonly<Record<string, string>>): BoardChange {
  const pulses = new Map(Object.entries(state.pulses))
  let isChanged = false
  for (const { id } of state.tasks) {
    const { budget, ...runState } = runStateOf(state, id)
    const reason = reasons[id]
    if (budget === reason) continue
    isChanged = true
    if (reason !== undefined) pulses.set(id, { ...runState, budget: reason })
    else if (Object.keys(runState).length > 0) pulses.set(id, runState)
    else pulses.delete(id)
  }
  return changeTo(isChanged ? { ...state, pulses: Object.fromEntries(pulses) } : state)
}

function tick(state: BoardState, { now, isRunning, agents }: BoardFacts): BoardChange {
  const due = state.tasks.filter(
    (task) =>
      task.status === "active" && agents.includes(task.owner) && !isRunning(task.id) && !isSkippedByRounds(state, task),
  )
  const woken = due.map(({ id }) => [id, wokenAt(runStateOf(state, id), "clock", now)] as const)
  return changeTo({ ...state, tick: now, pulses: { ...state.pulses, ...Object.fromEntries(woken) } })
}

function settle(state: BoardState, archived: readonly ArchivedTask[], { now }: BoardFacts): BoardChange {
  const [present, known] = [state.tasks, archived].map((tasks) => new Set(tasks.map(({ id }) => id)))
  const left = removeArchived(
    state,
    archived.filter(({ id }) => present?.has(id)),
  )
  const ended = left.state.tasks.flatMap((task) => {
    const { status } = task
    return status === "done" || status === "canceled" ? endedAs(task, { status, by: OUTSIDE, at: now }) : []
  })
  const settled = removeArchived(left.state, ended)
  return { ...settled, archived: [...left.archived.filter(({ id }) => !known?.has(id)), ...settled.archived] }
}

/** The only function that changes a board. Pure; forbidden changes throw a `BoardError` with their reason. */
export function decide(state: BoardState, command: BoardCommand, facts: BoardFacts): BoardChange {
  refuseOutside(state, command)
  switch (command.type) {
    case "create":
      return create(state, command, facts)
    case "update":
      return update(state, command, facts)
    case "complete":
      return end(state, openTask(state, command.id, facts), "done", command.by, facts)
    case "cancel":
      return end(state, openTask(state, command.id, facts), "canceled", command.by, facts)
    case "update steps":
      return replacePlan(state, command, facts)
    case "update step":
      return updateStep(state, command, facts)
    case "create subtask":
      return createSubtask(state, command, facts)
    case "add resource":
      return addResource(state, command, facts)
    case "remove resource":
      return removeResource(state, command, facts)
    case "notify":
      return notify(state, command)
    case "written":
      return recordUserMessage(state, command.threadId)
    case "thread":
      return setThread(state, command.id, command.threadId)
    case "run":
      return run(state, command.id, facts)
    case "accept":
      return accept(state)
    case "restore":
      return restore(state)
    case "forget":
      return forget(state)
    case "ran":
      return recordRunEnd(state, command, facts)
    case "refused":
      return recordRefusals(state, command.reasons)
    case "tick":
      return tick(state, facts)
    case "open purse":
      return openPurse(state, command, facts)
    case "close purse":
      return closePurse(state, command)
    case "pay":
      return pay(state, command)
    case "end purse":
      return endPurse(state, command, facts)
    case "purse ended":
      return purseEnded(state, command)
    case "purse told":
      return recordReportDelivery(state, command)
    case "settle":
      return settle(state, command.archived, facts)
  }
}

/** Refuses changes of unverified tasks by agents: the next signed write would make the outside edit trusted. */
function refuseOutside(state: BoardState, command: BoardCommand): void {
  if (!("id" in command && "by" in command) || command.by.kind === "user" || !isUnverified(state, command.id)) return
  throw new BoardError(
    "conflict",
    `Task #${command.id} was changed outside the board: somebody has written to its file. A person has to look at it and start it; until then it can be read, and no more.`,
  )
}
