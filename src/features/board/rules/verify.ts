import { type BoardState, EMPTY, isUnverified, keeping } from "../state.ts"
import type { BoardTask } from "../task.ts"

/**
 * What makes an agent run is believed only if this installation wrote it. The project's file can be written by anybody:
 * by an agent that may only write files, or by whoever owned the repository before it was cloned. So the board as this
 * installation last wrote it is kept elsewhere, and the file is compared with that, task by task.
 */

/** What a hand's file says: the tasks, and the number that the next one is to have. Undefined where there is no file. */
export type Given = Pick<BoardState, "tasks" | "nextId"> | undefined

/**
 * The board that follows from a file that somebody else has written, and from what was believed before. A task whose
 * text is the same stays as it was. One that differs, or is new, waits for a person, and so does one whose subtask a
 * hand has taken away. Threads, wakes and all else that the file has no say in come from what was believed.
 */
export function believe(given: Given, kept: BoardState = EMPTY): BoardState {
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

/** The file is not there, or was emptied: what was on the board is kept, to be brought back. */
const gone = (given: Given, kept: BoardState): BoardState => ({
  ...kept,
  tasks: [],
  nextId: Math.max(given?.nextId ?? 1, kept.nextId),
  lost: [...kept.lost, ...kept.tasks],
})

/** A hand has ended a subtask, or taken it away: whoever waits for it does not go on because of that. */
export function withUnverifiedParent(state: BoardState, subtask: string): BoardState {
  const parent = state.tasks.find(
    ({ id, steps }) => !isUnverified(state, id) && steps.some(({ taskId }) => taskId === subtask),
  )
  return parent ? { ...state, outside: { ...state.outside, [parent.id]: parent } } : state
}

const isSame = (one: BoardTask, other: BoardTask): boolean => textOf(one) === textOf(other)

/** The text that a run reads, with who does it and whether anybody does. */
export const textOf = ({ title, description, owner, status, steps, resources }: BoardTask): string =>
  JSON.stringify([
    title,
    description,
    owner,
    status,
    steps.map(({ title, details = "", done, taskId = "" }) => [title, details, done, taskId]),
    resources.map(({ type, value, label = "" }) => [type, value, label]),
  ])

/** A task of the file with what the file has no say in. What we do not know in it stays. */
function withOurs({ threadId: _given, ...task }: BoardTask, before: BoardTask | undefined): BoardTask {
  if (!before) return task
  const { createdBy, createdAt, updatedAt, threadId } = before
  return { ...task, createdBy, createdAt, updatedAt, ...(threadId !== undefined && { threadId }) }
}
