import fc from "fast-check"
import { afterAll, test } from "vitest"
import { callFaults, eventFaults, expectRest, Life, lifeCommands, Model } from "../support/chaos.ts"

/** More of them by hand: `PROPERTY_RUNS=5000 npx vitest run test/property`. */
const RUNS = Number(process.env.PROPERTY_RUNS ?? 200)
const TIMEOUT_MS = 600_000
/** One that takes longer waits for something that never comes. */
const LIFE_MS = 15_000

/** Lives one life to its rest, whatever its commands and faults are. */
const live = (restarts: boolean) =>
  fc.asyncProperty(lifeCommands(restarts), callFaults(restarts), eventFaults, async (commands, calls, events) => {
    const model = new Model()
    const real = new Life(calls, events)
    await fc.asyncModelRun(() => ({ model, real }), commands)
    await expectRest(real, model)
  })

test(
  "any order of events gives each run one end and one notification, and then nothing is pending",
  { timeout: TIMEOUT_MS },
  () => fc.assert(live(false), { numRuns: RUNS, timeout: LIFE_MS }),
)

test(
  "a process that dies and restarts at any moment still gives each run one end and one notification",
  { timeout: TIMEOUT_MS },
  () => fc.assert(live(true), { numRuns: RUNS, timeout: LIFE_MS }),
)

afterAll(() => {
  if (process.env.PROPERTY_RUNS) console.log(`${2 * RUNS} lives, ${Life.commands} commands`)
})
