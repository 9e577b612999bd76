import type { Task } from "../../src/core/task.ts"
import type { LaunchRequest } from "../../src/runtime/launch/request.ts"
import { FAR } from "./far.ts"
import { answers, INPUTS, type Input } from "./inputs.ts"
import type { Random } from "./random.ts"
import type { World } from "./world.ts"

/** Lives with another machine, whose contact is lost and comes back whenever it likes. */

/** A session that stands for one there is never asked here, and nobody writes to it. */
const HERE: readonly string[] = [
  "its user stops it",
  "its user writes to it",
  "its user takes the last prompt back, and writes another",
  "its user has it compacted while it works",
  "its session is deleted",
  "it is said to be idle",
  "an error of it is told out of the blue",
]

const isThere = ({ place }: Task): boolean => place?.kind === FAR

const here = (input: Input): Input => ({
  ...input,
  can: (world, task) => !isThere(task) && (input.can?.(world, task) ?? true),
})

/** What its model says there. */
const there = (input: Input): Input => ({
  ...input,
  name: `${input.name}, there`,
  can: (world, { sessionID }) => world.far?.there.thinks(sessionID) ?? false,
})

const changes = (world: World, isLost: boolean) => (isLost ? world.far?.lose() : world.far?.answer())

/** Contact is lost, or comes back: now, and at the next call. */
const contact = (isLost: boolean): readonly Input[] => {
  const what = isLost ? "contact is lost" : "there is contact again"
  const can: Input["can"] = (world) => world.far?.isReached === isLost
  return [
    { name: what, weight: 8, can, give: (world) => changes(world, isLost) },
    {
      name: `${what} at the next call`,
      weight: 5,
      can,
      give: (world) => {
        const before = world.meets
        world.meets = (call) => {
          world.meets = before
          changes(world, isLost)
          return before(call)
        }
      },
    },
  ]
}

/** All that can come where there is another machine. */
export const INPUTS_HOSTS: readonly Input[] = [
  ...INPUTS.map((input) => (HERE.includes(input.name) ? here(input) : input)),
  ...[
    answers("its model answers", { text: "done" }),
    answers("its model fails", { status: 400 }),
    answers("its model calls a tool", { tools: [{ name: "read", args: { ms: 100 } }] }),
  ].map(there),
  ...contact(true),
  ...contact(false),
]

export const farOf = (random: Random, kinds: readonly string[]): Partial<LaunchRequest> => ({
  prompt: `DO ${random.pick(kinds)}`,
  place: FAR,
  merge: random.chance(0.5),
  ...(random.chance(0.2) && { timeout: 5000 }),
})
