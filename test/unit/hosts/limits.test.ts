import { beforeEach, expect, test } from "vitest"
import type { Activity } from "../../../src/core/ports.ts"
import type { Place } from "../../../src/runtime/places/place.ts"
import { FakeMachine } from "../../support/fake-machine.ts"
import { Rig } from "../../support/rig.ts"

/** Refusals of another machine's provider: they concern the tasks there, never a model here. */

let rig: Rig
beforeEach(() => {
  const kind = { names: ["big"], outlives: true } as const
  rig = new Rig({
    options: { hosts: { big: { ssh: "big" } } },
    worktrees: async () => new FakeMachine() as never as Place,
    kind,
  })
  // No hook hears of a request there.
  rig.opencode.hooks.inRequest = () => undefined
  rig.opencode.hooks.holdRequest = () => undefined
  rig.onPrompt("FAR", { hang: true })
  rig.onPrompt("HERE", { text: "done" })
})

/** A task on the machine, whose OpenCode retries a request that its provider has refused with these words. */
const refusedThere = async (message: string) => {
  const task = await rig.launch({ prompt: "FAR", place: "big", model: "scripted/alpha" })
  await rig.clock.advance(1000)
  const retry: Activity = { type: "retry", attempt: 1, message }
  rig.opencode.activity = async () => new Map([[task.sessionID, retry]])
  await rig.clock.advance(5000)
  return task
}

test("a limit on another machine parks the task there, and no task here", async () => {
  const far = await refusedThere("Rate limit exceeded. Try again in 600s")
  expect(rig.view(far.id)).toMatchObject({ pause: { waitsFor: "scripted/alpha on big" } })
  expect(rig.view((await rig.launch({ prompt: "FAR", place: "big" })).id).phase).toMatch(/^queued|^parked/)
  const here = await rig.launch({ prompt: "HERE", model: "scripted/alpha" })
  expect(rig.view(here.id).phase).toBe("working")
  expect((await rig.ended(here.id)).status).toBe("completed")
})

test("missing money on another machine refuses nothing here", async () => {
  const far = await refusedThere("Your credit balance is too low to access the API.")
  expect(await rig.ended(far.id)).toMatchObject({ status: "error", outcome: { reason: { code: "provider" } } })
  expect((await rig.ended((await rig.launch({ prompt: "HERE", model: "scripted/alpha" })).id)).status).toBe("completed")
})

test("a parked task of another machine goes on with no model that is known here alone", async () => {
  const far = await refusedThere("Rate limit exceeded. Try again in 600s")
  await expect(rig.manager.unpark(far.id, rig.parent, "scripted/beta")).rejects.toThrow(/works on big, whose models/)
  expect(await rig.manager.unpark(far.id, rig.parent)).toMatchObject({ model: "scripted/alpha on big" })
})

test("each refusal on another machine doubles the wait, although nothing is heard of its requests", async () => {
  const far = await refusedThere("Rate limit exceeded")
  const parked: number[] = []
  let wasParked = true
  for (let at = 0; at < 120_000; at += 500) {
    await rig.clock.advance(500)
    const isParked = rig.view(far.id).pause !== undefined
    if (isParked && !wasParked) parked.push(rig.clock.now())
    wasParked = isParked
  }
  const waits = parked.slice(1).map((at, nth) => at - (parked[nth] ?? 0))
  expect(waits.length).toBeGreaterThan(1)
  expect(waits.every((wait, nth) => nth === 0 || wait > 1.5 * (waits[nth - 1] ?? 0))).toBe(true)
})

test("tasks of another machine go on in waves after a limit, although nothing is heard of their answers", async () => {
  const tasks = [await rig.launch({ prompt: "FAR", place: "big" }), await rig.launch({ prompt: "FAR", place: "big" })]
  for (let more = 0; more < 5; more++) tasks.push(await rig.launch({ prompt: "FAR", place: "big" }))
  await rig.clock.advance(1000)
  const message = "Rate limit exceeded. Try again in 60s"
  const retries = tasks.map(({ sessionID }): [string, Activity] => [sessionID, { type: "retry", attempt: 1, message }])
  rig.opencode.activity = async () => new Map(retries)
  await rig.clock.advance(13_000)
  rig.opencode.activity = async () => new Map(tasks.map(({ sessionID }) => [sessionID, { type: "busy" }]))
  const parked = () => tasks.filter(({ id }) => rig.view(id).pause !== undefined).length
  expect(parked()).toBe(7)
  await rig.clock.advance(60_000)
  expect(parked()).toBe(6)
  await rig.clock.advance(35_000)
  expect(parked()).toBeLessThanOrEqual(4)
  await rig.clock.advance(35_000)
  expect(parked()).toBe(0)
})
