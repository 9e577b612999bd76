import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import type { Task } from "../../src/core/task.ts"
import { LATER_MS } from "../../src/runtime/services.ts"
import { Rig, running } from "../support/rig.ts"

const HANG = { hang: true } as const
const error = new OpencodeError("not now")

/** A parent whose turn goes on for `ms` once it is spoken to. */
const busyParent = (rig: Rig, ms: number) => {
  rig.onPrompt("BUSY", { text: "done", delay: ms })
  rig.opencode.say(rig.parent, "BUSY")
}

describe("a notification", () => {
  test("a notification has two parts, uses the parent's agent and model, and starts the parent's turn", async () => {
    const rig = new Rig()
    rig.opencode.say(rig.parent, "hello", {
      agent: "plan",
      model: { provider: "scripted", id: "beta", variant: "low" },
    })
    await rig.clock.advance(1000)
    const task = await rig.ended((await rig.launch()).id)
    await rig.clock.advance(100)
    const message = rig.opencode.stored(rig.parent).messages.at(-2)
    expect(message).toMatchObject({
      role: "user",
      agent: "plan",
      model: { provider: "scripted", id: "beta", variant: "low" },
      parts: [
        {
          type: "text",
          synthetic: false,
          text: expect.stringMatching(/^✓ \*\*Agent "find it" finished in \d+ms\.\*\*\nTask Progress: 1\/1$/),
        },
        { type: "text", synthetic: true, text: expect.stringContaining("All 1 tasks finished.") },
      ],
    })
    expect(rig.opencode.stored(rig.parent).messages.at(-1)).toMatchObject({ role: "assistant", parentID: message?.id })
    expect(task.delivery.state).toBe("confirmed")
  })

  test("a notification uses OpenCode's defaults in a parent session without any user message", async () => {
    const rig = new Rig()
    const parent = rig.opencode.openSession()
    const task = await rig.launch({}, parent)
    await rig.ended(task.id, parent)
    expect(rig.notices(parent)).toHaveLength(1)
  })

  test("a notification carries the development mark if that is enabled", async () => {
    const rig = new Rig({ development: true })
    await rig.ended((await rig.launch()).id)
    expect(rig.notices()[0]?.visible).toMatch(/\n\[hint attached\]$/)
  })

  const written = (rig: Rig, sessionID: string) => {
    const { superagents } = rig.opencode.stored(sessionID).metadata as { superagents: { task: Task } }
    return `${superagents.task.status} ${superagents.task.delivery.state}`
  }
  /** What the child's record says when the parent's message is sent, and how often it is written in all. */
  const order = async (rig: Rig, sessionID: string, end: () => Promise<unknown>) => {
    const seen: string[] = []
    rig.opencode.onCall = (method) => {
      if (method === "prompt") seen.push(written(rig, sessionID))
      return undefined
    }
    rig.opencode.calls.length = 0
    await end()
    await rig.clock.advance(LATER_MS + 1000)
    return { seen, writes: rig.opencode.calls.filter((method) => method === "saveRecord").length }
  }

  test("a notification of a proven end is sent first, and both are then recorded in one write", async () => {
    const rig = new Rig()
    const { id, sessionID } = await rig.launch()
    const { seen, writes } = await order(rig, sessionID, () => rig.ended(id))
    expect([...seen, writes]).toEqual(["running none", 1])
    expect(written(rig, sessionID)).toBe("completed confirmed")
  })

  test("a notification that cannot be delivered at once delays the record of the end by one second", async () => {
    const rig = new Rig()
    const { id, sessionID } = await rig.launch()
    rig.opencode.onCall = (method) => (method === "persona" ? { fail: error } : undefined)
    await rig.clock.until(() => rig.task(id).status === "completed")
    await rig.clock.advance(900)
    expect(written(rig, sessionID)).toBe("running none")
    await rig.clock.advance(200)
    expect(written(rig, sessionID)).toBe("completed pending")
  })

  test.each([
    [20, "prompt", 150],
    [8, "prompt", 1200],
    [8, "persona", 1200],
  ])(
    "when %i tasks end together and each %s takes %i ms, every record is written once",
    async (many, slowest, slow) => {
      const rig = new Rig({ options: { maxConcurrentTasks: 0, maxLaunchesPerMinute: 0 } })
      const launched = await Promise.all(Array.from({ length: many }, () => rig.launch()))
      rig.opencode.onCall = (method) => (method === slowest ? { slow } : undefined)
      rig.opencode.calls.length = 0
      await rig.clock.until(() => launched.every(({ id }) => rig.task(id).delivery.state === "confirmed"))
      await rig.clock.advance(2 * LATER_MS)
      expect(rig.opencode.calls.filter((method) => method === "saveRecord")).toHaveLength(many)
      for (const { sessionID } of launched) expect(written(rig, sessionID)).toBe("completed confirmed")
    },
  )

  test("records of tasks that end right after a wake are written once, with their deliveries", async () => {
    const rig = new Rig({ options: { maxConcurrentTasks: 0, maxLaunchesPerMinute: 0 } })
    rig.onPrompt("FIRST", { text: "done", delay: 100 })
    rig.onPrompt("LATER", { text: "done", delay: 500 })
    rig.opencode.onCall = (method) => (method === "prompt" ? { slow: 50 } : undefined)
    const prompts = ["FIRST", ...Array.from({ length: 8 }, () => "LATER")]
    const launched = await Promise.all(prompts.map((prompt) => rig.launch({ prompt })))
    await rig.clock.until(() => launched.every(({ id }) => rig.task(id).status === "completed"))
    expect(rig.task(launched[0]?.id ?? "").delivery.state).toBe("confirmed")
    rig.opencode.calls.length = 0
    await rig.clock.advance(2 * LATER_MS)
    expect(rig.opencode.calls.filter((method) => method === "saveRecord")).toHaveLength(launched.length)
  })

  test("a notification of an end that the child's messages do not prove is recorded before it is sent", async () => {
    const { rig, sessionID } = await running()
    const { seen, writes } = await order(rig, sessionID, () => rig.manager.cancel({ type: "all" }, rig.caller))
    expect([...seen, writes]).toEqual(["cancelled pending", 2])
    expect(written(rig, sessionID)).toBe("cancelled confirmed")
  })

  test.each(["persona", "prompt", "hasMessage"])(
    "a notification arrives once although OpenCode fails at %s at first",
    async (failing) => {
      const rig = new Rig()
      const { id } = await rig.launch()
      let failures = 3
      rig.opencode.onCall = (method) => (method === failing && failures-- > 0 ? { fail: error } : undefined)
      await rig.ended(id)
      await rig.clock.advance(100)
      expect(rig.notices()).toHaveLength(1)
      expect(rig.answers()).toHaveLength(1)
    },
  )

  test("a notification arrives once although OpenCode stored it and reported a failure", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    let failures = 3
    rig.opencode.onCall = (method) => (method === "prompt" && failures-- > 0 ? { fail: error, after: true } : undefined)
    await rig.ended(id)
    await rig.clock.advance(100)
    expect(rig.notices()).toHaveLength(1)
    expect(rig.answers()).toHaveLength(1)
  })

  test("a notification falls back to the default agent only once the parent's agent is surely not configured", async () => {
    const rig = new Rig()
    const parent = rig.openParent({ agent: "gone" })
    const { id } = await rig.launch({}, parent)
    const agents: (string | undefined)[] = []
    const prompt = rig.opencode.prompt.bind(rig.opencode)
    rig.opencode.prompt = (message) => {
      agents.push(message.agent)
      return prompt(message)
    }
    await rig.ended(id, parent)
    expect(agents).toEqual(["gone", "gone", "gone", undefined])
    expect(rig.notices(parent)).toMatchObject([{ agent: "build" }])
  })

  test("a notification is given up when its parent session is deleted", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    rig.opencode.database.sessions.delete(rig.parent)
    expect((await rig.ended(id)).delivery.state).toBe("abandoned")
    await rig.clock.advance(600_000)
    expect(rig.timers.pending).toBe(0)
  })
})

