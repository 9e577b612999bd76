import { afterEach, beforeEach, expect, test, vi } from "vitest"
import type { Task } from "../../src/core/task.ts"
import type { Kind } from "./lives.ts"

/** A planted fault that so many lives do not meet counts as not found. */
const MOST_LIVES = 300
const NEWS = "../../src/runtime/mailbox/notification-items.ts"
const LOOKUP = "../../src/runtime/tasks/view.ts"
const STOP = "../../src/runtime/sessions.ts"
const WATCHDOG = "../../src/core/watchdog.ts"
const PLANTED = [NEWS, LOOKUP, STOP, WATCHDOG]

// Files of tests share a process: what an earlier one has loaded is loaded anew, and no later one finds what is planted.
beforeEach(() => {
  vi.resetModules()
})

afterEach(() => {
  for (const file of PLANTED) vi.doUnmock(file)
  vi.resetModules()
})

/** Lives one life after the other, from the seed on, until one breaks the promise. */
async function expectBroken(kind: Kind, from: number, promise: RegExp): Promise<void> {
  const { BrokenLife, live } = await import("./lives.ts")
  for (let seed = from; seed < from + MOST_LIVES; seed++)
    try {
      await live(seed, kind)
    } catch (error) {
      if (!(error instanceof BrokenLife)) throw error
      if (error.breaches.some((breach) => promise.test(breach))) return
    }
  expect.fail(`No life breaks ${promise}.`)
}

test("the simulation finds a planted wake of a parent that has ended or was stopped", async () => {
  vi.doMock(NEWS, async (original) => ({ ...(await original<object>()), mayWake: () => true }))
  await expectBroken("plain", 0, /has ended \((cancelled|error)\) and is asked to go on/)
  await expectBroken("plain", 130, /after its user's ESC/)
})

test("the simulation finds a planted cancel that skips parked tasks", async () => {
  type Lookup = typeof import("../../src/runtime/tasks/view.ts")
  vi.doMock(LOOKUP, async (original) => {
    const lookup = await original<Lookup>()
    const isAtWork = ({ run }: Task) => run.parked === undefined
    return {
      ...lookup,
      selectRunning: (...given: Parameters<Lookup["selectRunning"]>) => lookup.selectRunning(...given).filter(isAtWork),
    }
  })
  await expectBroken("parked", 80, /was cancelled and goes on/)
})

test("the simulation finds a planted wake that bypasses the mailbox", async () => {
  type Stop = typeof import("../../src/runtime/sessions.ts")
  vi.doMock(STOP, async (original) => {
    const stop = await original<Stop>()
    const stopSession: Stop["stopSession"] = (parts, sessionID, asks) => {
      const task = parts.store.bySession(sessionID)
      if (task) {
        const { id, parentID, run } = task
        const messageID = parts.opencode.messageID("notification", id, run.generation, run.createdAt)
        void parts.opencode.prompt({ sessionID: parentID, messageID, parts: [{ text: "planted" }] }).catch(() => {})
      }
      return stop.stopSession(parts, sessionID, asks)
    }
    return { ...stop, stopSession }
  })
  await expectBroken("plain", 0, /after its user's ESC|is asked to go on/)
})

test("the simulation finds a planted deadline that also counts pauses", async () => {
  type Watchdog = typeof import("../../src/core/watchdog.ts")
  vi.doMock(WATCHDOG, async (original) => {
    const watchdog = await original<Watchdog>()
    const inWallTime = (watched: Parameters<Watchdog["limitActionOf"]>[0]) => {
      const { parkedMs: _parked, uncountedMs: _still, ...run } = watched.task.run
      return { ...watched, task: { ...watched.task, run } }
    }
    return {
      ...watchdog,
      limitActionOf: (watched: Parameters<Watchdog["limitActionOf"]>[0]) => watchdog.limitActionOf(inWallTime(watched)),
    }
  })
  await expectBroken("parked", 0, /ended at its time limit of \d+ after/)
})
