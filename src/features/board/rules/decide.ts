import { BoardError } from "../service.ts"
import { type BoardState, findTask, isSkippedByRounds, isUnverified, runStateOf } from "../state.ts"
import { endedAs, OUTSIDE, removeArchived, resetFailures, setRunState, wake, wokenAt } from "./archive.ts"
import {
  accept,
  type BoardChange,
  type BoardCommand,
  type BoardFacts,
  changeTo,
  forget,
  openTask,
  type Rules,
  type RunResult,
  replaceTask,
  restore,
  threadTask,
  trustTasks,
} from "./command.ts"
import { idleAfter, purseRules } from "./purse.ts"
import { taskRules } from "./tasks.ts"

function failuresAfter(result: RunResult, failures: number, failure?: string) {
  if (result.kind === "completed") return {}
  if (result.kind === "failed") return { failures: failures + 1, failure: result.reason }
  return failures > 0 ? { failures, failure } : {}
}

const RULES: Rules = {
  ...taskRules,
  ...purseRules,
  accept,
  restore,
  forget,

  notify(state, { message: needs, by }) {
    const task = by.kind === "agent" ? threadTask(state, by.sessionID) : undefined
    if (!task)
      throw new BoardError(
        "conflict",
        "Only the thread of an open task can notify a person. Here, say it in your answer.",
      )
    return changeTo(setRunState(state, task.id, { ...runStateOf(state, task.id), needs }), task)
  },

  written(state, { threadId }) {
    const task = threadTask(state, threadId)
    if (!task) return changeTo(state)
    const { needs: _needs, ...runState } = runStateOf(resetFailures(state, [task.id]), task.id)
    return changeTo(setRunState(state, task.id, runState), task)
  },

  thread(state, { id, threadId }) {
    const task = findTask(state, id)
    const next = task && { ...task, threadId }
    return next ? changeTo(replaceTask(state, next), next) : changeTo(state)
  },

  run(state, { id, seen }, facts) {
    const task = openTask(state, id, facts)
    if (task.status === "draft")
      throw new BoardError("conflict", `Task #${id} is a draft: make it active, and its owner begins.`)
    if (facts.isRunning(id)) throw new BoardError("conflict", `Task #${id} is being worked on already.`)
    if (!facts.agents.includes(task.owner))
      throw new BoardError(
        "conflict",
        `The owner of task #${id}, "${task.owner}", is no agent that may own tasks: give it another.`,
      )
    return changeTo(wake(resetFailures(trustTasks(state, [task], { seen }), [id]), id, "hand", facts.now), task)
  },

  /**
   * Records a run's end. A wake later than the run's start stays for the next run, and a wake in the future, set before
   * the clock was set back, counts as now. After a start in the future, nothing tells what came before the run: all
   * counts as later.
   */
  ran(state, { id, startedAt, result }, { now }) {
    const task = findTask(state, id)
    if (!task) return changeTo(state)
    const { wake, failures = 0, failure, idle, needs = undefined, ...runState } = runStateOf(state, id)
    const since = startedAt > now ? "" : startedAt
    const isDue = wake && (wake.at > since || result.kind === "unbegun")
    const needed = result.needs ?? needs
    const idleRuns = result.kind === "unbegun" ? idle : idleAfter(state, task, since, idle)
    const next = {
      ...runState,
      ran: startedAt,
      ...(isDue && { wake: wake.at > now ? { ...wake, at: now } : wake }),
      ...failuresAfter(result, failures, failure),
      ...(idleRuns !== undefined && { idle: idleRuns }),
      ...(needed !== undefined && { needs: needed }),
    }
    return changeTo(setRunState(state, id, next), task)
  },

  /**
   * Records for which tasks the budget allows no run. A refused run is no failure: the task stays due until there is
   * budget.
   */
  refused(state, { reasons }) {
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
  },

  tick(state, _command, { now, isRunning, agents }) {
    const due = state.tasks.filter(
      (task) =>
        task.status === "active" &&
        agents.includes(task.owner) &&
        !isRunning(task.id) &&
        !isSkippedByRounds(state, task),
    )
    const woken = due.map(({ id }) => [id, wokenAt(runStateOf(state, id), "clock", now)] as const)
    return changeTo({ ...state, tick: now, pulses: { ...state.pulses, ...Object.fromEntries(woken) } })
  },

  settle(state, { archived }, { now }) {
    const [present, known] = [state.tasks, archived].map((tasks) => new Set(tasks.map(({ id }) => id)))
    const left = removeArchived(
      state,
      archived.filter(({ id }) => present?.has(id)),
    )
    const ended = left.state.tasks.flatMap((task) => {
      const { status } = task
      return status === "done" || status === "canceled"
        ? endedAs(left.state, task, { status, by: OUTSIDE, at: now })
        : []
    })
    const settled = removeArchived(left.state, ended)
    return { ...settled, archived: [...left.archived.filter(({ id }) => !known?.has(id)), ...settled.archived] }
  },
}

/** The only function that changes a board. Pure; forbidden changes throw a `BoardError` with their reason. */
export function decide(state: BoardState, command: BoardCommand, facts: BoardFacts): BoardChange {
  refuseOutside(state, command)
  const rule = RULES[command.type] as (state: BoardState, command: BoardCommand, facts: BoardFacts) => BoardChange
  return rule(state, command, facts)
}

/** Refuses changes of unverified tasks by agents: the next signed write would make the outside edit trusted. */
function refuseOutside(state: BoardState, command: BoardCommand): void {
  if (!("id" in command && "by" in command) || command.by.kind === "user" || !isUnverified(state, command.id)) return
  throw new BoardError(
    "conflict",
    `Task #${command.id} was changed outside the board: somebody has written to its file. A person has to look at it and start it; until then it can be read, and no more.`,
  )
}