describe("the task progress", () => {
  test("the task progress counts all unnamed tasks launched since the session was last idle", async () => {
    const rig = new Rig()
    for (const [index, delay] of [100, 200, 300].entries()) rig.onPrompt(`NUMBER ${index}`, { text: "ok", delay })
    const tasks = []
    for (const index of [0, 1, 2]) tasks.push(await rig.launch({ prompt: `NUMBER ${index}` }))
    for (const { id } of tasks) await rig.ended(id)
    const later = await rig.launch()
    await rig.ended(later.id)
    const lines = rig.notices().map(({ visible }) => visible.split("\n")[1])
    expect(lines).toEqual(["1/3", "2/3", "3/3", "1/1"].map((progress) => `Task Progress: ${progress}`))
    const hints = rig.notices().map(({ hidden }) => /All \d+ tasks finished\.|WATCH OUT/.exec(hidden)?.[0])
    expect(hints).toEqual(["WATCH OUT", "WATCH OUT", "All 3 tasks finished.", "All 1 tasks finished."])
  })

  test("the task progress counts a named batch separately", async () => {
    const rig = new Rig()
    rig.onPrompt("SLOW", { text: "ok", delay: 5000 })
    const unnamed = await rig.launch({ prompt: "SLOW" })
    await rig.ended((await rig.launch({ batch: "search" })).id)
    await rig.ended((await rig.launch({ batch: "search" })).id)
    await rig.ended(unnamed.id)
    const lines = rig.notices().map(({ visible }) => visible.split("\n")[1])
    expect(lines).toEqual(["Task Progress: 1/1", "Task Progress: 2/2", "Task Progress: 1/1"])
  })
})

