import { type Actor, BoardError } from "../service.ts"
import { type BoardState, findTask, isUnverified, parentOf, runStateOf, subtasksOf } from "../state.ts"
import { type BoardTask, MOST_ITEMS, type NewTask } from "../task.ts"
import { archive, setRunState, wake } from "./archive.ts"
import {
  type BoardChange,
  type BoardFacts,
  type CommandOf,
  changed,
  changeTo,
  entryAt,
  nameOf,
  openTask,
  ownerNamed,
  planStep,
  type Rules,
  replaceTask,
  resetUnlessOwnRun,
  trustTasks,
} from "./command.ts"
import { isSame } from "./verify.ts"

/** Rules that create, change and end tasks. */
export const taskRules = {
  create(state, { input, by, ...prepared }, facts) {
    const added = add(state, { owner: nameOf(by), ...input }, by, prepared, facts)
    // The owner is woken even if it created the task, because the thread is a separate conversation.
    return changeTo(wake(added.state, added.task.id, "created", facts.now), added.task)
  },

  update(state, { id, patch, by, seen }, facts) {
    const task = openTask(state, id, facts)
    const { status, ...changes } = patch
    if (changes.owner !== undefined) ownerNamed(changes.owner, facts.agents)
    const changed = { ...task, ...changes }
    if (status === "done" || status === "canceled") return end(replaceTask(state, changed), changed, status, by, facts)
    if (status === "draft" && task.status === "active" && facts.isRunning(id))
      throw new BoardError("conflict", `Task #${id} is being worked on: it can become a draft when its run has ended.`)
    const next = { ...changed, status: status ?? task.status, updatedAt: facts.now }
    // An agent's call without a change does nothing. A user's call still resets failures.
    if (by.kind === "agent" && isSame(next, task)) return changeTo(state, task)
    // An outside edit becomes trusted when a user activates the task.
    const activated = status === "active" && (task.status === "draft" || isUnverified(state, id))
    const known = activated ? trustTasks(state, [task], { seen }) : state
    const touched = resetUnlessOwnRun(replaceTask(known, next), next, by)
    const cleared = next.status === "draft" ? asleep(touched, id) : touched
    return changeTo(activated ? wake(cleared, id, "activated", facts.now) : cleared, next)
  },

  complete: (state, { id, by }, facts) => end(state, openTask(state, id, facts), "done", by, facts),

  cancel: (state, { id, by }, facts) => end(state, openTask(state, id, facts), "canceled", by, facts),

  "update steps"(state, { id, steps, by }, facts) {
    const task = openTask(state, id, facts)
    const [open] = subtasksOf(state, task)
    if (open)
      throw new BoardError(
        "conflict",
        `The plan of task #${id} cannot be replaced while its subtask #${open.id} is ${open.status}: change single steps, or end the subtask first.`,
      )
    return changed(state, { ...task, steps: steps.map(planStep) }, by, facts)
  },

  "update step"(state, { id, index, patch, by }, facts) {
    const task = openTask(state, id, facts)
    const step = entryAt("step", task.steps, index)
    return changed(state, { ...task, steps: task.steps.with(index, { ...step, ...patch }) }, by, facts)
  },

  "create subtask"(state, { id, index, input, by, ...prepared }, facts) {
    const parent = openTask(state, id, facts)
    if (by.kind === "agent" && by.agent !== parent.owner)
      throw new BoardError(
        "conflict",
        `Only the owner of task #${id} ("${parent.owner}") may give its steps away: have it do so, or make a task beside it.`,
      )
    const step = entryAt("step", parent.steps, index)
    refuseSecondSubtask(state, step.taskId, index, facts)
    refuseTooDeep(state, parent)
    const added = add(state, input, by, prepared, facts)
    const { task: subtask } = added
    const linked = { ...parent, steps: parent.steps.with(index, { ...step, taskId: subtask.id }) }
    const change = changed(added.state, linked, by, facts)
    return { ...change, subtask, state: wake(change.state, subtask.id, "created", facts.now) }
  },

  "add resource"(state, { id, resource, by }, facts) {
    const task = openTask(state, id, facts)
    if (task.resources.length >= MOST_ITEMS)
      throw new BoardError("invalid", `A task has at most ${MOST_ITEMS} resources: take one off that is not needed.`)
    return changed(state, { ...task, resources: [...task.resources, resource] }, by, facts)
  },

  "remove resource"(state, { id, index, by }, facts) {
    const task = openTask(state, id, facts)
    entryAt("resource", task.resources, index)
    return changed(state, { ...task, resources: task.resources.toSpliced(index, 1) }, by, facts)
  },
} satisfies Partial<Rules>

function add(
  state: BoardState,
  input: NewTask & { readonly owner: string },
  by: Actor,
  { as = String(state.nextId), threadId }: Pick<CommandOf<"create">, "as" | "threadId">,
  { now, agents }: BoardFacts,
) {
  if (by.kind === "agent" && !agents.includes(by.agent))
    throw new BoardError("conflict", `The agent "${by.agent}" may not make tasks: it is not among the board's agents.`)
  const task: BoardTask = {
    id: as,
    title: input.title,
    description: input.description ?? "",
    owner: ownerNamed(input.owner, agents),
    createdBy: nameOf(by),
    status: input.status ?? "active",
    steps: input.steps?.map(planStep) ?? [],
    resources: input.resources ?? [],
    ...(threadId !== undefined && { threadId }),
    createdAt: now,
    updatedAt: now,
  }
  const nextId = Math.max(state.nextId, Number(as) + 1)
  return { task, state: { ...state, tasks: [...state.tasks, task], nextId } }
}

/** Clears the run state of a task that becomes a draft. Only the start of its last run stays. */
function asleep(state: BoardState, id: string): BoardState {
  const { ran } = runStateOf(state, id)
  return setRunState(state, id, ran === undefined ? {} : { ran })
}

function end(
  state: BoardState,
  task: BoardTask,
  status: "done" | "canceled",
  by: Actor,
  { now }: BoardFacts,
): BoardChange {
  if (status === "done" && task.status === "draft")
    throw new BoardError(
      "conflict",
      `Task #${task.id} is a draft: make it active before it is completed, or cancel it.`,
    )
  const leaving = archive(state, task, {
    status,
    at: now,
    by: nameOf(by),
    ...(by.kind === "agent" && { in: by.sessionID }),
  })
  return { task: leaving.archived[0], ...leaving }
}

/** Greatest depth of subtasks. */
const MOST_DEPTH = 50

function refuseTooDeep(state: BoardState, parent: BoardTask): void {
  let above: BoardTask | undefined = parent
  for (let depth = 1; above; depth++) {
    if (depth > MOST_DEPTH)
      throw new BoardError(
        "conflict",
        `Task #${parent.id} lies ${MOST_DEPTH} subtasks deep already, and no deeper one is made. Do the step yourself, or make a task beside it.`,
      )
    above = parentOf(state, above.id)
  }
}

function refuseSecondSubtask(state: BoardState, taskId: string | undefined, index: number, facts: BoardFacts): void {
  if (taskId === undefined) return
  const status = findTask(state, taskId)?.status ?? facts.ended(taskId)
  if (status === undefined || status === "canceled") return
  const next =
    status === "done"
      ? "Use what it left, or give away another step."
      : "Look at it, or cancel it to give the step to another."
  throw new BoardError("conflict", `Step ${index} has its subtask already: #${taskId}, which is ${status}. ${next}`)
}
