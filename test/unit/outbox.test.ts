import { describe, expect, test } from "vitest"
import { type Message, OpencodeError } from "../../src/core/ports.ts"
import { AUTOMATIC } from "../../src/core/run/prompts.ts"
import { NOBODY } from "../../src/core/task.ts"
import { BUILD, cleanup, GONE, held, PARENT, setUp } from "../support/outbox-rig.ts"
import { deliveryOf } from "../support/tasks.ts"

/** What a message is, and when it goes. How the outbox works with the rest is in `notify.test.ts`. */

describe("a notification message", () => {
  test("a notification message has two parts, of which the second is hidden", async () => {
    const { clock, outbox, sent, states } = setUp()
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(100)
    expect(sent[0]?.parts).toMatchObject([
      { text: "visible bg_aaaaaaaa" },
      { text: "hidden bg_aaaaaaaa", synthetic: true },
    ])
    expect(states).toEqual(["bg_aaaaaaaa confirmed", "drained, woken"])
  })

  test("a notification message is sent only for a task that still owes one, and once per run", async () => {
    const { clock, outbox, told } = setUp()
    const task = cleanup("bg_aaaaaaaa")
    outbox.post({ ...task, delivery: { state: "none" } })
    outbox.post({ ...task, delivery: deliveryOf({ state: "confirmed" }) })
    expect(outbox.hasPending(PARENT)).toBe(false)
    outbox.post(task)
    outbox.post(task)
    outbox.post(cleanup("bg_aaaaaaaa", true, { run: { generation: 1 } }))
    outbox.post(cleanup("bg_bbbbbbbb"))
    expect(outbox.hasPending(PARENT)).toBe(true)
    await clock.advance(1000)
    expect(told()).toEqual(["visible bg_aaaaaaaa (no reply)", "visible bg_aaaaaaaa (no reply)", "visible bg_bbbbbbbb"])
  })

  test("a notification that does not wake waits for a busy parent, and goes once it is idle", async () => {
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
    expect(world.looks).toBe(looks + 2)
  })

  test("a notification that does not wake is sent together with one that does, even to a busy parent", async () => {
    const { clock, world, outbox, told } = setUp()
    world.busy = true
    outbox.post(cleanup("bg_aaaaaaaa", false))
    await clock.advance(100)
    outbox.post(cleanup("bg_bbbbbbbb", true))
    await clock.advance(100)
    expect(told()).toEqual(["visible bg_aaaaaaaa (no reply)", "visible bg_bbbbbbbb"])
  })

  test("a rejected notification is sent again with growing delays, and each failure is logged", async () => {
    const { clock, world, outbox, told, logs } = setUp()
    world.failures = Array.from({ length: 6 }, () => new OpencodeError("no"))
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
      "notification not accepted",
      { task: "bg_aaaaaaaa", session: PARENT, attempt: 0, error: "OpencodeError: no" },
    ])
  })

  test("a notification that OpenCode accepts but never shows does not count as delivered", async () => {
    const { clock, world, outbox, states, logs } = setUp()
    world.stores = false
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(5000)
    expect(states).not.toContain("bg_aaaaaaaa confirmed")
    expect(JSON.stringify(logs)).toContain("OpenCode took the notification but does not show it.")
  })

  test("a notification keeps its agent as long as OpenCode has that agent, however often sending fails", async () => {
    const { clock, world, outbox, sent } = setUp()
    world.agents = [BUILD, { ...BUILD, name: "plan" }]
    world.failures = Array.from({ length: 5 }, () => new OpencodeError("no"))
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(120_000)
    expect(new Set(sent.map(({ agent }) => agent))).toEqual(new Set(["build"]))
    expect(sent).toHaveLength(6)
  })

  test("a notification that the parent may already have is looked up before it is sent", async () => {
    const { clock, outbox, told, states } = setUp()
    const task = cleanup("bg_aaaaaaaa")
    outbox.post(task, true)
    await clock.advance(100)
    expect(told()).toEqual(["visible bg_aaaaaaaa"])
    outbox.post(task, true)
    await clock.advance(100)
    expect(told()).toHaveLength(1)
    expect(states.filter((state) => state.endsWith("confirmed"))).toHaveLength(2)
  })

  test("a notification has the same id whichever process sends it and whenever the run ended", async () => {
    const ids = []
    for (const endedAt of [5000, 6000]) {
      const { clock, outbox, sent } = setUp()
      outbox.post(cleanup("bg_aaaaaaaa", true, { run: { endedAt } }))
      await clock.advance(100)
      ids.push(sent[0]?.messageID)
    }
    expect(ids[0]).toBe(ids[1])
  })

  test("a notification waits while the parent's user has undone a message, and is sent right afterwards", async () => {
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

  test("a notification waits while it is unknown whether the parent may receive one", async () => {
    const { clock, world, outbox, told } = setUp()
    world.parentFailures = [new OpencodeError("no"), new OpencodeError("no")]
    outbox.post(cleanup("bg_aaaaaaaa"))
    await clock.advance(2500)
    expect(told()).toEqual([])
    await clock.advance(2000)
    expect(told()).toEqual(["visible bg_aaaaaaaa"])
  })

  test("a notification that waits for an idle parent does not check it after each change of its session", async () => {
    const { clock, world, outbox } = setUp()
    world.busy = true
    outbox.post(cleanup("bg_aaaaaaaa", false))
    await clock.advance(100)
    const { looks } = world
    for (let count = 0; count < 10; count++) outbox.parentChanged(PARENT)
    await clock.advance(100)
    expect(world.looks).toBe(looks)
  })

  test("a notification wakes the parent itself, or the next one for it, if the one that should do so is cancelled", async () => {
    const { clock, world, outbox, told, states } = setUp()
    const { promise, resolve } = held()
    world.composing = async (id) => (id === "bg_bbbbbbbb" ? promise : undefined)
    outbox.post(cleanup("bg_aaaaaaaa", true))
    outbox.post(cleanup("bg_bbbbbbbb", true))
    await clock.advance(1000)
    world.known = false
    world.failures = [new OpencodeError("no"), new OpencodeError("no")]
    resolve()
    await clock.advance(0)
    world.known = true
    outbox.post(cleanup("bg_cccccccc", false))
    await clock.advance(60_000)
    const first = "visible bg_aaaaaaaa"
    expect(told()).toEqual([`${first} (no reply)`, first, "visible bg_cccccccc", "visible bg_cccccccc"])
    expect(states.at(-1)).toBe("drained, woken")
    expect(outbox.hasPending(PARENT)).toBe(false)
  })

  test("a notification waits briefly for other tasks, and the last that ends wakes the parent", async () => {
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

  test("a notification wakes the parent after a short wait, or goes at once if it wakes no one", async () => {
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

  test("a notification is not repeated after its task is forgotten, its parent deleted or the plugin ended", async () => {
    for (const end of ["forgotten", "gone", "ended"] as const) {
      const { clock, world, outbox, told, stop } = setUp()
      world.failures = [new OpencodeError("no")]
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

describe("a notification that wakes the parent", () => {
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
    await clock.advance(10)
  }

  test("a waking notification that the parent has answered is not sent again", async () => {
    const all = await woken()
    all.world.since = [all.question, { id: "msg_answer", role: "assistant", parentID: all.question.id }]
    await idle(all)
    all.world.since = []
    await idle(all)
    expect(all.told()).toHaveLength(1)
    expect(all.outbox.hasPending(PARENT)).toBe(false)
  })

  test("a waking notification that was read together with a later message counts as answered", async () => {
    const all = await woken()
    const later: Partial<Message> = { id: "msg_later", role: "user" }
    all.world.since = [all.question, later, { id: "msg_answer", role: "assistant", parentID: "msg_later" }]
    await idle(all)
    expect(all.told()).toHaveLength(1)
  })

  test("a waking notification that was never read is sent again at most three times", async () => {
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

  test("a waking notification that the parent's user deleted is not sent again", async () => {
    const all = await woken()
    all.world.since = []
    await idle(all)
    expect(all.told()).toHaveLength(1)
  })

  test("an unread waking notification is not repeated while the parent's user has undone a message", async () => {
    const all = await woken()
    all.world.since = [all.question]
    all.world.reverted = true
    await idle(all)
    expect(all.told()).toHaveLength(1)
  })
})

test("a repeated notification has the original text, whatever happened to the tasks meanwhile", async () => {
  const { clock, outbox, sent, world } = setUp()
  world.failures.push(new OpencodeError("busy"))
  outbox.post(cleanup("bg_aaaaaaaa"))
  await clock.advance(1000)
  expect(sent.map(({ parts }) => parts[1]?.text)).toEqual(["hidden bg_aaaaaaaa", "hidden bg_aaaaaaaa"])
  expect(world.composed).toBe(1)
})

test("a delivered answer is recorded only once the parent session contains it", async () => {
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

describe("a note", () => {
  const note = (id = "bg_aaaaaaaa", text = "a limit") => ({ task: cleanup(id), kind: "parked", at: 7, text }) as const

  test("a note is stored once the session is idle, hidden, and does not start the model", async () => {
    const { clock, outbox, sent, world } = setUp()
    world.busy = true
    outbox.note(PARENT, () => note())
    await clock.advance(60_000)
    expect(sent).toEqual([])
    // A parent that is a task may end meanwhile.
    expect(outbox.hasPending(PARENT)).toBe(false)
    world.busy = false
    outbox.parentIdle(PARENT)
    await clock.advance(10)
    expect(sent).toMatchObject([
      { sessionID: PARENT, agent: "build", noReply: true, parts: [{ text: `${AUTOMATIC} a limit`, synthetic: true }] },
    ])
    await clock.advance(60_000)
    expect(sent).toHaveLength(1)
  })

  test("a waiting note asks OpenCode every ten seconds whether the session is idle, should its event be lost", async () => {
    const { clock, outbox, world, told } = setUp()
    world.busy = true
    outbox.note(PARENT, () => ({ ...note(), visible: "shown" }))
    await clock.advance(60_500)
    expect(world.looks).toBe(7)
    world.busy = false
    await clock.advance(10_000)
    expect(told()).toEqual(["shown (no reply)"])
  })

  test("a notification that is queued while a note waits is sent first, and the note waits for the next idle time", async () => {
    const { clock, outbox, world, told } = setUp()
    world.busy = true
    outbox.note(PARENT, () => ({ ...note(), visible: "shown" }))
    await clock.advance(1000)
    outbox.post(cleanup("bg_bbbbbbbb"))
    await clock.advance(100)
    expect(told()).toEqual(["visible bg_bbbbbbbb"])
    world.busy = false
    outbox.parentIdle(PARENT)
    await clock.advance(100)
    expect(told()).toEqual(["visible bg_bbbbbbbb", "shown (no reply)"])
  })

  test("a note with nothing left to say is dropped while the session is busy, and a note to nobody at once", async () => {
    const { clock, outbox, sent, world } = setUp()
    const done: string[] = []
    world.busy = true
    let isOpen = true
    outbox.note(
      PARENT,
      () => (isOpen ? note() : undefined),
      (isSent) => done.push(`over ${isSent}`),
    )
    outbox.note(
      NOBODY,
      () => note(),
      (isSent) => done.push(`nobody ${isSent}`),
    )
    await clock.advance(100)
    isOpen = false
    await clock.advance(10_000)
    expect({ done, sent }).toEqual({ done: ["nobody false", "over false"], sent: [] })
    const { looks } = world
    await clock.advance(60_000)
    expect(world.looks).toBe(looks)
  })

  test("a note waits until a parent that was just woken is idle again, although OpenCode does not show its turn yet", async () => {
    const { clock, outbox, told } = setUp()
    outbox.post(cleanup("bg_bbbbbbbb"))
    await clock.advance(300)
    outbox.note(PARENT, () => ({ ...note(), visible: "shown" }))
    await clock.advance(1000)
    expect(told()).toEqual(["visible bg_bbbbbbbb"])
    outbox.parentIdle(PARENT)
    await clock.advance(100)
    expect(told()).toEqual(["visible bg_bbbbbbbb", "shown (no reply)"])
  })

  test("a note is composed anew at each look until it was sent for the first time", async () => {
    const { clock, outbox, told, world } = setUp()
    world.busy = true
    let text = "first"
    outbox.note(PARENT, () => ({ ...note(), visible: text }))
    await clock.advance(100)
    text = "second"
    world.busy = false
    outbox.parentIdle(PARENT)
    await clock.advance(100)
    expect(told()).toEqual(["second (no reply)"])
  })

  test("a note of a deleted session is dropped, and its waits end", async () => {
    const { clock, outbox, sent, world } = setUp()
    const done: boolean[] = []
    world.busy = true
    outbox.note(
      PARENT,
      () => note(),
      (isSent) => done.push(isSent),
    )
    await clock.advance(100)
    outbox.parentDeleted(PARENT)
    await clock.advance(60_000)
    expect({ done, sent, looks: world.looks }).toEqual({ done: [false], sent: [], looks: 1 })
  })

  test("a note whose session is deleted while it is being sent is done once", async () => {
    const { clock, outbox, world } = setUp()
    const done: boolean[] = []
    world.shows = false
    outbox.note(
      PARENT,
      () => note(),
      (isSent) => done.push(isSent),
    )
    await clock.advance(1)
    outbox.parentDeleted(PARENT)
    world.shows = true
    await clock.advance(5000)
    expect(done).toEqual([false])
  })

  test("a note that OpenCode does not accept is sent again as the same message, and given up after five repeats", async () => {
    const { clock, outbox, sent, world, logs } = setUp()
    world.failures = Array.from({ length: 6 }, () => new OpencodeError("no"))
    world.stores = false
    let at = 0
    const dropped: number[] = []
    outbox.note(
      PARENT,
      () => ({ ...note(), at: at++ }),
      (isSent) => isSent || dropped.push(clock.now()),
    )
    outbox.note(PARENT, () => ({ ...note("bg_bbbbbbbb"), visible: "the next" }))
    await clock.advance(10)
    expect(sent).toHaveLength(1)
    await clock.advance(79_000)
    expect(sent).toHaveLength(5)
    world.stores = true
    await clock.advance(5000)
    expect(new Set(sent.slice(0, 6).map(({ messageID }) => messageID)).size).toBe(1)
    expect({ dropped: dropped.length, logs: logs.length }).toEqual({ dropped: 1, logs: 6 })
    expect(sent.slice(6).map(({ parts }) => parts[0]?.text)).toEqual(["the next"])
  })

  test("a note to a session that is gone is dropped at once", async () => {
    const { clock, outbox, sent, world } = setUp()
    world.failures = [GONE]
    const dropped: string[] = []
    outbox.note(
      PARENT,
      () => note(),
      (isSent) => isSent || dropped.push("gone"),
    )
    await clock.advance(100)
    expect({ dropped, sent: sent.length }).toEqual({ dropped: ["gone"], sent: 1 })
  })

  test("a notification that is queued in the very moment in which a note would go is sent once, and the note after it", async () => {
    const { clock, outbox, world, told, states } = setUp()
    let many = 0
    world.meanwhile = () => {
      if (many++ > 0) return
      const soon = Promise.resolve().then(() => {})
      void soon.then(() => outbox.post(cleanup("bg_bbbbbbbb", false)))
    }
    outbox.note(PARENT, () => ({ ...note(), visible: "shown" }))
    await clock.advance(30_000)
    expect(told().toSorted()).toEqual(["shown (no reply)", "visible bg_bbbbbbbb (no reply)"])
    expect(states.filter((state) => state.endsWith("confirmed"))).toEqual(["bg_bbbbbbbb confirmed"])
  })

  test("a note that has to wait is asked for again at the next look", async () => {
    const { clock, outbox, told, world } = setUp()
    let isLater = true
    outbox.note(PARENT, () => (isLater ? "later" : { ...note(), visible: "shown" }))
    await clock.advance(15_000)
    expect({ told: told(), looks: world.looks }).toEqual({ told: [], looks: 0 })
    isLater = false
    await clock.advance(10_000)
    expect(told()).toEqual(["shown (no reply)"])
  })

  test("a note goes right after a notification that does not wake, once both may go", async () => {
    const { clock, outbox, told, world } = setUp()
    world.busy = true
    outbox.note(PARENT, () => ({ ...note(), visible: "shown" }))
    outbox.post(cleanup("bg_bbbbbbbb", false))
    await clock.advance(1000)
    world.busy = false
    outbox.parentIdle(PARENT)
    await clock.advance(100)
    expect(told()).toEqual(["visible bg_bbbbbbbb (no reply)", "shown (no reply)"])
  })
})
