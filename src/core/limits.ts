import { isQueued, isUnattended, type Model, modelOf, slotsOf, type Task } from "./task.ts"

/** The limits that admission knows; 0 turns one off. */
export type SlotLimits = {
  readonly maxConcurrentTasks: number
  /** Of those that nobody launched, which are the board's. */
  readonly board?: { readonly maxConcurrentRuns: number }
  /** By `provider/model`. */
  readonly maxConcurrentPerModel: Readonly<Record<string, number>>
  /** What is set of single agents, by name. */
  readonly agents?: Readonly<Record<string, { readonly maxConcurrent?: number }>>
}

export const modelKey = (model: Model): string => `${model.provider}/${model.id}`

/** The model that a task asks now; undefined where its host chooses. */
export function modelKeyOf(task: Pick<Task, "model" | "run">): string | undefined {
  const model = modelOf(task)
  return model && modelKey(model)
}

const never = () => false

/**
 * The queued tasks that may start now, in the order in which they came. A slot is held by every active task that has
 * been admitted; nothing is counted beside the tasks themselves, so no slot can leak. `active` are the active tasks of
 * all sessions; `waitsForOwn` tells those that use no model because they only wait for their own tasks,
 * `waitsForOthers` those that others have to complete before: they hold no slot, and no place in the queue. `mostIn`: how
 * many may work in a place at once.
 */
export function admissible(
  active: Iterable<Task>,
  limits: SlotLimits,
  waitsForOwn: (task: Task) => boolean = never,
  waitsForOthers: (task: Task) => boolean = never,
  mostIn: (place: string) => number = () => 0,
): readonly Task[] {
  const byPlace = new Map<string, number>()
  const bySession = new Map<string, number>()
  const byModel = new Map<string, number>()
  const byAgent = new Map<string, number>()
  const queued: Task[] = []
  const take = (task: Task) => {
    if (task.team) return
    add(bySession, slotsOf(task))
    if (task.place) add(byPlace, task.place.kind)
    if (waitsForOwn(task)) return
    add(byAgent, task.agent)
    const key = modelKeyOf(task)
    if (key !== undefined) add(byModel, key)
  }
  for (const task of active) {
    if (!isQueued(task)) take(task)
    else if (!waitsForOthers(task)) queued.push(task)
  }
  queued.sort(byAge)
  return queued.filter((task) => {
    // Its parts take slots, and no model is asked for it itself.
    if (task.team) return true
    // Whoever starts what nobody launched counts those; what stood still comes back to its slot all the same.
    const most = isUnattended(task) ? (limits.board?.maxConcurrentRuns ?? 0) : limits.maxConcurrentTasks
    if (!below(bySession.get(slotsOf(task)), most)) return false
    const key = modelKeyOf(task)
    const limit = key === undefined ? 0 : own(limits.maxConcurrentPerModel, key, 0)
    if (key !== undefined && !below(byModel.get(key), limit)) return false
    if (task.place && !below(byPlace.get(task.place.kind), mostIn(task.place.kind))) return false
    const { maxConcurrent = 0 } = own(limits.agents ?? {}, task.agent, {})
    if (!below(byAgent.get(task.agent), maxConcurrent)) return false
    take(task)
    return true
  })
}

/** The place of a queued task among the queued ones of its session, from 1. */
export function placeInQueue(
  task: Task,
  active: Iterable<Task>,
  waitsForOthers: (task: Task) => boolean = never,
): number {
  let place = 1
  for (const other of active) {
    const stands = isQueued(other) && slotsOf(other) === slotsOf(task) && !other.team && !waitsForOthers(other)
    if (stands && byAge(other, task) < 0) place++
  }
  return place
}

/**
 * Milliseconds until a session that launched at `launches` (ascending) may launch again; 0 if it may now.
 * The window is the last minute; a launch that is later than now was counted before the clock was set back.
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

/** `otherwise` where there is none of that name, whatever every object has. */
const own = <Value>(record: Readonly<Record<string, Value>>, key: string, otherwise: Value): Value =>
  Object.hasOwn(record, key) ? (record[key] ?? otherwise) : otherwise

function add(map: Map<string, number>, key: string) {
  map.set(key, (map.get(key) ?? 0) + 1)
}
