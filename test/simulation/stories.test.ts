import { describe, expect, test } from "vitest"
import { HostError } from "../../src/core/ports.ts"
import { Rig } from "../support/rig.ts"
import { witness } from "./witness.ts"

/**
 * Lives in which two parts of the engine disagreed about what a run was doing. Each is one that the simulation could
 * meet; it stands here by itself so that it can be read. Issue *True ends, true wakes, true words* tells them.
 */

const HANG = { hang: true, text: "so far" } as const
const MINUTE = 60_000
const failure = new HostError("out of order")

/** A parent, its agent A at work, and A's own agent B. */
const family = async (options: object = {}) => {
  const rig = new Rig({ options: { maxDepth: 2, ...options } })
  rig.onPrompt("WORK", HANG)
  rig.onPrompt("BRIEF", { text: "B is done", delay: 200 })
  const seen = witness(rig)
  const a = await rig.launch({ description: "A", prompt: "WORK" })
  await rig.clock.advance(100)
  const b = await rig.launch({ description: "B", prompt: "BRIEF" }, a.sessionID)
  return { rig, seen, a, b }
}

describe("1: a stopped agent", () => {
  test.fails("is not set to work again by the news of its own agent that was on its way", async () => {
    const { rig, seen, a } = await family()
    // The news of B takes a second to reach A, and A is cancelled meanwhile.
    rig.host.onCall = (method, session) =>
      method === "persona" && session === a.sessionID ? { slow: 1000 } : undefined
    await rig.clock.advance(500)
    await rig.manager.cancel({ type: "task", reference: a.id }, rig.caller)
    const before = seen.requests(a.sessionID)
    await rig.clock.advance(10 * MINUTE)
    expect(rig.task(a.id).status).toBe("cancelled")
    expect(seen.requests(a.sessionID)).toBe(before)
    expect(rig.host.isWorking(a.sessionID)).toBe(false)
  })

  test.fails("is not set to work again by news that it had not read when it was stopped", async () => {
    const { rig, seen, a } = await family()
    // A is in the middle of its turn: the news of B is stored, to be read at its next step.
    await rig.clock.advance(2000)
    expect(rig.notices(a.sessionID)).toHaveLength(1)
    await rig.manager.cancel({ type: "task", reference: a.id }, rig.caller)
    const before = seen.requests(a.sessionID)
    await rig.clock.advance(10 * MINUTE)
    expect(seen.requests(a.sessionID)).toBe(before)
    expect(rig.host.isWorking(a.sessionID)).toBe(false)
  })

  test.fails("at a limit is not set to work again either, so that the limit holds", async () => {
    const { rig, seen, a } = await family({ taskTimeout: 5000, lastWord: 0 })
    // The news of B reached A in the middle of its turn.
    await rig.clock.advance(6000)
    expect(rig.task(a.id)).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
    await rig.clock.advance(10 * MINUTE)
    expect(seen.requests(a.sessionID)).toBe(1)
    expect(rig.host.isWorking(a.sessionID)).toBe(false)
  })

  test("is its user's afterwards: what they launch from there wakes it", async () => {
    const { rig, seen, a } = await family()
    await rig.manager.cancel({ type: "task", reference: a.id }, rig.caller)
    await rig.clock.advance(MINUTE)
    rig.onPrompt("HELLO", { text: "here I am" })
    rig.host.say(a.sessionID, "HELLO", { agent: "general" })
    await rig.clock.advance(1000)
    const before = seen.requests(a.sessionID)
    const later = await rig.launch({ description: "C", prompt: "BRIEF" }, a.sessionID)
    await rig.ended(later.id, a.sessionID)
    await rig.clock.advance(1000)
    expect(seen.requests(a.sessionID)).toBe(before + 1)
  })
})

