import { type Actor, BoardError } from "../service.ts"
import { type BoardState, isUnverified, runStateOf } from "../state.ts"
import { type BoardTask, MOST_ID, type NewTask } from "../task.ts"
import { archive, setRunState, wake } from "./archive.ts"
import type { BoardChange, BoardFacts, CommandOf } from "./command.ts"
import { changeTo, nameOf, openTask, ownerNamed, planStep, replaceTask, resetUnlessOwnRun } from "./common.ts"
import { trustTask } from "./person.ts"
import { isSame } from "./verify.ts"

/** Creates, changes and ends tasks. */

export function create(
  state: BoardState,
  { input, by, ...prepared }: CommandOf<"create">,
  facts: BoardFacts,
): BoardChange {
  const added = add(state, { owner: nameOf(by), ...input }, by, prepared, facts)
  // Wakes the creator, too: the thread is a separate conversation.
  return { archived: [], task: added.task, state: wake(added.state, added.task.id, "created", facts.now) }
}

export function add(
  state: BoardState,
  input: NewTask & { readonly owner: string },
  by: Actor,
  { as = String(state.nextId), threadId }: Pick<CommandOf<"create">, "as" | "threadId">,
  { now, agents }: BoardFacts,
) {
  if (by.kind === "agent" && !agents.includes(by.agent))
    throw new BoardError("conflict", `The agent "${by.agent}" may not make tasks: it is not among the board's agents.`)
  if (Number(as) > MOST_ID)
    throw new BoardError(
      "conflict",
      `No task can be made: no id is left after #${MOST_ID}. Give the task that has it a lower one in the file, by hand.`,
    )
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

export function update(state: BoardState, { id, patch, by }: CommandOf<"update">, facts: BoardFacts): BoardChange {
  const task = openTask(state, id, facts)
  const { status, ...changes } = patch
  if (changes.owner !== undefined) ownerNamed(changes.owner, facts.agents)
  const changed = { ...task, ...changes }
  if (status === "done" || status === "canceled") return end(replaceTask(state, changed), changed, status, by, facts)
  if (status === "draft" && task.status === "active" && facts.isRunning(id))
    throw new BoardError("conflict", `Task #${id} is being worked on: it can become a draft when its run has ended.`)
  const next = { ...changed, status: status ?? task.status, updatedAt: facts.now }
  // A user's call resets failures even without a change.
  if (by.kind === "agent" && isSame(next, task)) return { ...changeTo(state), task }
  const touched = resetUnlessOwnRun(replaceTask(state, next), next, by)
  // Activating an outside edit trusts it.
  const activated = status === "active" && (task.status === "draft" || isUnverified(state, id))
  const known = activated ? trustTask(touched, id) : touched
  const cleared = next.status === "draft" ? asleep(known, id) : known
  return { archived: [], task: next, state: activated ? wake(cleared, id, "activated", facts.now) : cleared }
}

/** Drafts have neither wakes nor needs. */
function asleep(state: BoardState, id: string): BoardState {
  const { ran } = runStateOf(state, id)
  return setRunState(state, id, ran === undefined ? {} : { ran })
}

export function end(
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
