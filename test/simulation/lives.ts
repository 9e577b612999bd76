import type { LaunchRequest } from "../../src/runtime/launch/request.ts"
import type { CallFault } from "../support/fake-api.ts"
import type { EventFault } from "../support/fake-process.ts"
import { INPUTS_CACHED } from "./cached.ts"
import { FAR } from "./far.ts"
import { farOf, INPUTS_HOSTS } from "./hosts.ts"
import { FAILURES, INPUTS, INPUTS_WITH_CHECKS, type Input, kindsFor } from "./inputs.ts"
import { LAST_WORDS, type LastWord, SCHEMA } from "./kinds.ts"
import { INPUTS_PARKED } from "./parked.ts"
import { CHECKS } from "./places.ts"
import { INPUTS_PURSE } from "./purses.ts"
import { Random } from "./random.ts"
import { endLife, settleStep } from "./rest.ts"
import { type EndOptions, World } from "./world.ts"

/** A life in which a promise was broken, with what happened in it. */
export class BrokenLife extends Error {
  override readonly name = "BrokenLife"
  readonly breaches: readonly string[]

  constructor(what: string, breaches: readonly string[], history: string) {
    super(`${what}:\n${breaches.map((breach) => `- ${breach}`).join("\n")}\n\n${history}`)
    this.breaches = breaches
  }
}

const PASSING = [0, 1, 5, 20, 300, 2500, 12_000]
const LAST_WORD_KINDS = Object.keys(LAST_WORDS) as LastWord[]

/** How often calls and events meet something. */
const WEATHER = [
  { weight: 3, calls: 0, events: 0, holds: 0 },
  { weight: 3, calls: 0.03, events: 0.05, holds: 0.03 },
  { weight: 1, calls: 0.15, events: 0.2, holds: 0.1 },
]

function circumstancesOf(random: Random, kind: Kind): EndOptions {
  const own: Own = LIVES[kind]
  const budget = random.pick([0, 0, 0, 0.02, 0.055])
  const stallTimeout = random.pick([20_000, 0])
  const permissionTimeout = random.pick([10_000, 10_000, 0])
  // What only a time limit would end has one.
  const isEndless = kind !== "checks" && stallTimeout > 0 && permissionTimeout > 0 && random.chance(0.3)
  const far = kind === "hosts" ? random.pick([20_000, 0]) : undefined
  const maxConcurrentTasks = random.pick([1, 2, 2, 3, 0])
  const lastWord = random.pick([3000, 0])
  const pollInterval = random.pick([2000, 2000, 500, 0])
  return {
    ...(far !== undefined && { far }),
    ...(kind === "purse" && { purse: true }),
    options: {
      maxDepth: 2,
      maxConcurrentTasks,
      // Without polls, nobody finds a question whose event was lost.
      taskTimeout: isEndless && pollInterval > 0 ? 0 : 60_000,
      stallTimeout,
      permissionTimeout,
      lastWord,
      pollInterval,
      maxLaunchesPerMinute: 0,
      maxHistory: random.pick([0, 0, 2]),
      maxCostPerSession: budget,
      wake: random.pick(["each", "each", "last", "never"] as const),
      resumable: ["completed", "error", "cancelled"],
      ...own.options?.(random),
      ...(far !== undefined && { hosts: { [FAR]: { ssh: FAR, contactTimeout: far } } }),
    },
    lastWord: random.pick(LAST_WORD_KINDS),
    strangers: random.chance(0.1),
    snapshotMs: random.pick([0, 0, 200]),
  }
}

/** What there was in a life, or in many. */
export type Figures = {
  readonly inputs: number
  readonly calls: number
  readonly requests: number
  /** Tasks whose process died, by what they did or waited for then. */
  readonly deaths: Readonly<Record<string, number>>
}

export const NO_FIGURES: Figures = { inputs: 0, calls: 0, requests: 0, deaths: {} }

export const sum = (one: Figures, other: Figures): Figures => ({
  inputs: one.inputs + other.inputs,
  calls: one.calls + other.calls,
  requests: one.requests + other.requests,
  deaths: Object.fromEntries(
    [...new Set([...Object.keys(one.deaths), ...Object.keys(other.deaths)])].map((phase) => [
      phase,
      (one.deaths[phase] ?? 0) + (other.deaths[phase] ?? 0),
    ]),
  ),
})

type Options = EndOptions["options"]
type Own = {
  readonly options?: (random: Random) => Options
  readonly inputs?: readonly Input[]
  /** What it launches beside, and how often. */
  readonly launch?: { readonly chance: number; readonly request: typeof mapOf }
}

/** What a life has beside what each may have. */
const LIVES = {
  plain: {},
  /** Tasks that stand for several. */
  maps: { launch: { chance: 0.15, request: mapOf } },
  /** Tasks with a check or a schema, several tries at one thing, and parked tasks that are tried with another model. */
  checks: {
    options: (random) => ({
      checkRetries: random.pick([0, 2]),
      schemaRetries: random.pick([0, 2]),
      checkTimeout: random.pick([0, 5000]),
    }),
    inputs: INPUTS_WITH_CHECKS,
    launch: { chance: 0.25, request: checkedOf },
  },
  /** Much is parked, and waited for, cancelled and cleared then. */
  parked: { inputs: INPUTS_PARKED },
  /** Tasks that wait for the first of their message, so that their common beginning is cached. */
  cached: { options: (random) => ({ cacheHold: random.pick([5000, 1000]) }), inputs: INPUTS_CACHED },
  /** Runs that a purse pays, which ends at any moment. */
  purse: { inputs: INPUTS_PURSE },
  /** Tasks on another machine, whose contact is lost and comes back. */
  hosts: {
    inputs: INPUTS_HOSTS,
    launch: { chance: 0.2, request: farOf },
  },
} satisfies Record<string, Own>