describe("2: after its user's ESC a parent", () => {
  /** A parent in the middle of a turn of its own, whose agent ends two seconds from now. */
  const interrupted = async () => {
    const rig = new Rig()
    rig.onPrompt("THINK", HANG)
    rig.onPrompt("FIND", { text: "found", delay: 2000 })
    const seen = witness(rig)
    rig.host.say(rig.parent, "THINK")
    await rig.clock.advance(100)
    const task = await rig.launch()
    return { rig, seen, task }
  }

  test.fails("is told without being woken, and reads it when its user writes again", async () => {
    const { rig, seen, task } = await interrupted()
    await rig.clock.advance(500)
    rig.host.abortByUser(rig.parent)
    const before = seen.requests(rig.parent)
    await rig.ended(task.id)
    await rig.clock.advance(MINUTE)
    expect(rig.notices()).toHaveLength(1)
    expect(seen.requests(rig.parent)).toBe(before)
    rig.onPrompt("GO ON", { text: "on it" })
    rig.host.say(rig.parent, "GO ON")
    await rig.clock.advance(MINUTE)
    expect(seen.texts(rig.parent).slice(before)).toEqual(["GO ON"])
  })

  test.fails("is not woken by what was stored for its next step before", async () => {
    const { rig, seen } = await interrupted()
    await rig.clock.advance(3000)
    expect(rig.notices()).toHaveLength(1)
    const before = seen.requests(rig.parent)
    rig.host.abortByUser(rig.parent)
    await rig.clock.advance(MINUTE)
    expect(seen.requests(rig.parent)).toBe(before)
    expect(rig.host.isWorking(rig.parent)).toBe(false)
  })

  test("is woken again by what ends after its user has written again", async () => {
    const { rig, seen, task } = await interrupted()
    rig.host.abortByUser(rig.parent)
    await rig.clock.advance(100)
    rig.onPrompt("GO ON", { text: "on it" })
    rig.host.say(rig.parent, "GO ON")
    await rig.clock.advance(500)
    const before = seen.requests(rig.parent)
    await rig.ended(task.id)
    await rig.clock.advance(1000)
    expect(seen.requests(rig.parent)).toBe(before + 1)
  })
})

describe("3: a step that failed", () => {
  for (const finish of ["error", "content-filter", "other"])
    test.fails(`with the finish reason "${finish}" and no error is a failure`, async () => {
      const rig = new Rig()
      rig.onPrompt("FIND", { text: "", finish })
      const task = await rig.ended((await rig.launch()).id)
      expect(task.status).toBe("error")
      expect(rig.notices()[0]?.visible).toMatch(/^✗/)
    })
})

describe("5: with `wake: last` a batch that is over wakes its parent", () => {
  test.fails("also where the last of it was forgotten at the screen", async () => {
    const rig = new Rig({ options: { wake: "last" } })
    rig.onPrompt("BRIEF", { text: "done", delay: 200 })
    rig.onPrompt("WORK", HANG)
    const seen = witness(rig)
    await rig.launch({ prompt: "BRIEF" })
    const last = await rig.launch({ prompt: "WORK" })
    await rig.clock.advance(2000)
    expect(seen.requests(rig.parent)).toBe(0)
    const { metadata } = rig.host.stored(last.sessionID)
    rig.host.writeMetadata(last.sessionID, { ...metadata, superagentsRequest: { id: "r1", action: "clear" } })
    await rig.clock.advance(MINUTE)
    expect(rig.manager.list(rig.parent).map(({ task }) => task.id)).not.toContain(last.id)
    expect(seen.requests(rig.parent)).toBe(1)
  })

  test.fails("also where one failure has ended what waited in two of them", async () => {
    const rig = new Rig({ options: { wake: "last" } })
    rig.onPrompt("BROKEN", { status: 400, delay: 200 })
    rig.onPrompt("WORK", HANG)
    const seen = witness(rig)
    await rig.launch({ prompt: "WORK", batch: "two" })
    const failing = await rig.launch({ prompt: "BROKEN", batch: "two" })
    await rig.launch({ prompt: "ONE", batch: "one", after: [failing.id] })
    await rig.launch({ prompt: "TWO", batch: "two", after: [failing.id] })
    await rig.clock.advance(MINUTE)
    expect(rig.notices()).toHaveLength(3)
    // Batch two still has one at work; batch one is over.
    expect(seen.requests(rig.parent)).toBe(1)
  })
})

