import { pauseOf } from "./pause.ts"
import { isMember, isQueued, isUnattended, type Model, modelOf, slotSessionOf, type Task } from "./task.ts"

/** Limits that admission knows; 0 turns one off. */
export type SlotLimits = {
  readonly maxConcurrentTasks: number
  /** Limit for runs that nobody launched, which are the board's. */
  readonly board?: { readonly maxConcurrentRuns: number }
  readonly maxConcurrentPerModel: Readonly<Record<string, number>>
  /** Limits of single agents, by name. */
  readonly agents?: Readonly<Record<string, { readonly maxConcurrent?: number }>>
}

export const modelKey = (model: Model): string => `${model.provider}/${model.id}`

/** `provider/model` that the task uses now; undefined where OpenCode chooses. */
export function modelKeyOf(task: Pick<Task, "model" | "run">): string | undefined {
  const model = modelOf(task)
  return model && modelKey(model)
}

const never = () => false

/** Slots as the tasks at work hold them. Nothing is counted beside the tasks themselves, so no slot can leak. */
export type Slots = {
  /** Whether a limit keeps a task from taking one. */
  isFull(task: Task): boolean
  take(task: Task): void
}

/**
 * `holders`: the tasks of all sessions that have a slot. `waitsForOwn` tells those that use no model because they only
 * wait for their own tasks. `mostIn`: how many may work in a place at once.
 */
export function slotsHeld(
  holders: Iterable<Task>,
  limits: SlotLimits,
  waitsForOwn: (task: Task) => boolean = never,
  mostIn: (place: string) => number = () => 0,
): Slots {
  const byPlace = new Map<string, number>()
  const bySession = new Map<string, number>()
  const byModel = new Map<string, number>()
  const byAgent = new Map<string, number>()
  const take = (task: Task) => {
    // The members of a group take slots, and no model is asked for the group itself.
    if (task.group) return
    add(bySession, slotSessionOf(task))
    if (task.place) add(byPlace, task.place.kind)
    if (waitsForOwn(task)) return
    add(byAgent, task.agent)
    const key = modelKeyOf(task)
    if (key !== undefined) add(byModel, key)
  }
  const isFull = (task: Task) => {
    if (task.group) return false
    // Whoever starts what nobody launched counts those; what was paused comes back to its slot all the same.
    const most = isUnattended(task) ? (limits.board?.maxConcurrentRuns ?? 0) : limits.maxConcurrentTasks
    if (!below(bySession.get(slotSessionOf(task)), most)) return true
    const key = modelKeyOf(task)
    const limit = key === undefined ? 0 : own(limits.maxConcurrentPerModel, key, 0)
    if (key !== undefined && !below(byModel.get(key), limit)) return true
    if (task.place && !below(byPlace.get(task.place.kind), mostIn(task.place.kind))) return true
    const { maxConcurrent = 0 } = own(limits.agents ?? {}, task.agent, {})
    return !below(byAgent.get(task.agent), maxConcurrent)
  }
  for (const task of holders) take(task)
  return { isFull, take }
}

/** The order in which runs go: paused ones first, the longest paused first; then by age, members of groups last. */
export const byAdmissionOrder = (a: Task, b: Task): number =>
  pausedAt(a) - pausedAt(b) || Number(isMember(a)) - Number(isMember(b)) || byAge(a, b)

const pausedAt = (task: Task): number => pauseOf(task.run)?.at ?? Number.MAX_SAFE_INTEGER

/** Position of a queued task among those of its session, from 1. */
export function placeInQueue(
  task: Task,
  active: Iterable<Task>,
  waitsForOthers: (task: Task) => boolean = never,
): number {
  let place = 1
  for (const other of active) {
    const stands =
      isQueued(other) && slotSessionOf(other) === slotSessionOf(task) && !other.group && !waitsForOthers(other)
    if (stands && byAdmissionOrder(other, task) < 0) place++
  }
  return place
}

/**
 * Milliseconds until a session may launch again; 0 for now. `launches` is ascending, and entries later than `now` come
 * from before the clock was set back.
 */
export function launchDelay(launches: readonly number[], maxPerMinute: number, now: number): number {
  const recent = launches.filter((at) => at > now - MINUTE_MS && at <= now)
  if (maxPerMinute === 0 || recent.length < maxPerMinute) return 0
  const [oldest = now] = recent.slice(-maxPerMinute)
  return oldest + MINUTE_MS - now
}

export const MINUTE_MS = 60_000

const byAge = (a: Task, b: Task): number => a.run.createdAt - b.run.createdAt || (a.id < b.id ? -1 : 1)

const below = (count: number | undefined, limit: number): boolean => limit === 0 || (count ?? 0) < limit

/** Own property only: a name like `constructor` must not find Object's. */
const own = <Value>(record: Readonly<Record<string, Value>>, key: string, otherwise: Value): Value =>
  Object.hasOwn(record, key) ? (record[key] ?? otherwise) : otherwise

function add(map: Map<string, number>, key: string) {
  map.set(key, (map.get(key) ?? 0) + 1)
}
