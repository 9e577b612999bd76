import { describe, expect, test } from "vitest"
import { HostError, type Message } from "../../src/core/ports.ts"
import { BUILD, cleanup, held, PARENT, setUp } from "../support/outbox-rig.ts"
import { deliveryOf } from "../support/tasks.ts"

/** What a message is, and when it goes. How the outbox works with the rest is in `notify.test.ts`. */

describe("a message", () => {
  test("has two parts, the second hidden", async () => {
    const { clock, outbox, sent, states } = setUp()
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(100)
    expect(sent[0]?.parts).toMatchObject([
      { text: "visible bg_aaaaaaaa" },
      { text: "hidden bg_aaaaaaaa", synthetic: true },
    ])
    expect(states).toEqual(["bg_aaaaaaaa confirmed", "drained, woken"])
  })

  test("is sent for what is owed alone, and once a run", async () => {
    const { clock, outbox, told } = setUp()
    const task = cleanup("bg_aaaaaaaa")
    outbox.post({ ...task, delivery: { state: "none" } })
    outbox.post({ ...task, delivery: deliveryOf({ state: "confirmed" }) })
    expect(outbox.owes(PARENT)).toBe(false)
    outbox.post(task)
    outbox.post(task)
    outbox.post(cleanup("bg_aaaaaaaa", true, { run: { generation: 1 } }))
    outbox.post(cleanup("bg_bbbbbbbb"))
    expect(outbox.owes(PARENT)).toBe(true)
    await clock.advance(1000)
    expect(told()).toEqual(["visible bg_aaaaaaaa (no reply)", "visible bg_aaaaaaaa (no reply)", "visible bg_bbbbbbbb"])
  })

  test("that is not to wake the parent leaves that to none, one that is to wake it to the last", async () => {
    const { clock, outbox, told } = setUp()
    outbox.post(cleanup("bg_aaaaaaaa", true))
    outbox.post(cleanup("bg_bbbbbbbb", false))
    await clock.advance(1000)
    expect(told()).toEqual(["visible bg_aaaaaaaa (no reply)", "visible bg_bbbbbbbb"])
    outbox.post(cleanup("bg_cccccccc", false))
    await clock.advance(1000)
    expect(told().at(-1)).toBe("visible bg_cccccccc (no reply)")
  })

  test("that wakes nobody waits for a busy parent, and goes as soon as that is idle", async () => {
    const { clock, world, outbox, told } = setUp()
    world.busy = true
    outbox.post(cleanup("bg_aaaaaaaa", false))
    await clock.advance(5000)
    expect(told()).toEqual([])
    const { looks } = world
    world.busy = false
    outbox.parentIdle(PARENT)
    await clock.advance(0)
    expect(told()).toEqual(["visible bg_aaaaaaaa (no reply)"])
    expect(world.looks).toBe(looks + 1)
  })

  test("that wakes nobody goes with one that does, whatever the parent does", async () => {
    const { clock, world, outbox, told } = setUp()
    world.busy = true
    outbox.post(cleanup("bg_aaaaaaaa", false))
    await clock.advance(100)
    outbox.post(cleanup("bg_bbbbbbbb", true))
    await clock.advance(100)
    expect(told()).toEqual(["visible bg_aaaaaaaa (no reply)", "visible bg_bbbbbbbb"])
  })

  test("is tried again after the waits that grow, with a word in the log", async () => {
    const { clock, world, outbox, told, logs } = setUp()
    world.failures = Array.from({ length: 6 }, () => new HostError("no"))
    outbox.post(cleanup("bg_aaaaaaaa"))
    const counts: number[] = []
    for (const ms of [0, 250, 1000, 4000, 15_000, 60_000, 60_000]) {
      await clock.advance(ms)
      counts.push(told().length)
    }
    expect(counts).toEqual([1, 2, 3, 4, 5, 6, 7])
    expect(logs).toHaveLength(6)
    expect(logs[0]).toEqual([
      "warn",
      "notification not accepted, trying again",
      { task: "bg_aaaaaaaa", session: PARENT, attempt: 0, error: "HostError: no" },
    ])
  })

  test("that is taken and never shown is not told", async () => {
    const { clock, world, outbox, states, logs } = setUp()
    world.stores = false
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(5000)
    expect(states).not.toContain("bg_aaaaaaaa confirmed")
    expect(JSON.stringify(logs)).toContain("The host took the notification but does not show it.")
  })

  test("keeps an agent that the host has, however often it fails", async () => {
    const { clock, world, outbox, sent } = setUp()
    world.agents = [BUILD, { ...BUILD, name: "plan" }]
    world.failures = Array.from({ length: 5 }, () => new HostError("no"))
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(120_000)
    expect(new Set(sent.map(({ agent }) => agent))).toEqual(new Set(["build"]))
    expect(sent).toHaveLength(6)
  })

  test("that the parent may hold already is looked for before it is sent", async () => {
    const { clock, outbox, told, states } = setUp()
    const task = cleanup("bg_aaaaaaaa")
    outbox.post(task, true)
    await clock.advance(100)
    expect(told()).toEqual(["visible bg_aaaaaaaa"])
    outbox.post(task, true)
    await clock.advance(100)
    expect(told()).toHaveLength(1)
    expect(states).toEqual(["bg_aaaaaaaa confirmed", "drained, woken", "bg_aaaaaaaa confirmed", "drained, woken"])
  })

  test("has the same id whoever tells it, and whenever the run ended", async () => {
    const ids = []
    for (const endedAt of [5000, 6000]) {
      const { clock, outbox, sent } = setUp()
      outbox.post(cleanup("bg_aaaaaaaa", true, { run: { endedAt } }))
      await clock.advance(100)
      ids.push(sent[0]?.messageID)
    }
    expect(ids[0]).toBe(ids[1])
  })

  test("waits while the parent's user has undone something, and goes as soon as that is over", async () => {
    const { clock, world, outbox, told } = setUp()
    world.reverted = true
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(10_000)
    outbox.parentChanged(PARENT)
    await clock.advance(0)
    expect(told()).toEqual([])
    world.reverted = false
    outbox.parentChanged(PARENT)
    await clock.advance(0)
    expect(told()).toEqual(["visible bg_aaaaaaaa"])
  })

  test("waits, too, while it is not known whether something may be sent", async () => {
    const { clock, world, outbox, told } = setUp()
    world.parentFailures = [new HostError("no"), new HostError("no")]
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(2500)
    expect(told()).toEqual([])
    await clock.advance(2000)
    expect(told()).toEqual(["visible bg_aaaaaaaa"])
  })

  test("that waits for an idle parent is not looked after each time that its session changes", async () => {
    const { clock, world, outbox } = setUp()
    world.busy = true
    outbox.post(cleanup("bg_aaaaaaaa", false))
    await clock.advance(100)
    const { looks } = world
    for (let count = 0; count < 10; count++) outbox.parentChanged(PARENT)
    await clock.advance(100)
    expect(world.looks).toBe(looks)
  })

  test("that left waking to one that was taken back does it itself, however often the host fails", async () => {
    const { clock, world, outbox, told, states } = setUp()
    const { promise, resolve } = held()
    world.composing = async (id) => (id === "bg_bbbbbbbb" ? promise : undefined)
    outbox.post(cleanup("bg_aaaaaaaa", true))
    outbox.post(cleanup("bg_bbbbbbbb", true))
    await clock.advance(1000)
    world.known = false
    world.failures = [new HostError("no"), new HostError("no")]
    resolve()
    await clock.advance(0)
    world.known = true
    outbox.post(cleanup("bg_cccccccc", false))
    await clock.advance(60_000)
    const first = "visible bg_aaaaaaaa"
    expect(told()).toEqual([`${first} (no reply)`, first, first, first, "visible bg_cccccccc (no reply)"])
    expect(states.at(-1)).toBe("drained, woken")
    expect(outbox.owes(PARENT)).toBe(false)
  })

  test("waits a moment while others run, and the last of those that end together wakes the parent", async () => {
    const { clock, world, outbox, told } = setUp()
    world.isLast = false
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(200)
    outbox.parentIdle(PARENT)
    await clock.advance(49)
    expect(told()).toEqual([])
    outbox.post(cleanup("bg_bbbbbbbb"))
    await clock.advance(100)
    expect(told()).toEqual(["visible bg_aaaaaaaa (no reply)"])
    world.isLast = true
    outbox.post(cleanup("bg_cccccccc"))
    await clock.advance(60_000)
    expect(told()).toEqual(["visible bg_aaaaaaaa (no reply)", "visible bg_bbbbbbbb (no reply)", "visible bg_cccccccc"])
  })

  test("wakes the parent after that moment where the others go on, and at once where it is to wake nobody", async () => {
    const { clock, world, outbox, told } = setUp()
    world.isLast = false
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(249)
    expect(told()).toEqual([])
    await clock.advance(1)
    expect(told()).toEqual(["visible bg_aaaaaaaa"])
    await clock.advance(1000)
    outbox.post(cleanup("bg_bbbbbbbb", false))
    await clock.advance(0)
    expect(told().slice(1)).toEqual(["visible bg_bbbbbbbb (no reply)"])
  })

  test("that waits for such a moment is not sent once the plugin has ended", async () => {
    const { clock, world, outbox, told, stop } = setUp()
    world.isLast = false
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(100)
    stop.abort()
    await clock.advance(60_000)
    expect(told()).toEqual([])
  })

  test("goes nowhere once its task is forgotten, its parent is gone or the plugin has ended", async () => {
    for (const end of ["forgotten", "gone", "ended"] as const) {
      const { clock, world, outbox, told, stop } = setUp()
      world.failures = [new HostError("no")]
      outbox.post(cleanup("bg_aaaaaaaa"))
      await clock.advance(0)
      if (end === "forgotten") world.known = false
      if (end === "gone") outbox.parentDeleted(PARENT)
      if (end === "ended") stop.abort()
      await clock.advance(600_000)
      expect(told(), end).toHaveLength(1)
    }
  })
})

