import { describe, expect, test } from "vitest"
import {
  byAdmissionOrder,
  launchDelay,
  modelKey,
  placeInQueue,
  type SlotLimits,
  slotsHeld,
} from "../../src/core/limits.ts"
import { isQueued, type Task } from "../../src/core/task.ts"
import { MINUTE_MS } from "../../src/lib/format.ts"
import { taskOf } from "../support/tasks.ts"

const model = { provider: "p", id: "m" }
const queued = (id: string, createdAt: number, more: Partial<Task> = {}) =>
  taskOf({ ...more, id, run: { createdAt, startedAt: undefined } } as object)
const running = (id: string, more: Partial<Task> = {}) => taskOf({ ...more, id } as object)
const ids = (tasks: readonly Task[]) => tasks.map(({ id }) => id)
const NO_LIMITS = { maxConcurrentTasks: 0, maxConcurrentPerModel: {} }

/** The queued ones that take a slot, each before the next is looked at. */
function admissible(active: readonly Task[], limits: SlotLimits, waitsForOwn?: (task: Task) => boolean) {
  const slots = slotsHeld(
    active.filter((task) => !isQueued(task)),
    limits,
    waitsForOwn,
  )
  const taken: Task[] = []
  for (const task of active.filter(isQueued).toSorted(byAdmissionOrder)) {
    if (slots.fullLimit(task)) continue
    slots.take(task)
    taken.push(task)
  }
  return taken
}

test("a model's key is made of provider and model, without the variant", () => {
  expect(modelKey({ ...model, variant: "high" })).toBe("p/m")
})

describe("admission", () => {
  test("admission orders tasks of the same time by id", () => {
    expect(ids(admissible([queued("b", 1), queued("a", 1), queued("c", 1)], NO_LIMITS))).toEqual(["a", "b", "c"])
  })

  test("admission fills the free slots of a session and no more", () => {
    const limits = { ...NO_LIMITS, maxConcurrentTasks: 2 }
    expect(ids(admissible([running("r"), queued("a", 1), queued("b", 2)], limits))).toEqual(["a"])
    expect(admissible([running("r"), running("s"), queued("a", 1)], limits)).toEqual([])
  })

  test("admission has no limit for a place unless one is set", () => {
    const there = { place: { kind: "big" } } as Partial<Task>
    expect(ids(admissible([running("r", there), queued("a", 1, there)], NO_LIMITS))).toEqual(["a"])
  })

  test("admission limits runs that no session launched only by their own limit", () => {
    const board = { parentID: "" }
    const active = [running("r", board), queued("a", 1, board), queued("b", 2)]
    const limits = { ...NO_LIMITS, maxConcurrentTasks: 1 }
    expect(ids(admissible(active, limits))).toEqual(["a", "b"])
    expect(ids(admissible(active, { ...limits, maxUnattended: 1 }))).toEqual(["b"])
    expect(ids(admissible(active, { ...limits, maxUnattended: 2 }))).toEqual(["a", "b"])
  })

  test("admission counts the tasks of a model over all sessions", () => {
    const limits = { ...NO_LIMITS, maxConcurrentPerModel: { "p/m": 1 } }
    const active = [running("r", { model, parentID: "another" }), queued("a", 1, { model }), queued("b", 2)]
    expect(ids(admissible(active, limits))).toEqual(["b"])
  })

  test("admission does not count a task that only waits for its own tasks against its model", () => {
    const limits = { maxConcurrentTasks: 2, maxConcurrentPerModel: { "p/m": 1 } }
    const active = [running("r", { model, parentID: "another" }), queued("a", 1, { model })]
    expect(ids(admissible(active, limits, ({ id }) => id === "r"))).toEqual(["a"])
  })

  test("admission starts paused runs first, the longest paused before others, and members of groups last", () => {
    const part = { kind: "tries", of: "g", nth: 0, run: 0, caller: "c", under: "c" } as const
    const parked = (at: number) => ({ parked: { at, model: "p/m", why: "its limit" } })
    const paused = (id: string, at: number) => taskOf({ id, run: { createdAt: 9, ...parked(at) } })
    const waiting = [queued("m", 1, { member: part }), queued("a", 2), paused("late", 8), paused("early", 7)]
    expect(ids(waiting.toSorted(byAdmissionOrder))).toEqual(["early", "late", "a", "m"])
  })

  test("admission needs no slot for a group, since its members take them", () => {
    const limits = { ...NO_LIMITS, maxConcurrentTasks: 1 }
    const team = { kind: "tries", prompt: "FIND", count: 2, timeout: 0 } as const
    const active = [running("r", { group: team }), queued("a", 1), queued("b", 2, { group: team }), queued("c", 3)]
    expect(ids(admissible(active, limits))).toEqual(["a", "b"])
  })

  test("admission accepts unlisted models, limits of 0 and names like constructor", () => {
    const limits = { ...NO_LIMITS, maxConcurrentPerModel: { "p/other": 1, "p/m": 0 } }
    const odd = { provider: "constructor", id: "x" }
    const active = [running("r", { model }), queued("a", 1, { model }), queued("b", 2, { model: odd })]
    expect(ids(admissible(active, limits))).toEqual(["a", "b"])
    expect(
      ids(
        admissible([queued("c", 1, { model })], { ...NO_LIMITS, maxConcurrentPerModel: { "p/m": undefined as never } }),
      ),
    ).toEqual(["c"])
  })
})

test("a place in the queue counts the session's older queued tasks", () => {
  const active = [running("r"), queued("a", 1), queued("b", 2), queued("x", 0, { parentID: "another" }), queued("c", 3)]
  expect(active.filter(({ run }) => run.startedAt === undefined).map((task) => placeInQueue(task, active))).toEqual([
    1, 2, 1, 3,
  ])
})

test("a place in the queue ignores tasks that still wait for others to complete", () => {
  const active = [queued("a", 1), queued("b", 2)]
  expect(placeInQueue(active[1] as Task, active, ({ id }) => id === "a")).toBe(1)
})

describe("the launch rate", () => {
  test("the launch rate gives the time until the oldest launch is a minute ago", () => {
    expect(launchDelay([1000, 2000], 2, 3000)).toBe(MINUTE_MS - 2000)
    expect(launchDelay([500, 1000, 2000], 2, 3000)).toBe(MINUTE_MS - 2000)
  })

  test("the launch rate forgets launches once they are a minute old", () => {
    expect(launchDelay([1000], 1, 1000 + MINUTE_MS - 1)).toBe(1)
    expect(launchDelay([1000], 1, 1000 + MINUTE_MS)).toBe(0)
    expect(launchDelay([1000], 1, 1000 + 3 * MINUTE_MS)).toBe(0)
  })

  test("the launch rate ignores launches from the future after the clock was set back", () => {
    expect(launchDelay([3_600_000, 3_600_001], 2, 1000)).toBe(0)
    expect(launchDelay([900, 1000, 3_600_000], 2, 1000)).toBe(MINUTE_MS - 100)
  })

  test("the launch rate has no limit at 0", () => {
    expect(launchDelay([1, 2, 3], 0, 3)).toBe(0)
  })
})
