import fc from "fast-check"
import { test } from "vitest"
import { callFaults, eventFaults, expectRest, Life, stepArbitrary } from "../support/chaos.ts"

/** More of them by hand: `PROPERTY_RUNS=5000 npx vitest run test/property`. */
const RUNS = Number(process.env.PROPERTY_RUNS ?? 200)
const TIMEOUT_MS = 600_000

/** Lives one life to its rest, whatever its steps and faults are. */
const live = (restarts: boolean) =>
  fc.asyncProperty(
    fc.array(stepArbitrary(restarts), { maxLength: 30 }),
    callFaults(restarts),
    eventFaults,
    async (steps, calls, events) => {
      const life = new Life(calls, events)
      await life.play(steps)
      await expectRest(life)
    },
  )

test("whatever comes, in whatever order: one end and one notification a run, and rest", { timeout: TIMEOUT_MS }, () =>
  fc.assert(live(false), { numRuns: RUNS }),
)

test("the same when the process dies at any moment and comes back", { timeout: TIMEOUT_MS }, () =>
  fc.assert(live(true), { numRuns: RUNS }),
)
