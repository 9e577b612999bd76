import { type BoardState, EMPTY, isUnverified, keeping } from "../state.ts"
import type { BoardTask } from "../task.ts"

/**
 * Trust in the project's file. Anybody can write it, so runs use only text that this installation has written: a signed
 * copy elsewhere is compared with the file, task by task.
 */

/** Tasks and next id of an edited file. Undefined without a file. */
export type EditedBoard = Pick<BoardState, "tasks" | "nextId"> | undefined

/**
 * Board from an edited file and the trusted state. Unchanged tasks stay trusted; changed, new and parents of removed
 * ones wait for a user. Threads, wakes and all else come from the trusted state.
 */
export function verifyBoard(given: EditedBoard, kept: BoardState = EMPTY): BoardState {
  if (given === undefined || (given.tasks.length === 0 && kept.tasks.length > 0)) return gone(given, kept)
  const known = new Map([...kept.lost, ...kept.tasks].map((task) => [task.id, task]))
  const present = new Set(given.tasks.map(({ id }) => id))
  const lost = kept.lost.filter(({ id }) => !present.has(id))
  const ids = new Set([...present, ...lost.map(({ id }) => id)])
  const stays = (id: string) => ids.has(id)
  const changed = given.tasks.flatMap((task) => {
    const before = known.get(task.id)
    const isAsBefore = before !== undefined && isSame(task, before)
    return isAsBefore || isUnverified(kept, task.id) ? [] : [[task.id, before ?? null] as const]
  })
  const state: BoardState = {
    ...kept,
    tasks: given.tasks.map((task) => withOurs(task, known.get(task.id))),
    nextId: Math.max(given.nextId, kept.nextId),
    outside: { ...keeping(kept.outside, stays), ...Object.fromEntries(changed) },
    lost,
    pulses: keeping(kept.pulses, stays),
  }
  const taken = kept.tasks.filter(({ id }) => !present.has(id))
  return taken.reduce((next, { id }) => withUnverifiedParent(next, id), state)
}

/** The file is missing or empty: its tasks are kept for a restore. */
const gone = (given: EditedBoard, kept: BoardState): BoardState => ({
  ...kept,
  tasks: [],
  nextId: Math.max(given?.nextId ?? 1, kept.nextId),
  lost: [...kept.lost, ...kept.tasks],
})

/** A subtask was ended or removed by an outside edit: its parent waits for a user. */
export function withUnverifiedParent(state: BoardState, subtask: string): BoardState {
  const parent = state.tasks.find(
    ({ id, steps }) => !isUnverified(state, id) && steps.some(({ taskId }) => taskId === subtask),
  )
  return parent ? { ...state, outside: { ...state.outside, [parent.id]: parent } } : state
}

export const isSame = (one: BoardTask, other: BoardTask): boolean => textOf(one) === textOf(other)

/** Text that a run reads, with owner and status. */
export const textOf = ({ title, description, owner, status, steps, resources }: BoardTask): string =>
  JSON.stringify([
    title,
    description,
    owner,
    status,
    steps.map(({ title, details = "", done, taskId = "" }) => [title, details, done, taskId]),
    resources.map(({ type, value, label = "" }) => [type, value, label]),
  ])

/** A task of the file with the fields that the file cannot set. Unknown fields stay. */
function withOurs({ threadId: _given, ...task }: BoardTask, before: BoardTask | undefined): BoardTask {
  if (!before) return task
  const { createdBy, createdAt, updatedAt, threadId } = before
  return { ...task, createdBy, createdAt, updatedAt, ...(threadId !== undefined && { threadId }) }
}