describe("6: a wait is kept by the run, whatever fails or sleeps:", () => {
  test.fails("a refusal whose call fails once is made again", async () => {
    const rig = new Rig({ options: { permissionTimeout: 10_000, taskTimeout: 0, stallTimeout: 0 } })
    rig.host.asking.add("bash")
    rig.script(({ lastUser, toolResults }) =>
      lastUser.includes("ASK")
        ? toolResults.length > 0
          ? { text: "done without" }
          : { tools: [{ name: "bash", args: {} }] }
        : undefined,
    )
    let failures = 1
    rig.host.onCall = (method) => (method === "refuse" && failures-- > 0 ? { fail: failure } : undefined)
    const { id } = await rig.launch({ prompt: "ASK" })
    await rig.clock.advance(MINUTE)
    expect(rig.task(id).status).toBe("completed")
  })

  test.fails("a look that failed is made again also where nothing is polled", async () => {
    const rig = new Rig({ options: { pollInterval: 0 } })
    rig.onPrompt("FIND", { text: "found", delay: 200 })
    let failures = 1
    rig.host.onCall = (method) => (method === "messagesSince" && failures-- > 0 ? { fail: failure } : undefined)
    const { id } = await rig.launch()
    await rig.clock.advance(MINUTE)
    expect(rig.task(id).status).toBe("completed")
  })

  test.fails("sleep in the middle of a look counts for no limit", async () => {
    const rig = new Rig({ options: { taskTimeout: 5 * MINUTE, lastWord: 0 } })
    rig.onPrompt("FIND", { text: "found", delay: 2 * MINUTE })
    const { id } = await rig.launch()
    await rig.clock.advance(MINUTE)
    rig.host.onCall = (method) => (method === "activity" ? { slow: 1000 } : undefined)
    rig.host.calls.length = 0
    await rig.clock.until(() => rig.host.calls.at(-1) === "activity")
    await rig.clock.sleep(60 * MINUTE)
    expect((await rig.ended(id)).status).toBe("completed")
  })
})

describe("7: a model that goes on without end", () => {
  test.fails("with texts that neither call a tool nor end is stopped as one with empty answers is", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "hm", finish: "unknown", delay: 50 })
    const seen = witness(rig)
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(30_000)
    expect(rig.task(id)).toMatchObject({ status: "error", outcome: { reason: { code: "empty" } } })
    expect(seen.requests(sessionID)).toBeLessThan(10)
  })
})

describe("8: an agent with tasks of its own", () => {
  const deep = { maxConcurrentPerModel: { "scripted/alpha": 1 } }

  test.fails("works while its session does, and waits only when it is idle", async () => {
    const { rig, a } = await family()
    expect(rig.view(a.id).phase).toBe("working")
    const rest = new Rig({ options: { maxDepth: 2 } })
    rest.onPrompt("WORK", { text: "I wait", delay: 200 })
    rest.onPrompt("BRIEF", HANG)
    const resting = await rest.launch({ prompt: "WORK" })
    await rest.clock.advance(100)
    await rest.launch({ prompt: "BRIEF" }, resting.sessionID)
    await rest.clock.advance(5000)
    expect(rest.view(resting.id).phase).toBe("waiting for its own tasks")
  })

  test.fails("holds its slot of the model while it works", async () => {
    const { rig, b } = await family(deep)
    await rig.clock.advance(5000)
    expect(rig.host.isWorking(b.sessionID)).toBe(false)
    expect(rig.view(b.id, b.parentID).phase).toBe("queued")
  })
})
