import type { LaunchRequest } from "../../src/runtime/launch/request.ts"
import type { CallFault } from "../support/fake-api.ts"
import type { EventFault } from "../support/fake-process.ts"
import { FAILURES, INPUTS } from "./inputs.ts"
import { stillTime } from "./lives.ts"
import { endLife, settleStep } from "./rest.ts"
import { type EndOptions, World } from "./world.ts"

/** What came in a life, as it was recorded: the same inputs, whatever their seed means by now. */
export type Tape = {
  readonly endOptions: EndOptions
  readonly steps: readonly Step[]
  /** What calls met, by site and number. */
  readonly calls: Readonly<Record<string, string>>
  /** What events met, by type and number. */
  readonly events: Readonly<Record<string, EventFault>>
}

/** `release`: the calls that are let go after it. */
type Step = (
  | { readonly wait: number }
  | { readonly launch: Partial<LaunchRequest> }
  | { readonly input: string; readonly task: string }
) & { readonly release?: readonly string[] }

/** Lives a recorded life to its rest. */
export const replay = (tape: Tape, isTold = false): Promise<World> => stillTime(() => replayAll(tape, isTold))

async function replayAll({ endOptions, steps, calls, events }: Tape, isTold: boolean): Promise<World> {
  const world = new World(endOptions, isTold)
  const held = new Map<string, () => void>()
  world.watch.letGo = () => {
    for (const release of [...held.values()]) release()
  }
  world.meets = ({ site, number }) => faultOf(world, `${site}#${number}`, calls, held)
  const counts = new Map<string, number>()
  world.eventMeets = ({ type }) => {
    const number = counts.get(type) ?? 0
    counts.set(type, number + 1)
    return events[`${type}#${number}`]
  }
  await world.clock.advance(20)
  for (const step of steps) {
    await take(world, step)
    const release = () => {
      for (const key of step.release ?? []) held.get(key)?.()
    }
    if (!(await settleStep(world, release))) return world
  }
  await endLife(world)
  return world
}

function faultOf(world: World, key: string, calls: Tape["calls"], held: Map<string, () => void>): CallFault {
  const name = calls[key]
  if (name === undefined) return undefined
  const failure = FAILURES.find((each) => each.name === name)
  if (failure) return failure.fault()
  const since = world.clock.now()
  world.watch.isHeld = true
  const released = new Promise<void>((resolve) => {
    held.set(key, () => {
      held.delete(key)
      world.watch.isHeld = held.size > 0
      world.watch.held += world.clock.now() - since
      world.watch.meddled()
      resolve()
    })
  })
  return name === "held" ? { held: released } : { heldAfter: released }
}

async function take(world: World, step: Step): Promise<void> {
  if ("wait" in step) return world.clock.advance(step.wait)
  if ("launch" in step) return void world.launch(step.launch)
  const task = world.tasks.find(({ id }) => id === step.task)
  const input = INPUTS.find(({ name }) => name === step.input)
  if (!input) throw new Error(`no input: ${step.input}`)
  const can = task && (input.can?.(world, task) ?? true)
  world.history.tell(() => `${world.history.nameOf(step.task)}: ${input.name}${can ? "" : ", which cannot be now"}`)
  if (task && can) await input.give(world, task)
}
