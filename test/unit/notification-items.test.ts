import { expect, test } from "vitest"
import type { Task } from "../../src/core/task.ts"
import {
  deferredWakeOf,
  isNotifiedLast,
  mayWake,
  notificationFacts,
} from "../../src/runtime/mailbox/notification-items.ts"
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

test("a notification lists the session's other running tasks, whatever their batch, but none of other sessions", () => {
  const task = named("bg_1", { delivery: deliveryOf() })
  const store = storeOf(
    task,
    named("bg_2", { status: "running", batch: "name:other" }),
    named("bg_3", { status: "resumed" }),
    named("bg_4", { status: "running", parentID: "ses_stranger" }),
    named("bg_5", { delivery: told }),
  )
  expect(idsOf(notificationFacts(task, store).running)).toEqual(["bg_2", "bg_3"])
})

test("a task that has ended but is not reported yet is listed as ended, not as running", () => {
  const task = named("bg_1", { delivery: deliveryOf() })
  const store = storeOf(task, named("bg_2", { delivery: deliveryOf() }), named("bg_3", { delivery: told }))
  const { running, pendingTasks } = notificationFacts(task, store)
  expect([idsOf(running), idsOf(pendingTasks)]).toEqual([[], ["bg_2"]])
})

test("a notification lists ended tasks with unread answers, except those that the parent cancelled", () => {
  const task = named("bg_1", { delivery: deliveryOf() })
  const cancelled = outcomeOf({ reason: { code: "cancelled", text: "" } })
  const store = storeOf(
    task,
    named("bg_2", { delivery: told }),
    named("bg_3", { delivery: told, retrievedAt: 1 }),
    named("bg_4", { delivery: told, status: "cancelled", outcome: cancelled }),
    named("bg_5", { delivery: told, status: "error", outcome: outcomeOf({ reason: { code: "tokens", text: "" } }) }),
  )
  expect(idsOf(notificationFacts(task, store).notFetched)).toEqual(["bg_2", "bg_5"])
})

test("a notification knows of a merge before it was sent, but ignores the outcome of a later run", () => {
  const task = named("bg_1", { delivery: deliveryOf() })
  const merged = { ...task, outcome: outcomeOf({ filesChanged: ["a"] }) }
  expect(notificationFacts(task, storeOf(merged)).task.outcome?.filesChanged).toEqual(["a"])
  const later = { ...merged, run: { ...task.run, generation: 1 } }
  expect(notificationFacts(task, storeOf(later)).task.outcome?.filesChanged).toEqual([])
})

test("the total in 'all tasks finished' counts the batch and all tasks since the session was idle", () => {
  const ran = (id: string, createdAt: number, endedAt: number | undefined, batch = `name:${id}`) =>
    named(id, { batch, delivery: told, run: { createdAt, endedAt } })
  const task = ran("bg_1", 500, 900)
  const count = (...others: Task[]) => notificationFacts(task, storeOf(task, ...others)).together
  expect(count()).toBe(1)
  expect(count(ran("bg_2", 100, 499))).toBe(1)
  // One that ran beside it, and one that ran beside that one.
  expect(count(ran("bg_3", 50, 150), ran("bg_2", 100, 600))).toBe(3)
  expect(count(ran("bg_2", 100, 499, task.batch))).toBe(2)
  expect(count(ran("bg_2", 100, undefined))).toBe(1)
  expect(notificationFacts(task, storeOf(task, named("bg_2", { status: "running" }))).together).toBe(2)
})

test("a cleared parent is woken only by tasks that its session launches after the clear", () => {
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

test("a missing wake-up is made up by the task that ended last, not by the last launched", () => {
  const silent = deliveryOf({ state: "confirmed", wake: false })
  const [slow, quick, last] = ["bg_1", "bg_2", "bg_3"].map((id) => named(id, { delivery: silent }))
  if (!slow || !quick || !last) throw new Error("three tasks are needed")
  const store = storeOf(slow, quick, last)
  for (const [index, { id }] of [quick, slow, last].entries())
    Object.assign(store.handle(id) ?? {}, { endIndex: index + 1 })
  expect(deferredWakeOf(last, store, "last")?.id).toBe("bg_1")
})

test("a task that woke the parent makes up the wake-up of earlier ends only", () => {
  const [woken, later, cancelled] = [
    named("bg_1", { delivery: deliveryOf({ state: "confirmed" }) }),
    named("bg_2", { delivery: deliveryOf({ state: "confirmed", wake: false }) }),
    named("bg_3"),
  ]
  const store = storeOf(woken, later, cancelled)
  const endAs = (...ids: readonly string[]) => {
    for (const [index, id] of ids.entries()) Object.assign(store.handle(id) ?? {}, { endIndex: index + 1 })
    return deferredWakeOf(cancelled, store, "last")?.id
  }
  expect(endAs("bg_1", "bg_2", "bg_3")).toBe("bg_2")
  expect(endAs("bg_2", "bg_1", "bg_3")).toBeUndefined()
})

test("a task that ends after the waking one is reported last, even while that message is being sent", () => {
  const late = named("bg_1", { delivery: deliveryOf({ wake: false, running: 1 }) })
  const waking = named("bg_2", { delivery: deliveryOf() })
  const store = storeOf(late, waking)
  expect(
    isNotifiedLast(late, store, "last", () => false),
    "the other comes behind it",
  ).toBe(false)
  expect(isNotifiedLast(late, store, "last", ({ id }) => id === "bg_2")).toBe(true)
  store.add(named("bg_3", { status: "running" }), 0)
  expect(
    isNotifiedLast(late, store, "last", () => true),
    "another still runs",
  ).toBe(false)
})