describe("wake-ups of the parent", () => {
  test("three tasks that end in one moment send three notifications, and only the last wakes the parent", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    const tasks = []
    for (let count = 0; count < 3; count++) tasks.push(await rig.launch())
    await rig.clock.advance(100)
    rig.opencode.onCall = (method) => (method === "persona" ? { slow: 200 } : undefined)
    for (const { sessionID } of tasks) rig.opencode.abortByUser(sessionID)
    for (const { id } of tasks) await rig.ended(id)
    await rig.clock.advance(10_000)
    expect(rig.notices()).toHaveLength(3)
    expect(rig.answers().map(({ parentID }) => parentID)).toEqual([rig.notices()[2]?.id])
  })

  test("the parent is still woken if the message that should do so for another is cleared", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    const one = await rig.launch()
    const two = await rig.launch()
    await rig.clock.advance(100)
    // The first is stored without waking, since the second is to wake: and that one is forgotten before it is sent.
    let sends = 0
    rig.opencode.onCall = (method, sessionID) => {
      if (method !== "prompt" || sessionID !== rig.parent) return undefined
      return sends++ === 0 ? { slow: 200 } : undefined
    }
    for (const { sessionID } of [one, two]) rig.opencode.abortByUser(sessionID)
    await rig.clock.until(() => sends === 1)
    const { metadata } = rig.opencode.stored(two.sessionID)
    rig.opencode.writeMetadata(two.sessionID, { ...metadata, superagentsRequest: { id: "r1", action: "clear" } })
    await rig.clock.advance(10_000)
    expect(rig.notices()).toHaveLength(1)
    expect(rig.answers().map(({ parentID }) => parentID)).toEqual([rig.notices()[0]?.id])
  })

  test("the option wake decides whether every task, only a batch's last, or none wakes the parent", async () => {
    const counts: Record<string, number> = {}
    for (const wake of ["each", "last", "never"] as const) {
      const rig = new Rig({ options: { wake } })
      rig.onPrompt("SLOW", { text: "ok", delay: 5000 })
      const slow = await rig.launch({ prompt: "SLOW" })
      await rig.ended((await rig.launch()).id)
      await rig.ended(slow.id)
      await rig.clock.advance(10_000)
      expect(rig.notices()).toHaveLength(2)
      counts[wake] = rig.answers().length
    }
    expect(counts).toEqual({ each: 2, last: 1, never: 0 })
  })

  test("the parent is not woken for an answer that a waiting call has returned", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "the answer", delay: 1000 })
    const { id } = await rig.launch()
    const report = rig.output(id, rig.caller, 60_000)
    await rig.ended(id)
    expect(await report).toMatchObject({ answer: "the answer", view: { task: { status: "completed" } } })
    await rig.clock.advance(10_000)
    expect(rig.notices()).toHaveLength(1)
    expect(rig.answers()).toEqual([])
    expect(rig.timers.pending).toBe(0)
  })

  test("the parent is woken for a task whose waiting call had timed out before", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "the answer", delay: 5000 })
    const { id } = await rig.launch()
    const report = rig.output(id, rig.caller, 1000)
    await rig.clock.advance(1000)
    expect((await report).view.task.status).toBe("running")
    await rig.ended(id)
    await rig.clock.advance(100)
    expect(rig.answers()).toHaveLength(1)
  })

  test("the parent is not woken for a task that it cancelled itself", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    const { id } = await rig.launch()
    await rig.clock.advance(100)
    await rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.ended(id)
    await rig.clock.advance(10_000)
    expect(rig.notices()[0]?.visible).toMatch(/^⊘ \*\*Agent "find it" cancelled after \d+ms\.\*\*/)
    expect(rig.answers()).toEqual([])
  })
})

describe("a busy parent", () => {
  test("a busy parent reads a notification in its current turn, and no further turn follows", async () => {
    const rig = new Rig()
    busyParent(rig, 3000)
    const task = await rig.ended((await rig.launch()).id)
    await rig.clock.advance(10_000)
    expect(task.delivery.state).toBe("confirmed")
    expect(rig.notices()).toHaveLength(1)
    expect(rig.answers()).toHaveLength(2)
  })

  test("a busy parent is shown a notification again if it arrived just as its turn ended", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    let ending = true
    rig.opencode.onEvent = (event) => {
      // The parent's turn is over but for its idle event.
      if (event.type === "answered" && event.sessionID === rig.parent) ending = false
      return undefined
    }
    rig.onPrompt("BUSY", { text: "done", delay: 300 })
    rig.opencode.say(rig.parent, "BUSY")
    rig.opencode.onCall = (method, sessionID) =>
      method === "prompt" && sessionID === rig.parent && ending ? { fail: error } : undefined
    await rig.ended(id)
    await rig.clock.advance(10_000)
    expect(rig.notices()).toHaveLength(1)
    const read = rig.answers().some(({ parentID }) => parentID === rig.notices()[0]?.id)
    expect(read).toBe(true)
  })

  test("a busy parent is not woken afterwards by a notification that need not wake it", async () => {
    const rig = new Rig({ options: { wake: "never" } })
    busyParent(rig, 3000)
    await rig.ended((await rig.launch()).id)
    await rig.clock.advance(10_000)
    expect(rig.notices()).toHaveLength(1)
    expect(rig.answers()).toHaveLength(1)
  })
})