export type Kind = keyof typeof LIVES

/** What happens in the life of this seed, in words. */
export const historyOf = async (seed: number, kind: Kind = "plain"): Promise<string> =>
  (await play(seed, true, kind)).history.text

/** Lives the life of this seed to its rest. Throws where a promise was broken. */
export async function live(seed: number, kind: Kind = "plain"): Promise<Figures> {
  const world = await play(seed, false, kind)
  const { breaches, figures } = world.watch
  if (breaches.length === 0) return figures
  const told = await play(seed, true, kind)
  const again = `Repeat it by SEED=${seed} LIVES=1${kind === "plain" ? "" : ` KIND=${kind}`} npm run simulate`
  throw new BrokenLife(`life ${seed} (${again})`, world.watch.breaches, told.history.text)
}

const play = (seed: number, isTold: boolean, kind: Kind) => stillTime(() => playAll(seed, isTold, kind))

/** Time stands still for whoever asks the system: it may not decide what happens. */
export async function stillTime<Result>(work: () => Promise<Result>): Promise<Result> {
  const { now } = performance
  performance.now = () => 0
  try {
    return await work()
  } finally {
    performance.now = now
  }
}

async function playAll(seed: number, isTold: boolean, kind: Kind): Promise<World> {
  const random = new Random(seed)
  const world = new World(circumstancesOf(random, kind), isTold)
  const held = weather(world, random)
  const kinds = kindsFor(world.endOptions.options)
  await world.clock.advance(20)
  const { inputs = INPUTS, launch }: Own = LIVES[kind]
  for (let left = 3 + random.below(20); left > 0; left--) {
    if (launch && random.chance(launch.chance)) void world.launch(launch.request(random, kinds))
    else await step(world, random, kinds, inputs)
    const release = () => {
      for (const letGo of [...held]) if (random.chance(0.4)) letGo()
    }
    if (!(await settleStep(world, release))) return world
  }
  await endLife(world)
  return world
}

async function step(world: World, random: Random, kinds: readonly string[], inputs: readonly Input[]): Promise<void> {
  const what = random.next()
  if (what < 0.35) return world.clock.advance(random.pick(PASSING))
  const { tasks } = world
  if (what < 0.55 || tasks.length === 0) return void world.launch(requestOf(world, random, kinds))
  const task = random.pick(tasks)
  const possible = inputs.filter(({ can }) => can?.(world, task) ?? true)
  const input = random.weighed(possible)
  world.history.tell(() => `${world.history.nameOf(task.id)}: ${input.name}`)
  world.watch.figures.inputs++
  await input.give(world, task)
}

function requestOf(world: World, random: Random, kinds: readonly string[]): Partial<LaunchRequest> {
  const { tasks } = world
  return {
    prompt: `DO ${random.pick(kinds)}`,
    ...(random.chance(0.3) && { batch: random.pick(["one", "two"]) }),
    ...(random.chance(0.2) && { timeout: random.pick([50, 5000]) }),
    ...(random.chance(0.2) && tasks.length > 0 && { after: [random.pick(tasks).id] }),
    ...(random.chance(0.2) && { place: "worktree" as const, merge: random.chance(0.5) }),
    ...(random.chance(0.1) && { fork: true }),
  }
}

function mapOf(random: Random, kinds: readonly string[]): Partial<LaunchRequest> {
  return {
    prompt: `Item {{item}}.\nDO ${random.pick(kinds)}`,
    each: Array.from({ length: 1 + random.below(4) }, (_, index) => index),
    ...(random.chance(0.3) && { timeout: 5000 }),
    ...(random.chance(0.3) && { batch: "one" }),
  }
}

function checkedOf(random: Random, kinds: readonly string[]): Partial<LaunchRequest> {
  const isPlaced = random.chance(0.7)
  return {
    prompt: `DO ${random.pick(kinds)}`,
    ...(random.chance(0.2) && { timeout: 5000 }),
    ...(isPlaced && random.chance(0.4) && { tries: random.pick([2, 3, ["scripted/alpha", "scripted/beta"]]) }),
    ...(isPlaced && { place: "worktree", check: random.pick(CHECKS), merge: random.chance(0.5) }),
    ...((!isPlaced || random.chance(0.3)) && { schema: SCHEMA }),
  }
}

/** Lets calls and events meet something now and then. Returns what lets those go that are held. */
function weather(world: World, random: Random): Set<() => void> {
  const { calls, events, holds } = random.weighed(WEATHER)
  const held = new Set<() => void>()
  world.watch.letGo = () => {
    for (const release of [...held]) release()
  }
  const hold = (): Promise<void> =>
    new Promise((resolve) => {
      const since = world.clock.now()
      const release = () => {
        held.delete(release)
        world.watch.isHeld = held.size > 0
        world.watch.held += world.clock.now() - since
        world.watch.meddled()
        resolve()
      }
      held.add(release)
      world.watch.isHeld = true
    })
  if (calls + holds > 0)
    world.meets = (): CallFault => {
      const what = random.next()
      if (what < calls) return random.weighed(FAILURES).fault()
      if (what < calls + holds) return random.chance(0.5) ? { held: hold() } : { heldAfter: hold() }
      return undefined
    }
  if (events > 0)
    world.eventMeets = (): EventFault => {
      if (!random.chance(events)) return undefined
      return random.pick(["lose", "double", { late: random.pick([1, 50, 4000]) }] as const)
    }
  return held
}
