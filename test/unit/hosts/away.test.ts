import { beforeEach, describe, expect, test } from "vitest"
import { HOUR_MS, MINUTE_MS } from "../../../src/lib/format.ts"
import type { Place } from "../../../src/runtime/places/place.ts"
import { FakeMachine } from "../../support/fake-machine.ts"
import { Rig } from "../../support/rig.ts"

/** Tasks that end while their machine is out of reach: what becomes of them here, and of what they left there. */

let big: FakeMachine
let rig: Rig
beforeEach(() => {
  big = new FakeMachine()
  const options = { maxHistory: 1, hosts: { big: { ssh: "big" } } }
  const kind = { names: ["big"], outlives: true } as const
  rig = new Rig({ options, worktrees: async () => big as never as Place, kind })
})

/** One that works there, and is cut off. */
const cutOff = async () => {
  rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { hang: true, text: "so far" }))
  const task = await rig.launch({ place: "big" })
  await rig.clock.advance(1000)
  big.cut = () => true
  rig.opencode.activity = async () => new Map([[task.sessionID, { type: "unreachable" }]])
  rig.manager.placeTold(task.id, { type: "contact", lost: rig.clock.now() })
  return task
}

test("a cancel without contact takes effect at once and says what the host still has to do", async () => {
  big.directory = "/elsewhere"
  const { id } = await cutOff()
  const before = rig.clock.now()
  await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  expect(rig.clock.now() - before).toBeLessThan(1000)
  expect(rig.task(id).outcome?.note).toBe(
    `It is stopped on big as soon as big answers. What it changed is still on big, and is fetched when big answers; superagents_task(merge="${id}") then brings it into your files.`,
  )
})

test("a task whose work is still on its host stays listed beyond maxHistory until that work is fetched", async () => {
  const { id } = await cutOff()
  await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  // What was read goes first.
  await rig.output(id)
  const ended = async () => {
    const { id } = await rig.launch({ prompt: "HERE" })
    await rig.ended(id)
    await rig.clock.advance(1000)
  }
  rig.onPrompt("HERE", { text: "done" })
  await ended()
  await ended()
  const listed = () => rig.manager.list(rig.parent).map(({ task }) => task.id)
  expect(listed()).toContain(id)
  big.cut = () => false
  await rig.manager.parts.archive.settleOwed("big")
  expect(rig.task(id).outcome?.work?.files).toEqual(["a"])
  await ended()
  expect(listed()).not.toContain(id)
})

test("the leftovers of a deleted session's tasks on a host are cleaned up", async () => {
  const { id } = await cutOff()
  await rig.opencode.deleteSession(rig.parent)
  await rig.clock.until(() => big.cleared.length > 0)
  expect(big.cleared).toEqual([id])
})

describe("a task whose OpenCode here was closed for hours", () => {
  /** It is back, and its host is out of reach until `reach` is called. */
  const reopened = async (endsAfter: number) => {
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { hang: true, text: "so far" }))
    const { id, sessionID } = await rig.launch({ place: "big" })
    await rig.clock.advance(5000)
    rig.crash()
    await rig.clock.advance(endsAfter)
    const text = { type: "text", id: "prt_1", text: "THE ANSWER", synthetic: false } as const
    const last = rig.opencode.stored(sessionID).messages.at(-1)
    if (last) Object.assign(last, { finish: "stop", completedAt: rig.clock.now(), parts: [text] })
    await rig.clock.advance(2 * HOUR_MS)
    rig.restart()
    const { activity, messagesSince } = rig.opencode
    rig.opencode.activity = async () => new Map([[sessionID, { type: "unreachable" }]])
    rig.opencode.messagesSince = async (...asked) =>
      asked[0] === sessionID ? [] : messagesSince.apply(rig.opencode, asked)
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    await rig.clock.advance(3000)
    const reach = () => {
      Object.assign(rig.opencode, { activity, messagesSince })
      rig.manager.placeTold(id, { type: "contact", lost: undefined })
    }
    return { id, reach }
  }

  test("a task that completed meanwhile is told as completed, with the time that it took", async () => {
    const { id, reach } = await reopened(4 * MINUTE_MS)
    expect(rig.task(id).status).toBe("running")
    reach()
    expect((await rig.ended(id)).status).toBe("completed")
    expect(rig.notices()[0]?.hidden).toContain("THE ANSWER")
    expect(rig.view(id).elapsed).toBe(4 * MINUTE_MS + 5000)
  })

  test("a second restart a moment later counts as little of that time", async () => {
    const { id } = await reopened(4 * MINUTE_MS)
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    await rig.clock.advance(3000)
    expect(rig.task(id).status).toBe("running")
    expect(rig.view(id).elapsed).toBeLessThan(MINUTE_MS)
  })

  test("a task whose host stays out of reach ends at its time limit", async () => {
    const { id } = await reopened(4 * MINUTE_MS)
    await rig.clock.advance(rig.options.taskTimeout)
    expect(rig.task(id).outcome?.reason?.code).toBe("timeout")
  })
})
