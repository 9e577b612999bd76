import fc from "fast-check"
import { expect, test } from "vitest"
import { isActive } from "../../src/core/task.ts"
import { callFaults, eventFaults, Life, stepArbitrary } from "../support/chaos.ts"

const RUNS = Number(process.env.PROPERTY_RUNS ?? 150)
const TIMEOUT_MS = 120_000

/** Once all has come to rest: each task has ended in one way, each of its runs was told once, and nothing goes on. */
export async function expectRest(life: Life): Promise<void> {
  await life.rest()
  const { rig } = life
  const views = rig.manager.list(rig.parent)
  expect(views.filter(({ task }) => isActive(task))).toEqual([])
  const told = rig.notices().map(({ id }) => id)
  expect(new Set(told).size).toBe(told.length)
  for (const { task } of views) {
    const { id, run, delivery } = task
    expect(["confirmed", "none"], id).toContain(delivery.state)
    const runs = told.filter((message) => message.includes(`${id.slice("bg_".length)}N`))
    expect(runs.length, `${id} was told of ${runs.length} runs of ${run.generation + 1}`).toBe(run.generation + 1)
  }
  const busy = [...(await rig.host.activity()).keys()]
  expect(busy).toEqual([])
  expect(rig.timers.pending).toBe(0)
  expect(rig.errors().filter((text) => !text.includes("HostError"))).toEqual([])
}

if (!process.env.N) test(
  "whatever comes, in whatever order: one end, one notification a run, and rest",
  async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(stepArbitrary(false), { maxLength: 30 }),
        callFaults(false),
        eventFaults,
        async (steps, calls, events) => {
          const life = new Life(calls, events)
          await life.play(steps)
          await expectRest(life)
        },
      ),
      { numRuns: RUNS },
    )
  },
  TIMEOUT_MS,
)

if (!process.env.N) test(
  "also when the process dies at any moment and comes back",
  async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(stepArbitrary(true), { maxLength: 30 }),
        callFaults(true),
        eventFaults,
        async (steps, calls, events) => {
          const life = new Life(calls, events)
          await life.play(steps)
          await expectRest(life)
        },
      ),
      { numRuns: RUNS },
    )
  },
  TIMEOUT_MS,
)
