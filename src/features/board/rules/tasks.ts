import { type Actor, BoardError, type NewTask, type TaskPatch } from "../service.ts"
import { type BoardState, isUnverified, runStateOf } from "../state.ts"
import { BOARD_STATUSES, type BoardStatus, type BoardTask, isSameText, MOST_ID } from "../task.ts"
import { archive, setRunState, wake } from "./archive.ts"
import * as check from "./checks.ts"
import type { BoardChange, BoardFacts, CommandOf } from "./command.ts"
import { changeTo, nameOf, openTask, replaceTask, resetUnlessOwnRun } from "./common.ts"
import { trustTask } from "./person.ts"

/** Creates, changes and ends tasks. */

export function create(
  state: BoardState,
  { input, by, ...prepared }: CommandOf<"create">,
  facts: BoardFacts,
): BoardChange {
  if (by.kind === "user" && !check.isGiven(input.owner))
    throw new BoardError("invalid", "`owner` is missing: name the agent that works on the task.")
  const status = input.status ?? "active"
  if (status !== "active" && status !== "draft")
    throw new BoardError("invalid", `A new task is "active" or "draft", not ${JSON.stringify(status)}.`)
  const owner = check.owner(input.owner ?? nameOf(by), facts.agents)
  const added = add(state, { ...input, owner, status }, by, prepared, facts)
  // Wakes the creator, too: the thread is a separate conversation.
  return { ok: true, archived: [], task: added.task, state: wake(added.state, added.task.id, "created", facts.now) }
}

type Checked = NewTask & { readonly owner: string; readonly status: "active" | "draft" }

export function add(
  state: BoardState,
  input: Checked,
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
    title: check.title(input.title),
    description: check.longText("description", input.description),
    owner: input.owner,
    createdBy: nameOf(by),
    status: input.status,
    steps: check.newSteps(input.steps ?? undefined),
    resources: check.newResources(input.resources ?? undefined),
    ...(threadId !== undefined && { threadId }),
    createdAt: now,
    updatedAt: now,
  }
  const nextId = Math.max(state.nextId, Number(as) + 1)
  return { task, state: { ...state, tasks: [...state.tasks, task], nextId } }
}

export function update(state: BoardState, { id, patch, by }: CommandOf<"update">, facts: BoardFacts): BoardChange {
  const task = openTask(state, id, facts)
  const { status } = patch
  const changed = { ...task, ...changesOf(patch, facts.agents) }
  if (check.isGiven(status) && !BOARD_STATUSES.includes(status as BoardStatus))
    throw new BoardError(
      "invalid",
      `\`status\` must be one of ${BOARD_STATUSES.join(", ")}, not ${JSON.stringify(status)}.`,
    )
  if (status === "done" || status === "canceled") return end(replaceTask(state, changed), changed, status, by, facts)
  if (status === "draft" && task.status === "active" && facts.isRunning(id))
    throw new BoardError("conflict", `Task #${id} is being worked on: it can become a draft when its run has ended.`)
  const next = { ...changed, status: status ?? task.status, updatedAt: facts.now }
  // A user's call resets failures even without a change.
  if (by.kind === "agent" && isSameText(next, task)) return { ...changeTo(state), task }
  const touched = resetUnlessOwnRun(replaceTask(state, next), next, by)
  // Activating an outside edit trusts it.
  const activated = status === "active" && (task.status === "draft" || isUnverified(state, id))
  const known = activated ? trustTask(touched, id) : touched
  const cleared = next.status === "draft" ? asleep(known, id) : known
  return { ok: true, archived: [], task: next, state: activated ? wake(cleared, id, "activated", facts.now) : cleared }
}

/** Drafts have neither wakes nor needs. */
function asleep(state: BoardState, id: string): BoardState {
  const { ran } = runStateOf(state, id)
  return setRunState(state, id, ran === undefined ? {} : { ran })
}

function changesOf(patch: TaskPatch, agents: readonly string[]): Partial<BoardTask> {
  const { title, description, owner, status } = patch
  if (![title, description, owner, status].some(check.isGiven))
    throw new BoardError(
      "invalid",
      "Nothing to change: give at least one of `title`, `description`, `status` and `owner`.",
    )
  return {
    ...(check.isGiven(title) && { title: check.title(title) }),
    ...(check.isGiven(description) && { description: check.longText("description", description) }),
    ...(check.isGiven(owner) && { owner: check.owner(owner, agents) }),
  }
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
  return { ok: true, task: leaving.archived[0], ...leaving }
}
