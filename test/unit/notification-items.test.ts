import { expect, test } from "vitest"
import type { Task } from "../../src/core/task.ts"
import { deferredWakeOf, isToldLast, mayWake, newsOf } from "../../src/runtime/mailbox/notification-items.ts"
import { TaskStore } from "../../src/runtime/tasks/store.ts"
import { deliveryOf, outcomeOf, taskOf } from "../support/tasks.ts"

const named = (id: string, more: Parameters<typeof taskOf>[0] = {}) =>
  taskOf({ id, sessionID: `ses_${id}`, status: "completed", outcome: outcomeOf(), ...more })
const told = deliveryOf({ state: "confirmed" })
const storeOf = (...tasks: Task[]) => {
  const store = new TaskStore()
  for (const task of tasks) store.add(task, 0)
  return store
}
const idsOf = (tasks: readonly Task[]) => tasks.map(({ id }) => id)

test("what still runs is the session's, whatever its batch, and no other session's", () => {
  const task = named("bg_1", { delivery: deliveryOf() })
  const store = storeOf(
    task,
    named("bg_2", { status: "running", batch: "name:other" }),
    named("bg_3", { status: "resumed" }),
    named("bg_4", { status: "running", parentID: "ses_stranger" }),
    named("bg_5", { delivery: told }),
  )
  expect(idsOf(newsOf(task, store).running)).toEqual(["bg_2", "bg_3"])
})

test("one that has ended and is still to be told is named as ended, not as running", () => {
  const task = named("bg_1", { delivery: deliveryOf() })
  const store = storeOf(task, named("bg_2", { delivery: deliveryOf() }), named("bg_3", { delivery: told }))
  const { running, untold } = newsOf(task, store)
  expect([idsOf(running), idsOf(untold)]).toEqual([[], ["bg_2"]])
})

test("what was not fetched is what ended, was told and not read; what the parent cancelled is not asked for", () => {
  const task = named("bg_1", { delivery: deliveryOf() })
  const cancelled = outcomeOf({ reason: { code: "cancelled", text: "" } })
  const store = storeOf(
    task,
    named("bg_2", { delivery: told }),
    named("bg_3", { delivery: told, retrievedAt: 1 }),
    named("bg_4", { delivery: told, status: "cancelled", outcome: cancelled }),
    named("bg_5", { delivery: told, status: "error", outcome: outcomeOf({ reason: { code: "tokens", text: "" } }) }),
  )
  expect(idsOf(newsOf(task, store).notFetched)).toEqual(["bg_2", "bg_5"])
})

test("that the answer was fetched meanwhile is known", () => {
  const task = named("bg_1", { delivery: deliveryOf() })
  expect(newsOf(task, storeOf({ ...task, retrievedAt: 7 })).task.retrievedAt).toBe(7)
})

test("that the work was merged meanwhile is known, and what a later run came to is not taken for this one's", () => {
  const task = named("bg_1", { delivery: deliveryOf() })
  const merged = { ...task, outcome: outcomeOf({ filesChanged: ["a"] }) }
  expect(newsOf(task, storeOf(merged)).task.outcome?.filesChanged).toEqual(["a"])
  const later = { ...merged, run: { ...task.run, generation: 1 } }
  expect(newsOf(task, storeOf(later)).task.outcome?.filesChanged).toEqual([])
})

test("a resume meanwhile changes nothing of the run that ended, and runs itself", () => {
  const outcome = outcomeOf({ toolCalls: 4 })
  const task = named("bg_1", { delivery: deliveryOf(), outcome })
  const resumed = named("bg_1", { status: "resumed", outcome: undefined, run: { generation: 1 } })
  const news = newsOf(task, storeOf(resumed))
  expect(news.task).toEqual(task)
  expect(news.whole.toolCalls).toBe(4)
  expect(idsOf(news.running)).toEqual(["bg_1"])
})

test("the hint on the end of all counts the batch, and those that ran since none of the session's did", () => {
  const ran = (id: string, createdAt: number, endedAt: number | undefined, batch = `name:${id}`) =>
    named(id, { batch, delivery: told, run: { createdAt, endedAt } })
  const task = ran("bg_1", 500, 900)
  const count = (...others: Task[]) => newsOf(task, storeOf(task, ...others)).together
  expect(count()).toBe(1)
  expect(count(ran("bg_2", 100, 499))).toBe(1)
  // One that ran beside it, and one that ran beside that one.
  expect(count(ran("bg_3", 50, 150), ran("bg_2", 100, 600))).toBe(3)
  expect(count(ran("bg_2", 100, 499, task.batch))).toBe(2)
  expect(count(ran("bg_2", 100, undefined))).toBe(1)
  expect(newsOf(task, storeOf(task, named("bg_2", { status: "running" }))).together).toBe(2)
})

test("a parent that was cleared is woken by nothing that was cleared with it, and by what its session launches later", () => {
  const [parent, child] = [named("bg_1"), named("bg_2", { parentID: "ses_bg_1", delivery: told })]
  const store = storeOf(parent, child)
  store.clear(child.id)
  expect(mayWake(child, store), "another may have been told to it before").toBe(true)
  store.clear(parent.id)
  expect(mayWake(child, store)).toBe(false)
  const later = named("bg_3", { parentID: "ses_bg_1" })
  store.add(later, 0)
  expect(mayWake(later, store)).toBe(true)
})

test("what wakes a parent in the place of the last is what ended before it, not what was launched before it", () => {
  const silent = deliveryOf({ state: "confirmed", wake: false })
  const [slow, quick, last] = ["bg_1", "bg_2", "bg_3"].map((id) => named(id, { delivery: silent }))
  if (!slow || !quick || !last) throw new Error("three tasks are needed")
  const store = storeOf(slow, quick, last)
  for (const [index, { id }] of [quick, slow, last].entries())
    Object.assign(store.handle(id) ?? {}, { endIndex: index + 1 })
  expect(deferredWakeOf(last, store, "last")?.id).toBe("bg_1")
})

test("an end that comes behind the one that is to wake its parent is told last, also while that is on its way", () => {
  const late = named("bg_1", { delivery: deliveryOf({ wake: false, running: 1 }) })
  const waking = named("bg_2", { delivery: deliveryOf() })
  const store = storeOf(late, waking)
  expect(
    isToldLast(late, store, "last", () => false),
    "the other comes behind it",
  ).toBe(false)
  expect(isToldLast(late, store, "last", ({ id }) => id === "bg_2")).toBe(true)
  store.add(named("bg_3", { status: "running" }), 0)
  expect(
    isToldLast(late, store, "last", () => true),
    "another still runs",
  ).toBe(false)
})
