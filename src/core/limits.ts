import { MINUTE_MS } from "../lib/format.ts"
import { pauseOf } from "./pause.ts"
import {
  type Ending,
  isMember,
  isQueued,
  isUnattended,
  type Model,
  machineOf,
  modelOf,
  slotSessionOf,
  type Task,
} from "./task.ts"

/** Limits on slots, by which runs are admitted; 0 turns a limit off. */
export type SlotLimits = {
  readonly maxConcurrentTasks: number
  /** Limit for runs that no session launched. */
  readonly maxUnattended?: number
  readonly maxConcurrentPerModel: Readonly<Record<string, number>>
  /** Limits of single agents, by name. */
  readonly agents?: Readonly<Record<string, { readonly maxConcurrent?: number }>>
}

export const modelKey = (model: Model): string => `${model.provider}/${model.id}`

/** Model of a name, `provider/model` or `provider/model#variant`. A model's id may contain `/` and `#`, a variant neither. */
export function modelOfName(name: string): Model {
  const [provider = "", ...rest] = name.split("/")
  const [id = "", variant] = rest.join("/").split(/#(?=[^#/]+$)/)
  return { provider, id, ...(variant !== undefined && { variant }) }
}

/** `provider/model` that the task uses now; undefined where OpenCode chooses the model. */
export function modelKeyOf(task: Pick<Task, "model" | "run">): string | undefined {
  const model = modelOf(task)
  return model && modelKey(model)
}

/** A model, with the other machine that asks it for the task: what is refused there is not refused here. */
export function requestKey(model: Model, task?: Pick<Task, "place">): string {
  const machine = task && machineOf(task)
  return machine === undefined ? modelKey(model) : `${modelKey(model)} on ${machine}`
}

/** `requestKey` of the model that the task uses now; undefined where OpenCode chooses the model. */
export function requestKeyOf(task: Pick<Task, "model" | "run" | "place">): string | undefined {
  const model = modelOf(task)
  return model && requestKey(model, task)
}

const never = () => false

/** Slots that tasks hold now. They are counted from the tasks themselves, so no slot can leak. */
export type Slots = {
  /** Limit that keeps the task from taking a slot. `of`: its model, place or agent; absent for its session's limit. */
  fullLimit(task: Task): { readonly of?: string } | undefined
  take(task: Task): void
}

/**
 * Counts the slots in use. `holders`: the tasks of all sessions that have a slot; `waitsForOwn`: whether a task uses no
 * model because it only waits for tasks that it launched; `mostIn`: how many tasks may work in a place at once.
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
    // A group takes no slot: its members take slots, and the group itself asks no model.
    if (task.group) return
    add(bySession, slotSessionOf(task))
    if (task.place) add(byPlace, task.place.kind)
    if (waitsForOwn(task)) return
    add(byAgent, task.agent)
    const key = modelKeyOf(task)
    if (key !== undefined) add(byModel, key)
  }
  const fullLimit = (task: Task) => {
    if (task.group) return undefined
    const { agent, place } = task
    const most = isUnattended(task) ? (limits.maxUnattended ?? 0) : limits.maxConcurrentTasks
    if (!below(bySession.get(slotSessionOf(task)), most)) return {}
    const key = modelKeyOf(task)
    const limit = key === undefined ? 0 : own(limits.maxConcurrentPerModel, key, 0)
    if (key !== undefined && !below(byModel.get(key), limit)) return { of: key }
    if (place && !below(byPlace.get(place.kind), mostIn(place.kind))) return { of: place.kind }
    const { maxConcurrent = 0 } = own(limits.agents ?? {}, agent, {})
    return below(byAgent.get(agent), maxConcurrent) ? undefined : { of: `agent ${agent}` }
  }
  for (const task of holders) take(task)
  return { fullLimit, take }
}

/**
 * Order in which runs are admitted: paused runs first, the longest paused at the front; then by age, members of groups
 * last.
 */
export const byAdmissionOrder = (a: Task, b: Task): number =>
  pausedAt(a) - pausedAt(b) || Number(isMember(a)) - Number(isMember(b)) || byAge(a, b)

const pausedAt = (task: Task): number => pauseOf(task.run)?.at ?? Number.MAX_SAFE_INTEGER

/** Position of a queued task among the queued tasks of its session, from 1. */
export function placeInQueue(
  task: Task,
  active: Iterable<Task>,
  waitsForOthers: (task: Task) => boolean = never,
): number {
  let place = 1
  for (const other of active) {
    const isCandidate =
      isQueued(other) && slotSessionOf(other) === slotSessionOf(task) && !other.group && !waitsForOthers(other)
    if (isCandidate && byAdmissionOrder(other, task) < 0) place++
  }
  return place
}

/**
 * Milliseconds until a session may launch again; 0 for now. `launches` is ascending; entries later than `now` come from
 * before the clock was set back, and do not count.
 */
export function launchDelay(launches: readonly number[], maxPerMinute: number, now: number): number {
  const recent = launches.filter((at) => at > now - MINUTE_MS && at <= now)
  if (maxPerMinute === 0 || recent.length < maxPerMinute) return 0
  const [oldest = now] = recent.slice(-maxPerMinute)
  return oldest + MINUTE_MS - now
}

const byAge = (a: Task, b: Task): number => a.run.createdAt - b.run.createdAt || (a.id < b.id ? -1 : 1)

const below = (count: number | undefined, limit: number): boolean => limit === 0 || (count ?? 0) < limit

/** Reads own properties only: a name such as `constructor` must not find a property of Object. */
const own = <Value>(record: Readonly<Record<string, Value>>, key: string, otherwise: Value): Value =>
  Object.hasOwn(record, key) ? (record[key] ?? otherwise) : otherwise

function add(map: Map<string, number>, key: string) {
  map.set(key, (map.get(key) ?? 0) + 1)
}

/** Wait of a run that keeps its slot. `behind`: task that it waits for; `until`: latest end of the wait. */
export type Held = { readonly behind: string; readonly until: number }

/**
 * Why a run may not start or go on now. `by`: source of the block; `behind`: what the run waits for; `until`: when the
 * wait is over at the latest; `keepsSlot`: the waiting run keeps its slot, and its time counts; `ends`: how the run
 * ends, since it can never go on.
 */
export type Block =
  | { readonly by: string; readonly behind?: string; readonly until?: number; readonly keepsSlot?: undefined }
  | (Held & { readonly by: string; readonly keepsSlot: true })
  | { readonly by: string; readonly ends: Ending }

/** Source of the block of a run that waits for a free slot. `behind`: model, place or agent that has no free slot. */
export const SLOTS = "slots"

/**
 * A feature or a part of the runtime that may block runs. The scheduler asks every source about every waiting run, and
 * only the scheduler admits runs.
 */
export type BlockSource = {
  /** Lets the source look for changes. The scheduler calls this at the beginning of each pass. */
  review?(): void
  /**
   * Returns undefined where the source lets the run go on. Must not change anything. The session of `task` may not
   * exist yet.
   */
  blocks(task: Task): Block | undefined
  /** Called when the scheduler has admitted a run, before it looks at the next run. */
  admitted?(task: Task): void
}

/**
 * Whether a run has a slot or takes one: nothing blocks the run, the block ends it, or it keeps its slot while it
 * waits.
 */
export const takesSlot = (block: Block | undefined): boolean =>
  block === undefined || "ends" in block || block.keepsSlot === true
