import { describe, expect, test } from "vitest"
import { accountOf } from "../../src/core/account.ts"
import { newsOf, parkedText, whenOf } from "../../src/core/parked.ts"
import type { Parked, Task } from "../../src/core/task.ts"
import { rowOf } from "../../src/terminal/view-model.ts"
import { outcomeOf, taskOf } from "../support/tasks.ts"

const NOW = new Date(2026, 10, 23, 7, 0).getTime()
const at = (hours: number, minutes: number) => new Date(2026, 10, 23, hours, minutes).getTime()
const parkedOf = (parked: Partial<Parked>): Task =>
  taskOf({ run: { startedAt: 1, parked: { at: 1, model: "mock/one", why: "its limit", ...parked } } })

describe("a parked task's text", () => {
  test.each<[string, Pick<Parked, "until" | "next">]>([
    ["parked until 07:12", { until: at(7, 12) }],
    ["parked, next try 07:12", { next: at(7, 12) }],
    ["parked", { until: at(7, 0) }],
    ["parked", {}],
  ])("%s", (text, parked) => {
    expect(parkedText(parked, NOW)).toBe(text)
    expect(whenOf(parked, NOW)?.in).toBe(text === "parked" ? undefined : 720_000)
  })

  test("names the day by the reader's own: that at which it opens", () => {
    const until = at(7, 12)
    expect(parkedText({ until }, until - 86_400_000)).toBe("parked until Mon 07:12")
    expect(parkedText({ until }, NOW)).toBe("parked until 07:12")
  })

  test("is by the newest that is known of its model", () => {
    const own = parkedOf({ at: 5, next: at(6, 0) })
    const others = [
      taskOf(),
      parkedOf({ at: 9, model: "mock/two", until: at(9, 0) }),
      parkedOf({ at: 7, next: at(7, 30) }),
      parkedOf({ at: 6, until: at(7, 20) }),
      { ...parkedOf({ at: 8, until: at(8, 0) }), status: "error" as const },
    ]
    expect(newsOf(own, others)).toMatchObject({ next: at(7, 30) })
    expect(newsOf(taskOf(), others)).toBeUndefined()
    const seen = [own, ...others].map((task) => ({ task }))
    expect(rowOf({ task: own }, seen, NOW).detail).toContain("parked, next try 07:30")
  })
})

test("the account of one that was parked says how often, for how long and at whose limit", () => {
  const run = { parkedTimes: 2, parkedMs: 18_060_000 }
  const lines = (task: Partial<Task>) =>
    accountOf(taskOf({ status: "completed", outcome: outcomeOf(), ...task, run: { ...run, ...task.run } }))
  const model = { provider: "mock", id: "one" }
  expect(lines({ model })).toEqual(["Parked 2 times, 5h 1m in all (mock/one)."])
  expect(lines({})).toEqual(["Parked 2 times, 5h 1m in all."])
  const switches = [{ model: "mock/two", step: 4, why: "limit until 07:12" }]
  expect(lines({ model, run: { ...taskOf().run, switches, model: { provider: "mock", id: "two" } } })).toEqual([
    "Model: mock/one, then mock/two from step 4 (limit until 07:12).",
    "Parked 2 times, 5h 1m in all.",
  ])
})
