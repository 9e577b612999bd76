import type { Task } from "../../src/core/task.ts"
import type { CallFault } from "../support/fake-api.ts"
import { FAILURES, INPUTS, type Input } from "./inputs.ts"
import { BrokenLife, stillTime } from "./lives.ts"
import { rest } from "./rest.ts"
import { SCENARIOS, type Scenario } from "./scenarios.ts"
import type { Call } from "./sites.ts"
import { type EndOptions, World } from "./world.ts"

/** A call under way, its work still to be done or done already; or one that fails. */
type Phase = "before" | "after"
const PHASES: readonly Phase[] = ["before", "after"]

/**
 * In one scenario, at the first call of this kind, this comes: an input while the call is under way, or the call itself
 * meets something else than its work.
 */
export type Crossing = { readonly scenario: string; readonly site: string; readonly what: string }

/** How long the call goes on after the input has come, in ms. */
const LINGERS = [0, 30, 2500] as const

const OPTIONS = {
  maxDepth: 2,
  maxConcurrentTasks: 2,
  taskTimeout: 60_000,
  stallTimeout: 20_000,
  permissionTimeout: 10_000,
  lastWord: 0,
  maxLaunchesPerMinute: 0,
  resumable: ["completed", "error", "cancelled"],
} satisfies EndOptions["options"]

const textOf = (phase: Phase, { name }: Input) =>
  `${name}, its work ${phase === "before" ? "still to be done" : "done"}`

/** What an interruption does to a call, and at once or when it is under way. */
type Interruption = { readonly fault: (release: Promise<void>) => CallFault; readonly input?: Input }

const faultIn =
  (phase: Phase) =>
  (held: Promise<void>): CallFault =>
    phase === "before" ? { held } : { heldAfter: held }

const INTERRUPTIONS: ReadonlyMap<string, Interruption> = new Map([
  ...FAILURES.map(({ name, fault }): [string, Interruption] => [name, { fault }]),
  ...INPUTS.flatMap((input) =>
    PHASES.map((phase): [string, Interruption] => [textOf(phase, input), { input, fault: faultIn(phase) }]),
  ),
])

const worldOf = ({ options, endOptions }: Scenario, isTold = false) =>
  new World({ lastWord: "obeys", ...endOptions, options: { ...OPTIONS, ...options } }, isTold)

/** Plays a scenario up to where `isReached`; true where it is. */
async function playTo(world: World, { steps }: Scenario, isReached: () => boolean, from = 0): Promise<number> {
  for (let step = from; step < steps.length; step++) {
    const [ms, what] = steps[step] as Scenario["steps"][number]
    if (await world.clock.advanceUntil(isReached, ms)) return step
    await what(world)
    await world.rig.settle()
    if (isReached()) return step + 1
  }
  return steps.length
}

export type Survey = { readonly crossings: readonly Crossing[]; readonly methods: ReadonlySet<string> }

/** All crossings that can be: of each scenario its calls, with what can come there; and the methods that are called. */
export async function survey(): Promise<Survey> {
  const crossings: Crossing[] = []
  const methods = new Set<string>()
  for (const scenario of SCENARIOS) {
    const sites = new Set<string>()
    const world = worldOf(scenario)
    world.meets = ({ method, site }) => {
      methods.add(method)
      sites.add(site)
      return undefined
    }
    await stillTime(() => playTo(world, scenario, () => false))
    for (const site of sites) crossings.push(...(await crossingsAt(scenario, site)))
  }
  return { crossings, methods }
}

/** What can come while the first call of this kind is under way, its work to be done or done. */
async function crossingsAt(scenario: Scenario, site: string): Promise<readonly Crossing[]> {
  const found = FAILURES.map(({ name }) => ({ scenario: scenario.name, site, what: name }))
  for (const phase of PHASES) {
    const { world, caught } = await stillTime(() => playToCall(scenario, site, faultIn(phase)))
    const task = caught && concerned(world, caught)
    for (const input of task ? INPUTS : [])
      if (task && canCome(world, task, input)) found.push({ scenario: scenario.name, site, what: textOf(phase, input) })
  }
  return found
}

/** The same call and the same thing that comes, in whichever scenario. */
export const kindOf = ({ site, what }: Crossing): string => `${site}: ${what}`

/** The task that a call is about: that of its session, else the first one that there is. */
const concerned = (world: World, { sessionID = "" }: Pick<Call, "sessionID">) =>
  world.manager.taskIn(sessionID)?.task ?? world.first

const canCome = (world: World, task: Task, { can }: Input): boolean => can?.(world, task) ?? true

/** Lives a crossing to its rest. False where its call, or what was to come there, did not come about. */
export async function cross(crossing: Crossing, linger: number): Promise<boolean> {
  const { taken, world } = await play(crossing, linger, false)
  const { breaches } = world.watch
  if (breaches.length === 0) return taken
  const told = await play(crossing, linger, true)
  const { scenario, site, what } = crossing
  throw new BrokenLife(`${scenario}; ${site}: ${what} (${linger} ms)`, breaches, told.world.history.text)
}

const play = (crossing: Crossing, linger: number, isTold: boolean) => stillTime(() => playAll(crossing, linger, isTold))

async function playAll(crossing: Crossing, linger: number, isTold: boolean): Promise<{ taken: boolean; world: World }> {
  const scenario = SCENARIOS.find(({ name }) => name === crossing.scenario) as Scenario
  const { fault, input } = INTERRUPTIONS.get(crossing.what) as Interruption
  const { world, caught, step, release } = await playToCall(scenario, crossing.site, fault, isTold)
  let taken = caught !== undefined
  if (caught && input) {
    world.watch.isHeld = true
    const task = concerned(world, caught)
    taken = task !== undefined && canCome(world, task, input)
    if (task && taken) {
      world.history.tell(() => `${world.history.nameOf(task.id)}: ${input.name}`)
      await input.give(world, task)
    }
    await world.clock.advance(linger)
    world.watch.held += linger
    world.watch.isHeld = false
  }
  world.watch.meddled()
  release()
  await world.rig.settle()
  await playTo(world, scenario, () => false, step)
  await rest(world)
  return { taken, world }
}

type Reached = {
  readonly world: World
  readonly caught: Call | undefined
  /** The step of the scenario that comes next. */
  readonly step: number
  readonly release: () => void
}

/** Plays a scenario up to the first call of this kind, which meets this. */
async function playToCall(
  scenario: Scenario,
  site: string,
  fault: Interruption["fault"],
  isTold = false,
): Promise<Reached> {
  const world = worldOf(scenario, isTold)
  let caught: Call | undefined
  let release = () => {}
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  world.meets = (call) => {
    if (caught || call.site !== site) return undefined
    caught = call
    return fault(released)
  }
  const step = await playTo(world, scenario, () => caught !== undefined)
  return { world, caught, step, release }
}

/** How long each crossing lingers: another for each, so that all are tried. */
export const lingerOf = (index: number): number => LINGERS[index % LINGERS.length] ?? 0
