import { createHash } from "node:crypto"
import { sliced } from "../../../lib/clock.ts"
import { type BoardState, EMPTY, isUnverified, keeping } from "../state.ts"
import { type BoardTask, MOST_ID } from "../task.ts"

/**
 * Anybody can write the project's file, so runs use only text that this installation has written. The file is compared,
 * task by task, with a signed copy in another folder.
 */

/** Tasks and next id of an edited file. Undefined without a file. */
export type EditedBoard = Pick<BoardState, "tasks" | "nextId"> | undefined

/**
 * Merges an edited file into the trusted state, which alone provides threads, wakes and all other data. Unchanged tasks
 * stay trusted; changed tasks, new tasks and parents of removed tasks wait for a user. Works in slices, because OpenCode
 * has one thread.
 */
export async function verifyBoard(
  given: EditedBoard,
  trusted: BoardState = EMPTY,
  pause = sliced(),
): Promise<BoardState> {
  if (given === undefined || (given.tasks.length === 0 && trusted.tasks.length > 0)) return gone(given, trusted)
  const known = new Map([...trusted.lost, ...trusted.tasks].map((task) => [task.id, task]))
  const present = new Set(given.tasks.map(({ id }) => id))
  const lost = trusted.lost.filter(({ id }) => !present.has(id))
  const ids = new Set([...present, ...lost.map(({ id }) => id)])
  const stays = (id: string) => ids.has(id)
  const tasks: BoardTask[] = []
  const changed: Record<string, BoardTask | null> = {}
  for (const task of given.tasks) {
    await pause()
    const before = known.get(task.id)
    const isAsBefore = before !== undefined && isSame(task, before)
    if (!isAsBefore && !isUnverified(trusted, task.id)) changed[task.id] = before ?? null
    tasks.push(withOurs(task, before))
  }
  const state: BoardState = {
    ...trusted,
    tasks,
    nextId: nextIdOf(given, trusted),
    outside: { ...keeping(trusted.outside, stays), ...changed },
    lost,
    pulses: keeping(trusted.pulses, stays),
  }
  return withUnverifiedParents(state, new Set(trusted.tasks.flatMap(({ id }) => (present.has(id) ? [] : id))))
}

/** The greater id. After an edit with the highest id, none is left above the file's: then the trusted one. */
const nextIdOf = (given: EditedBoard, { nextId }: BoardState): number =>
  given === undefined || given.nextId > MOST_ID ? nextId : Math.max(given.nextId, nextId)

/** State for a missing or empty file: its former tasks are kept, so that a user can restore them. */
const gone = (given: EditedBoard, trusted: BoardState): BoardState => ({
  ...trusted,
  tasks: [],
  nextId: nextIdOf(given, trusted),
  lost: [...trusted.lost, ...trusted.tasks],
})

/** Gives the next id to a new task of an edited file. */
export const renumbered = ({ tasks, nextId, outside, ...rest }: BoardState, task: BoardTask): BoardState => ({
  ...rest,
  tasks: tasks.map((each) => (each === task ? { ...task, id: String(nextId) } : each)),
  nextId: nextId + 1,
  outside: { ...keeping(outside, (id) => id !== task.id), [nextId]: null },
})

/** Called when an outside edit has ended or removed subtasks: their parents become unverified and wait for a user. */
export function withUnverifiedParents(state: BoardState, subtasks: ReadonlySet<string>): BoardState {
  const parents = state.tasks.filter(
    ({ id, steps }) =>
      !isUnverified(state, id) && steps.some(({ taskId }) => taskId !== undefined && subtasks.has(taskId)),
  )
  return { ...state, outside: { ...state.outside, ...Object.fromEntries(parents.map((task) => [task.id, task])) } }
}

export const isSame = (one: BoardTask, other: BoardTask): boolean => textOf(one) === textOf(other)

/** Fields of a task whose change makes the task unverified: owner, status and the text that a run reads. */
export const textOf = ({ title, description, owner, status, steps, resources }: BoardTask): string =>
  JSON.stringify([
    title,
    description,
    owner,
    status,
    steps.map(({ title, details = "", done, taskId = "" }) => [title, details, done, taskId]),
    resources.map(({ type, value, label = "" }) => [type, value, label]),
  ])

/** Digest of a task's text as a user was shown it. It has the id, so that no copy of the text counts as seen. */
export const textDigest = (task: BoardTask): string =>
  createHash("sha256")
    .update(`${task.id} ${textOf(task)}`)
    .digest("base64url")

/** Task from the file, with trusted values for the fields that the file must not set. Unknown fields stay. */
function withOurs({ threadId: _given, ...task }: BoardTask, before: BoardTask | undefined): BoardTask {
  if (!before) return task
  const { createdBy, createdAt, updatedAt, threadId } = before
  return { ...task, createdBy, createdAt, updatedAt, ...(threadId !== undefined && { threadId }) }
}
