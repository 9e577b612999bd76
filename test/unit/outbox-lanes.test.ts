import { getHeapStatistics, setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { describe, expect, test } from "vitest"
import { type Message, OpencodeError } from "../../src/core/ports.ts"
import { partID } from "../../src/opencode/messages.ts"
import type { OutboxPorts } from "../../src/runtime/mailbox/outbox.ts"
import { flush } from "../support/fake-clock.ts"
import { cleanup, GONE, held, PARENT, setUp } from "../support/outbox-rig.ts"

/** What the outbox does when things happen at once, and what it leaves behind. What a message is: `outbox.test.ts`. */

const [A, B, C] = ["bg_aaaaaaaa", "bg_bbbbbbbb", "bg_cccccccc"] as const
const [SAID_A, SAID_B] = [`visible ${A}`, `visible ${B}`] as const
const NO = new OpencodeError("no")

type Scene = ReturnType<typeof setUp>

const asked = ({ sent }: Scene, index = -1): Partial<Message> => ({ id: sent.at(index)?.messageID ?? "", role: "user" })
const answerTo = (question: Partial<Message>): Partial<Message> => ({
  id: "msg_answer",
  role: "assistant",
  parentID: question.id,
})

/** A parent that was woken and has not answered. */
const unanswered = async (more: Parameters<typeof setUp>[0] = {}) => {
  const scene = setUp(more)
  scene.outbox.post(cleanup(A))
  await scene.clock.advance(100)
  scene.world.since = [asked(scene)]
  return scene
}

/** The same, and it is idle: what it said is being read, which ends with `read`. */
const beingRead = async () => {
  const scene = await unanswered()
  const { promise, resolve } = held()
  scene.world.reading = promise
  scene.outbox.parentIdle(PARENT)
  await flush()
  const read = async () => {
    resolve()
    scene.world.reading = Promise.resolve()
    await flush()
  }
  return { ...scene, read }
}

/** One message went and left waking to a second, which is taken back when `takeBack` is called. */
const leftToTheNext = async (scene = setUp()) => {
  const before = scene.told().length
  const { promise, resolve } = held()
  scene.world.composing = async (id) => (id === C ? promise : undefined)
  scene.outbox.post(cleanup(B))
  scene.outbox.post(cleanup(C))
  await scene.clock.advance(10)
  expect(scene.told().slice(before)).toEqual([`${SAID_B} (no reply)`])
  const takeBack = async () => {
    scene.world.known = false
    resolve()
    await flush()
    scene.world.known = true
  }
  return { ...scene, takeBack }
}

describe("the end of the plugin", () => {
  test.each(["a message is to be tried again", "others are waited for", "the parent is at work"])(
    "the end of the plugin stops all sending and all timers while %s",
    async (what) => {
      const { clock, timers, world, outbox, told, states, stop } = setUp()
      if (what === "a message is to be tried again") world.failures = [NO]
      if (what === "others are waited for") world.isLast = false
      if (what === "the parent is at work") world.busy = true
      outbox.post(cleanup(A, what !== "the parent is at work"))
      await clock.advance(0)
      expect(timers.pending).toBe(1)
      const before = told().length
      stop.abort()
      expect(timers.pending).toBe(0)
      await clock.advance(600_000)
      expect(told()).toHaveLength(before)
      expect(states).toEqual([])
    },
  )

  test("a pending wake-up is not repeated after the plugin ends or the parent is deleted", async () => {
    for (const end of ["ended", "gone"] as const) {
      const { clock, world, outbox, told, stop, takeBack } = await leftToTheNext()
      world.failures = [NO]
      await takeBack()
      expect(told(), end).toEqual([`${SAID_B} (no reply)`, SAID_B])
      if (end === "ended") stop.abort()
      else outbox.parentDeleted(PARENT)
      await clock.advance(600_000)
      expect(told(), end).toHaveLength(2)
    }
  })
})

describe("a message to a stopped parent", () => {
  test("a message to a stopped parent does not ask its model's breaker, so no later wake-up is recorded", async () => {
    const noted: string[] = []
    const isBlocked: OutboxPorts["isBlocked"] = () => noted.push("asked") > 0
    const { clock, world, outbox, told, states } = setUp({ isBlocked })
    world.mayWake = false
    outbox.post(cleanup(A))
    await clock.advance(1000)
    expect({ told: told(), states, noted }).toEqual({
      told: [`${SAID_A} (no reply)`],
      states: [`${A} confirmed`, "drained"],
      noted: [],
    })
  })
})

describe("a message to a parent whose model must not be asked", () => {
  const blocked = async () => {
    const world = { isBlocked: true }
    const scene = setUp({ isBlocked: () => world.isBlocked })
    scene.outbox.post(cleanup(A))
    await scene.clock.advance(1000)
    expect(scene.told()).toEqual([`${SAID_A} (no reply)`])
    scene.world.since = [{ ...asked(scene), parts: [{ type: "text", text: SAID_A, synthetic: false }] }]
    return { ...scene, limits: world }
  }

  test("a parent whose model must not be asked is told at once, and woken when its model may be asked again", async () => {
    const { clock, outbox, told, limits } = await blocked()
    outbox.review()
    await clock.advance(1000)
    expect({ told: told().length, owes: outbox.hasPending(PARENT), defers: outbox.defersWake }).toEqual({
      told: 1,
      owes: true,
      defers: true,
    })
    limits.isBlocked = false
    outbox.review()
    outbox.review()
    await clock.advance(1000)
    expect(told()).toEqual([`${SAID_A} (no reply)`, SAID_A])
    expect(outbox.defersWake).toBe(false)
  })

  test("a parent that ends while OpenCode is asked who answers in it is not woken", async () => {
    const { clock, world, outbox, told, limits } = await blocked()
    const { promise, resolve } = held()
    world.askingElsewhere = promise
    limits.isBlocked = false
    outbox.review()
    await clock.advance(1000)
    world.mayWake = false
    resolve()
    await clock.advance(60_000)
    expect({ told: told(), owes: outbox.hasPending(PARENT) }).toEqual({ told: [`${SAID_A} (no reply)`], owes: false })
  })

  test("a parent is woken whose model may be asked again while the message to it is being stored", async () => {
    const limits = { isBlocked: true }
    const { clock, world, outbox, told } = setUp({ isBlocked: () => limits.isBlocked })
    world.shows = false
    outbox.post(cleanup(A))
    await clock.advance(1)
    expect(told()).toEqual([`${SAID_A} (no reply)`])
    limits.isBlocked = false
    outbox.review()
    world.shows = true
    await clock.advance(1000)
    expect({ told: told(), defers: outbox.defersWake }).toEqual({
      told: [`${SAID_A} (no reply)`, SAID_A],
      defers: false,
    })
  })

  test("a parent stays owed its wake until its messages can be read, however long that takes", async () => {
    const { clock, world, outbox, told, limits } = await blocked()
    limits.isBlocked = false
    world.reading = Promise.reject(NO)
    for (const ms of [0, 30_000, 300_000]) {
      outbox.review()
      await clock.advance(ms)
      expect({ owes: outbox.hasPending(PARENT), defers: outbox.defersWake }, `${ms}`).toEqual({
        owes: true,
        defers: true,
      })
    }
    world.reading = Promise.resolve()
    await clock.advance(60_000)
    expect(told()).toEqual([`${SAID_A} (no reply)`, SAID_A])
    expect(outbox.defersWake).toBe(false)
  })

  test("a parent waits for its model from its newest deferred wake on, without a gap before", async () => {
    const { clock, world, outbox, told, limits, timers } = await blocked()
    world.since = undefined
    const now = timers.now()
    expect(outbox.deferredSince(PARENT)).toBeLessThan(now)
    const { promise, resolve } = held()
    world.reading = promise
    outbox.post(cleanup(B))
    await clock.advance(1000)
    expect(outbox.deferredSince(PARENT)).toBeGreaterThanOrEqual(now)
    resolve()
    await clock.advance(1000)
    expect(outbox.deferredSince(PARENT)).toBeLessThan(now + 1000)
    expect({ a: outbox.isUnread(cleanup(A)), b: outbox.isUnread(cleanup(B)) }).toEqual({ a: false, b: true })
    limits.isBlocked = false
    outbox.review()
    await clock.advance(1000)
    expect(told()).toEqual([`${SAID_A} (no reply)`, `${SAID_B} (no reply)`, SAID_B])
    expect(outbox.deferredSince(PARENT)).toBeUndefined()
  })

  test("a task's end that may start the model again does so for a deferred wake, too", async () => {
    const { clock, outbox, told, limits } = await blocked()
    limits.isBlocked = false
    outbox.post(cleanup(B))
    await clock.advance(1000)
    outbox.review()
    await clock.advance(1000)
    expect({ told: told(), defers: outbox.defersWake }).toEqual({
      told: [`${SAID_A} (no reply)`, SAID_B],
      defers: false,
    })
  })

  test("an unread message is sent again only once the model may be asked", async () => {
    const limits = { isBlocked: false }
    const { clock, outbox, told } = await unanswered({ isBlocked: () => limits.isBlocked })
    limits.isBlocked = true
    outbox.parentIdle(PARENT)
    await clock.advance(1000)
    expect({ told: told(), owes: outbox.hasPending(PARENT) }).toEqual({ told: [SAID_A], owes: true })
    limits.isBlocked = false
    outbox.review()
    await clock.advance(1000)
    expect(told()).toEqual([SAID_A, SAID_A])
  })

  test("a parent whose model must not be asked is not woken after its session was deleted", async () => {
    const { clock, outbox, told, limits } = await blocked()
    outbox.parentDeleted(PARENT)
    limits.isBlocked = false
    outbox.review()
    await clock.advance(1000)
    expect({ told: told().length, defers: outbox.defersWake }).toEqual({ told: 1, defers: false })
  })
})

describe("a message without a wake-up", () => {
  test("a message that does not wake the parent is confirmed as soon as OpenCode accepts it", async () => {
    const { outbox, states } = setUp()
    outbox.post(cleanup(A, false))
    await flush()
    expect(states).toEqual([`${A} confirmed`, "drained"])
  })

  test("a message that does not wake the parent is never repeated, and nothing is read for it", async () => {
    const scene = setUp()
    const { clock, world, outbox, told, works } = scene
    world.meanwhile = () => outbox.parentIdle(PARENT)
    world.shows = false
    outbox.post(cleanup(A, false))
    await clock.advance(1)
    world.since = [asked(scene)]
    outbox.parentIdle(PARENT)
    world.shows = true
    await clock.advance(100)
    outbox.parentIdle(PARENT)
    await clock.advance(100)
    expect(told()).toEqual([`${SAID_A} (no reply)`])
    expect(works).toEqual(["notify"])
    expect(world.reads).toBe(0)
  })

  test("a message that does not wake goes right after a waking one, even to a busy parent", async () => {
    const { clock, world, outbox, told, states } = setUp()
    world.busy = true
    outbox.post(cleanup(A, true))
    outbox.post(cleanup(B, false))
    await clock.advance(100)
    expect(told()).toEqual([`${SAID_A} (no reply)`, SAID_B])
    expect(states.at(-1)).toBe("drained, woken")
  })

  test("a message that does not wake is sent once the parent is idle or a waking message arrives", async () => {
    for (const what of ["idle", "woken"] as const) {
      const { clock, world, outbox, told } = setUp()
      world.busy = true
      world.meanwhile = () => {
        world.meanwhile = () => {}
        if (what === "woken") return outbox.post(cleanup(B, true))
        world.busy = false
        outbox.parentIdle(PARENT)
      }
      outbox.post(cleanup(A, false))
      await clock.advance(100)
      expect(told()[0], what).toBe(`${SAID_A} (no reply)`)
    }
  })
})

describe("a session in which another process answers", () => {
  test("a wake waits until that answer has ended, and its user's undo meanwhile is respected", async () => {
    const { clock, timers, world, outbox, told } = setUp()
    world.answeredUntil = timers.now() + 10_000
    outbox.post(cleanup(A))
    await clock.advance(5000)
    world.reverted = true
    await clock.advance(20_000)
    expect(told()).toEqual([])
    world.reverted = false
    await clock.advance(2000)
    expect(told()).toEqual([SAID_A])
  })

  test("a message that was stored for a later wake waits for it, too", async () => {
    const { clock, timers, world, outbox, told } = setUp()
    outbox.post(cleanup(A, true))
    outbox.post(cleanup(B, false))
    world.answeredUntil = timers.now() + 10_000
    await clock.advance(9000)
    expect(told()).toEqual([`${SAID_A} (no reply)`])
    await clock.advance(3000)
    expect(told()).toEqual([`${SAID_A} (no reply)`, SAID_B])
  })
})

describe("the wait for other tasks", () => {
  test("a message stops waiting for other tasks although the clock is set back and the parent becomes idle", async () => {
    const { clock, world, outbox, told } = setUp()
    world.isLast = false
    outbox.post(cleanup(A))
    await clock.advance(100)
    clock.setBack(3_600_000)
    outbox.parentIdle(PARENT)
    await clock.advance(250)
    expect(told()).toEqual([SAID_A])
  })

  test("a wake-up left by a cancelled message is repeated with growing delays until it works", async () => {
    const { clock, world, outbox, told, states, takeBack } = await leftToTheNext()
    world.failures = [NO, NO, NO]
    await takeBack()
    const counts = [told().length]
    for (const ms of [249, 1, 999, 1, 3999]) {
      await clock.advance(ms)
      counts.push(told().length)
      expect(outbox.hasPending(PARENT)).toBe(true)
    }
    expect(counts).toEqual([2, 2, 3, 3, 4, 4])
    await clock.advance(10)
    expect(told()).toHaveLength(5)
    expect(states.at(-1)).toBe("drained, woken")
    expect(outbox.hasPending(PARENT)).toBe(false)
  })

  test("a wake-up taken over from a cancelled message is repeated if the parent does not answer", async () => {
    const scene = await leftToTheNext()
    const { clock, world, outbox, told, failed, takeBack } = scene
    await takeBack()
    world.since = [asked(scene)]
    outbox.parentIdle(PARENT)
    await clock.advance(100)
    expect(told()).toEqual([`${SAID_B} (no reply)`, SAID_B, SAID_B])
    expect(failed).toEqual([])
  })

  test("a wake-up is not lost if OpenCode stores a message late after a restart and reports a failure", async () => {
    const { clock, world, outbox, told, states } = setUp()
    world.failures = [new OpencodeError("no answer")]
    world.storesWhatFails = true
    outbox.post(cleanup(A), true)
    await clock.advance(1000)
    expect(told()).toEqual([SAID_A, SAID_A])
    expect(states).toEqual([`${A} confirmed`, "drained, woken"])
  })
})

describe("a woken parent that becomes idle", () => {
  test("a parent that becomes idle while its message is being sent is reminded once if it is unread", async () => {
    const scene = setUp()
    const { clock, world, outbox, told } = scene
    world.shows = false
    outbox.post(cleanup(A))
    await clock.advance(1)
    world.since = [asked(scene)]
    outbox.parentIdle(PARENT)
    world.shows = true
    await clock.advance(60_000)
    expect(told()).toEqual([SAID_A, SAID_A])
  })

  test("an idle parent is not reminded if the next message that wakes it is being sent", async () => {
    const { clock, world, outbox, told, works } = await unanswered()
    world.failures = [NO]
    outbox.post(cleanup(B))
    await clock.advance(0)
    outbox.parentIdle(PARENT)
    await clock.advance(249)
    expect(told()).toEqual([SAID_A, SAID_B])
    await clock.advance(100)
    expect(told()).toEqual([SAID_A, SAID_B, SAID_B])
    expect(works).toEqual(["notify", "notify"])
  })

  test("an idle parent is not reminded if the next message was sent while its messages were read", async () => {
    const { clock, outbox, told, read } = await beingRead()
    outbox.post(cleanup(B))
    await clock.advance(100)
    await read()
    expect(told()).toEqual([SAID_A, SAID_B])
  })

  test("a second message is still checked for an answer if it was queued during the first one's check", async () => {
    const scene = await beingRead()
    const { clock, world, outbox, told, read } = scene
    outbox.post(cleanup(B))
    world.since?.push(answerTo(asked(scene)))
    await read()
    await clock.advance(100)
    world.since = [asked(scene)]
    outbox.parentIdle(PARENT)
    await clock.advance(100)
    expect(told()).toEqual([SAID_A, SAID_B, SAID_B])
  })

  test("a parent is not reminded if it is deleted or the plugin ends while its messages are read", async () => {
    for (const end of ["gone", "ended"] as const) {
      const { outbox, told, stop, read } = await beingRead()
      if (end === "gone") outbox.parentDeleted(PARENT)
      else stop.abort()
      await read()
      expect(told(), end).toEqual([SAID_A])
    }
  })

  test("a parent that has answered is not checked again, however often it becomes idle in one moment", async () => {
    const scene = await unanswered()
    const { clock, world, outbox, told } = scene
    world.since?.push(answerTo(asked(scene)))
    for (let count = 0; count < 3; count++) outbox.parentIdle(PARENT)
    await clock.advance(100)
    outbox.parentIdle(PARENT)
    await clock.advance(100)
    expect({ told: told(), reads: world.reads }).toEqual({ told: [SAID_A], reads: 1 })
  })

  test("a parent with an unread message is reminded only once, however often it becomes idle at once", async () => {
    const { clock, outbox, told } = await unanswered()
    for (const count of [2, 3, 4]) {
      outbox.parentIdle(PARENT)
      outbox.parentIdle(PARENT)
      await clock.advance(100)
      expect(told()).toHaveLength(count)
    }
  })

  test("a parent whose messages could not be read is checked again later or when it is idle, and each error is logged", async () => {
    const { clock, world, outbox, told, logs, failed } = await unanswered()
    for (const again of ["later", "idle"] as const) {
      world.reading = Promise.reject(NO)
      outbox.parentIdle(PARENT)
      await clock.advance(50)
      expect(JSON.stringify(logs.at(-1))).toContain("OpencodeError: no")
      world.reading = Promise.resolve()
      if (again === "idle") outbox.parentIdle(PARENT)
      await clock.advance(again === "idle" ? 50 : 250)
    }
    expect({ told: told(), logs: logs.length, failed }).toEqual({
      told: [SAID_A, SAID_A, SAID_A],
      logs: 2,
      failed: [],
    })
  })

  test("a task's end that comes while an unread message is about to be sent again wakes the parent instead", async () => {
    const scene = await unanswered()
    const { clock, world, outbox, told } = scene
    const { promise, resolve } = held()
    world.askingElsewhere = promise
    outbox.parentIdle(PARENT)
    await flush()
    outbox.post(cleanup(B, false))
    resolve()
    await clock.advance(100)
    expect(told()).toEqual([SAID_A, SAID_B])
  })

  test("an unread message is sent again once its user has redone what was undone", async () => {
    const { clock, world, outbox, told } = await unanswered()
    world.reverted = true
    outbox.parentIdle(PARENT)
    await clock.advance(1000)
    world.reverted = false
    outbox.parentChanged(PARENT)
    await clock.advance(100)
    expect(told()).toEqual([SAID_A, SAID_A])
  })

  test("an unread message is not sent again to a parent that was stopped meanwhile or is gone", async () => {
    for (const what of ["stopped", "gone"] as const) {
      const { clock, world, outbox, told } = await unanswered()
      if (what === "stopped") world.mayWake = false
      else world.reading = Promise.reject(GONE)
      outbox.parentIdle(PARENT)
      await clock.advance(600_000)
      expect({ told: told(), owes: outbox.hasPending(PARENT), reads: world.reads }, what).toEqual({
        told: [SAID_A],
        owes: false,
        reads: what === "stopped" ? 0 : 1,
      })
    }
  })

  test("a task's end does not wait for a parent whose messages cannot be read", async () => {
    const { clock, world, outbox, told } = await unanswered()
    world.reading = Promise.reject(NO)
    outbox.parentIdle(PARENT)
    await clock.advance(6000)
    outbox.post(cleanup(B))
    await clock.advance(100)
    expect(told()).toEqual([SAID_A, SAID_B])
  })

  test("a reminder that OpenCode does not accept is sent again with growing delays", async () => {
    const { clock, world, outbox, told, failed } = await unanswered()
    world.failures = [NO, NO]
    outbox.parentIdle(PARENT)
    await flush()
    expect(told()).toEqual([SAID_A, SAID_A])
    await clock.advance(250)
    expect(told()).toEqual([SAID_A, SAID_A, SAID_A])
    await clock.advance(1000)
    expect(told()).toEqual([SAID_A, SAID_A, SAID_A, SAID_A])
    await clock.advance(600_000)
    expect({ told: told().length, failed }).toEqual({ told: 4, failed: [] })
  })

  test("a parent that has answered still gets a task's end that arrived while its answer was read", async () => {
    const scene = await beingRead()
    const { clock, world, outbox, told, states, read } = scene
    const { promise, resolve } = held()
    world.composing = () => promise
    world.since?.push(answerTo(asked(scene)))
    outbox.post(cleanup(B))
    await read()
    expect(outbox.hasPending(PARENT)).toBe(true)
    resolve()
    await clock.advance(100)
    expect(told()).toEqual([SAID_A, SAID_B])
    expect(states.slice(-2)).toEqual([`${B} confirmed`, "drained, woken"])
  })

  test("an answered parent is still woken for a message that relied on a cancelled one to wake it", async () => {
    const scene = await beingRead()
    const { clock, world, outbox, told, read } = scene
    const { promise, resolve } = held()
    world.composing = async (id) => (id === C ? promise : undefined)
    world.since?.push(answerTo(asked(scene)))
    outbox.post(cleanup(B))
    outbox.post(cleanup(C))
    await read()
    await clock.advance(100)
    world.since = undefined
    world.failures = [NO]
    world.known = false
    resolve()
    await clock.advance(1000)
    expect(told()).toEqual([SAID_A, `${SAID_B} (no reply)`, SAID_B, SAID_B])
  })
})

describe("a wake that is asked for later", () => {
  /** A is stored and answered in a turn of its user; B is newer. Reading from B on shows B alone. */
  const answeredThenNewer = async (scene: ReturnType<typeof setUp>, newer: () => void) => {
    const { clock, world, outbox, sent } = scene
    outbox.post(cleanup(A, false))
    await clock.advance(1000)
    newer()
    outbox.post(cleanup(B))
    await clock.advance(1000)
    const [a = "", b = ""] = sent.map(({ messageID }) => messageID ?? "")
    const turn = [
      { id: "u", role: "user" as const },
      { id: "x", role: "assistant" as const, parentID: "u" },
    ]
    world.since = [{ id: a, role: "user" }, ...turn, { id: b, role: "user" }]
    outbox.wakeAgain({ ...cleanup(A), delivery: { state: "none" } })
    await clock.advance(1000)
    world.since = [{ id: b, role: "user" }]
  }

  test("a deferred wake outlives one that is asked for an older, answered message", async () => {
    const limits = { isBlocked: false }
    const scene = setUp({ isBlocked: () => limits.isBlocked })
    await answeredThenNewer(scene, () => {
      limits.isBlocked = true
    })
    limits.isBlocked = false
    scene.outbox.review()
    await scene.clock.advance(1000)
    expect(scene.told()).toEqual([`${SAID_A} (no reply)`, `${SAID_B} (no reply)`, SAID_B])
  })

  test("an unread message is sent again although a wake was asked for an older, answered one", async () => {
    const scene = setUp()
    await answeredThenNewer(scene, () => {})
    scene.outbox.parentIdle(PARENT)
    await scene.clock.advance(60_000)
    expect(scene.told()).toEqual([`${SAID_A} (no reply)`, SAID_B, SAID_B])
  })

  test("a parent that has answered the newest message is still woken for others, or for none once it is stopped", async () => {
    for (const mayWake of [true, false]) {
      const scene = setUp()
      const { clock, world, outbox, told } = scene
      outbox.post(cleanup(A))
      await clock.advance(1000)
      outbox.wakeAgain({ ...cleanup(B), delivery: { state: "none" } })
      outbox.wakeAgain({ ...cleanup(C), delivery: { state: "none" } })
      if (mayWake) outbox.wakeAgain({ ...cleanup(A), delivery: { state: "none" } })
      const answered = [asked(scene), answerTo(asked(scene))]
      const before = world.reads
      Object.defineProperty(world, "since", { get: () => (world.reads > before + 1 ? [asked(scene)] : answered) })
      world.mayWake = mayWake
      outbox.parentIdle(PARENT)
      await clock.advance(1000)
      expect({ told: told().length, owes: outbox.hasPending(PARENT) }).toEqual({ told: mayWake ? 2 : 1, owes: false })
    }
  })

  test("a wake that is asked for while the delivery is recorded is not lost", async () => {
    const scene = setUp({
      recordDelivery: async () => scene.outbox.wakeAgain({ ...cleanup(A), delivery: { state: "none" } }),
    })
    scene.outbox.post(cleanup(A, false))
    await scene.clock.advance(2000)
    expect(scene.told()).toEqual([`${SAID_A} (no reply)`, SAID_A])
  })

  test("nothing is being sent to a parent when it is said that nothing is left to send", async () => {
    const seen: boolean[] = []
    const scene = setUp({ drained: (id) => void seen.push(scene.outbox.isSending(id)) })
    scene.outbox.post(cleanup(A, false))
    await scene.clock.advance(1000)
    expect(seen).toEqual([false])
  })

  test("a parent that is asked to be woken for a stored message is woken unless it has answered", async () => {
    for (const hasAnswered of [false, true]) {
      const scene = setUp()
      const { clock, world, outbox, told } = scene
      outbox.post(cleanup(A, false))
      await clock.advance(100)
      world.since = [asked(scene), ...(hasAnswered ? [answerTo(asked(scene))] : [])]
      outbox.wakeAgain({ ...cleanup(A), delivery: { state: "none" } })
      await clock.advance(100)
      expect(told()).toEqual([`${SAID_A} (no reply)`, ...(hasAnswered ? [] : [SAID_A])])
    }
  })

  test("a wake that is asked for while another message is checked for an answer is not lost", async () => {
    const scene = setUp()
    const { clock, world, outbox, told } = scene
    outbox.post(cleanup(B, false))
    await clock.advance(100)
    outbox.post(cleanup(A))
    await clock.advance(100)
    const { promise, resolve } = held()
    world.since = [asked(scene), answerTo(asked(scene))]
    world.reading = promise
    outbox.parentIdle(PARENT)
    await flush()
    outbox.wakeAgain({ ...cleanup(B), delivery: { state: "none" } })
    world.since = [asked(scene, 0)]
    resolve()
    await clock.advance(100)
    expect(told()).toEqual([`${SAID_B} (no reply)`, SAID_A, SAID_B])
  })

  test("a message wakes the parent that was asked to before it was queued, while it waited, or while it was sent", async () => {
    for (const when of ["before", "waits", "sent"] as const) {
      const { clock, world, outbox, told } = setUp()
      if (when === "before") outbox.wakeAgain(cleanup(A, false))
      if (when === "waits") world.busy = true
      if (when === "sent") world.shows = false
      outbox.post(cleanup(A, false))
      await clock.advance(1)
      if (when !== "before") outbox.wakeAgain(cleanup(A, false))
      world.shows = true
      await clock.advance(1000)
      expect(told(), when).toEqual(when === "sent" ? [`${SAID_A} (no reply)`, SAID_A] : [SAID_A])
    }
  })
})

describe("a deleted session", () => {
  test("an answer does not count as delivered when the parent session was deleted", async () => {
    const { clock, world, outbox, states, told } = setUp()
    world.handsOver = true
    world.failures = [GONE]
    outbox.post(cleanup(A))
    await clock.advance(60_000)
    expect(told()).toEqual([SAID_A])
    expect(states).toEqual([`${A} abandoned`, "drained"])
  })

  test("a notification does not wait for a session that was deleted and still counts as at work", async () => {
    const { clock, world, outbox, states } = setUp()
    world.busy = true
    outbox.post(cleanup(A, false))
    await clock.advance(0)
    world.deleted = true
    world.failures = [GONE]
    await clock.advance(10_000)
    expect(states).toEqual([`${A} abandoned`, "drained"])
  })

  test("messages of tasks that end after their parent session was deleted are given up too", async () => {
    const { clock, world, outbox, states } = setUp()
    const { promise, resolve } = held()
    world.failures = [NO, GONE]
    outbox.post(cleanup(A))
    await clock.advance(0)
    outbox.parentDeleted(PARENT)
    world.composing = () => promise
    outbox.post(cleanup(B))
    await clock.advance(10_000)
    resolve()
    await clock.advance(10_000)
    expect(states).toContain(`${B} abandoned`)
  })
})

describe("the outbox's memory", () => {
  setFlagsFromString("--expose-gc")
  const collect: () => void = runInNewContext("gc")
  const MANY = 200
  const LONG = 100_000
  /** Names so long that what is kept of a session shows. */
  const nameOf = (index: number) => Buffer.alloc(LONG, `ses_${index}_`).toString("latin1")
  const used = async () => {
    await flush()
    collect()
    return getHeapStatistics().used_heap_size
  }

  test.each([
    ["that was told of all", false],
    ["that has answered", true],
  ])("the outbox uses no memory for a session %s", async (_what, wake) => {
    const { clock, world, outbox, sent, told, states } = setUp()
    const before = await used()
    for (let index = 0; index < MANY; index++) outbox.post(cleanup(A, wake, { parentID: nameOf(index) }))
    await clock.advance(100)
    expect(told()).toHaveLength(MANY)
    expect(states).toContain(wake ? "drained, woken" : "drained")
    const question = { id: sent[0]?.messageID ?? "", role: "user" } as const
    world.since = [question, answerTo(question)]
    for (let index = 0; index < MANY; index++) outbox.parentIdle(nameOf(index))
    await clock.advance(100)
    expect(world.reads).toBe(wake ? MANY : 0)
    sent.length = 0
    expect((await used()) - before).toBeLessThan((MANY * LONG) / 4)
    expect(outbox.hasPending(PARENT)).toBe(false)
  })
})

test("a run's message has the same ids in every version, so an update never sends it twice", async () => {
  const { clock, outbox, sent } = setUp()
  outbox.post(cleanup(A))
  await clock.advance(100)
  expect([sent[0]?.messageID, ...(sent[0]?.parts.map((_, at) => partID(sent[0]?.messageID ?? "", at)) ?? [])]).toEqual([
    "msg_0000003e8000aaaaaaaaN00000",
    "prt_0000003e8000aaaaaaaaN00000",
    "prt_0000003e9000aaaaaaaaN00000",
  ])
})
