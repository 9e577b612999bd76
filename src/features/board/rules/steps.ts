import { BoardError } from "../service.ts"
import { type BoardState, findTask, parentOf, subtasksOf } from "../state.ts"
import { type BoardTask, MOST_ITEMS } from "../task.ts"
import { wake } from "./archive.ts"
import type { BoardChange, BoardFacts, CommandOf } from "./command.ts"
import { changed, entryAt, openTask, planStep } from "./common.ts"
import { add } from "./tasks.ts"

/** Changes of plan, subtasks and resources. */

export function replacePlan(
  state: BoardState,
  { id, steps, by }: CommandOf<"update steps">,
  facts: BoardFacts,
): BoardChange {
  const task = openTask(state, id, facts)
  const [open] = subtasksOf(state, task)
  if (open)
    throw new BoardError(
      "conflict",
      `The plan of task #${id} cannot be replaced while its subtask #${open.id} is ${open.status}: change single steps, or end the subtask first.`,
    )
  return changed(state, { ...task, steps: steps.map(planStep) }, by, facts)
}

export function updateStep(
  state: BoardState,
  { id, index, patch, by }: CommandOf<"update step">,
  facts: BoardFacts,
): BoardChange {
  const task = openTask(state, id, facts)
  const step = entryAt("step", task.steps, index)
  return changed(state, { ...task, steps: task.steps.with(index, { ...step, ...patch }) }, by, facts)
}

export function createSubtask(
  state: BoardState,
  { id, index, input, by, ...prepared }: CommandOf<"create subtask">,
  facts: BoardFacts,
): BoardChange {
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

export function addResource(
  state: BoardState,
  { id, resource, by }: CommandOf<"add resource">,
  facts: BoardFacts,
): BoardChange {
  const task = openTask(state, id, facts)
  if (task.resources.length >= MOST_ITEMS)
    throw new BoardError("invalid", `A task has at most ${MOST_ITEMS} resources: take one off that is not needed.`)
  return changed(state, { ...task, resources: [...task.resources, resource] }, by, facts)
}

export function removeResource(
  state: BoardState,
  { id, index, by }: CommandOf<"remove resource">,
  facts: BoardFacts,
): BoardChange {
  const task = openTask(state, id, facts)
  entryAt("resource", task.resources, index)
  return changed(state, { ...task, resources: task.resources.toSpliced(index, 1) }, by, facts)
}