describe("a message that was to wake the parent", () => {
  const woken = async () => {
    const all = setUp()
    all.outbox.post(cleanup("bg_aaaaaaaa"))
    await all.clock.advance(100)
    const question: Partial<Message> = { id: all.sent[0]?.messageID ?? "", role: "user" }
    return { ...all, question }
  }
  /** The parent has become idle, and the outbox has looked what it said. */
  const idle = async ({ clock, outbox }: Pick<ReturnType<typeof setUp>, "clock" | "outbox">) => {
    outbox.parentIdle(PARENT)
    await clock.advance(0)
  }

  test("and has an answer is not put before it again", async () => {
    const all = await woken()
    all.world.since = [all.question, { id: "msg_answer", role: "assistant", parentID: all.question.id }]
    await idle(all)
    all.world.since = []
    await idle(all)
    expect(all.told()).toHaveLength(1)
    expect(all.outbox.owes(PARENT)).toBe(false)
  })

  test("and was read with a later one is answered", async () => {
    const all = await woken()
    const later: Partial<Message> = { id: "msg_later", role: "user" }
    all.world.since = [all.question, later, { id: "msg_answer", role: "assistant", parentID: "msg_later" }]
    await idle(all)
    expect(all.told()).toHaveLength(1)
  })

  test("and was never read is put before it again, three times at most", async () => {
    const all = await woken()
    all.world.since = [all.question, { id: "msg_old", role: "assistant", parentID: "msg_before" }]
    const counts: number[] = []
    for (let turn = 0; turn < 5; turn++) {
      await idle(all)
      counts.push(all.told().length)
    }
    expect(counts).toEqual([2, 3, 4, 4, 4])
    expect(new Set(all.sent.map(({ messageID }) => messageID)).size).toBe(1)
  })

  test("and was never read is looked after also when the parent became idle while it was on its way", async () => {
    const { clock, world, outbox, told } = setUp()
    world.stores = false
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(1)
    outbox.parentIdle(PARENT)
    world.stores = true
    await clock.advance(10_000)
    expect(told().length).toBeGreaterThan(1)
  })

  test("and was deleted by the parent's user is not told again", async () => {
    const all = await woken()
    all.world.since = []
    await idle(all)
    expect(all.told()).toHaveLength(1)
  })

  test("and was never read waits while the parent's user has undone something", async () => {
    const all = await woken()
    all.world.since = [all.question]
    all.world.reverted = true
    await idle(all)
    expect(all.told()).toHaveLength(1)
  })

  test("is of no more interest when the parent is gone", async () => {
    const all = await woken()
    all.outbox.parentDeleted(PARENT)
    await idle(all)
    expect(all.told()).toHaveLength(1)
  })
})

test("what is sent again is what was sent, whatever has become of the tasks meanwhile", async () => {
  const { clock, outbox, sent, world } = setUp()
  world.failures.push(new HostError("busy"))
  outbox.post(cleanup("bg_aaaaaaaa"))
  await clock.advance(1000)
  expect(sent.map(({ parts }) => parts[1]?.text)).toEqual(["hidden bg_aaaaaaaa", "hidden bg_aaaaaaaa"])
  expect(world.composed).toBe(1)
})

test("that the answer was handed over is recorded once the parent holds it", async () => {
  const { clock, outbox, states, world } = setUp()
  world.handsOver = true
  world.stores = false
  outbox.post(cleanup("bg_aaaaaaaa"))
  await clock.advance(1000)
  expect(states).toEqual([])
  world.stores = true
  await clock.advance(10_000)
  expect(states[0]).toBe("bg_aaaaaaaa confirmed with its answer")
})
