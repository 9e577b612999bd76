import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import type { Task } from "../../src/core/task.ts"
import type { Reply } from "../support/model.ts"
import { Rig } from "../support/rig.ts"
import { family, HANG, MINUTE, witness } from "./witness.ts"

/**
 * Lives in which two parts of the engine disagreed about what a run was doing. Each is one that the simulation could
 * meet; it stands here by itself so that it can be read. Issue *True ends, true wakes, true words* tells them: the
 * numbers are its items.
 */

const failure = new OpencodeError("out of order")

describe("3: a failed step", () => {
  for (const finish of ["error", "other"])
    test(`a step that ends with the finish reason ${finish} and no error is a failure`, async () => {
      const rig = new Rig()
      rig.onPrompt("FIND", { text: "", finish })
      const task = await rig.ended((await rig.launch()).id)
      expect(task.status).toBe("error")
      expect(rig.notices()[0]?.visible).toMatch(/^✗/)
    })
})

describe("4: a turn ended by a refusal", () => {
  const TWO = { tools: [1, 2].map((number) => ({ name: "bash", args: { number } })) }
  const asking = (reply: Reply, options: object = {}) => {
    const rig = new Rig({ options: { permissionTimeout: 10_000, ...options } })
    rig.opencode.asking.add("bash")
    rig.script(({ prompt, toolResults }) => (prompt.includes("ASK") && toolResults.length === 0 ? reply : undefined))
    rig.onPrompt("LATER", { text: "begun" })
    return { rig, seen: witness(rig) }
  }

  test("an agent whose turn ended because the plugin refused a question is asked to continue", async () => {
    const { rig } = asking(TWO)
    rig.script(({ prompt }) => (prompt.includes("ASK") ? undefined : { text: "done without them" }))
    const { id } = await rig.launch({ prompt: "ASK" })
    const task = await rig.ended(id)
    expect(task.status).toBe("completed")
    expect((await rig.output(id)).answer).toBe("done without them")
    expect(rig.notices()).toHaveLength(1)
  })

  test("a task without text that ended because its user refused a question fails, and its dependents never begin", async () => {
    const { rig, seen } = asking({ tools: [{ name: "bash", args: {} }] })
    const { id, sessionID } = await rig.launch({ prompt: "ASK" })
    const later = await rig.launch({ prompt: "LATER", after: [id] })
    await rig.clock.advance(1000)
    const [ask] = await rig.opencode.openAsks()
    if (ask) await rig.opencode.refuse(ask, "")
    await rig.ended(id)
    await rig.ended(later.id)
    expect(rig.opencode.isWorking(sessionID)).toBe(false)
    expect(rig.notices()[0]?.visible).not.toMatch(/^✓/)
    expect(seen.requests(later.sessionID)).toBe(0)
    expect(rig.task(later.id)).toMatchObject({ status: "cancelled", outcome: { reason: { code: "after" } } })
  })
})

describe("6: waits of a run", () => {
  test("a refusal of a question is tried again when its call fails once", async () => {
    const rig = new Rig({ options: { permissionTimeout: 10_000, taskTimeout: 0, stallTimeout: 0 } })
    rig.opencode.asking.add("bash")
    rig.script(({ lastUser, toolResults }) =>
      lastUser.includes("ASK")
        ? toolResults.length > 0
          ? { text: "done without" }
          : { tools: [{ name: "bash", args: {} }] }
        : undefined,
    )
    let failures = 1
    rig.opencode.onCall = (method) => (method === "refuse" && failures-- > 0 ? { fail: failure } : undefined)
    const { id } = await rig.launch({ prompt: "ASK" })
    await rig.clock.advance(MINUTE)
    expect(rig.task(id).status).toBe("completed")
  })

  test("a failed status check is repeated even when polling is off", async () => {
    const rig = new Rig({ options: { pollInterval: 0 } })
    rig.onPrompt("FIND", { text: "found", delay: 200 })
    let failures = 1
    rig.opencode.onCall = (method) => (method === "messagesSince" && failures-- > 0 ? { fail: failure } : undefined)
    const { id } = await rig.launch()
    await rig.clock.advance(MINUTE)
    expect(rig.task(id).status).toBe("completed")
  })

  test("sleep of the machine during a status check counts toward no limit", async () => {
    const rig = new Rig({ options: { taskTimeout: 5 * MINUTE, lastWord: 0 } })
    rig.onPrompt("FIND", { text: "found", delay: 2 * MINUTE })
    const { id } = await rig.launch()
    await rig.clock.advance(MINUTE)
    rig.opencode.onCall = (method) => (method === "activity" ? { slow: 1000 } : undefined)
    rig.opencode.calls.length = 0
    await rig.clock.until(() => rig.opencode.calls.at(-1) === "activity")
    await rig.clock.sleep(60 * MINUTE)
    expect((await rig.ended(id)).status).toBe("completed")
  })
})

describe("7: a model without an end", () => {
  test("a model that sends endless texts without a tool call or end is stopped", async () => {
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

  test("an agent with tasks of its own waits for them only when its session is idle", async () => {
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

  test("an agent with tasks of its own holds its model's slot while it works", async () => {
    const { rig, a } = await family(deep)
    const c = await rig.launch({ prompt: "BRIEF", model: "scripted/alpha" }, a.sessionID)
    await rig.clock.advance(5000)
    expect(rig.opencode.isWorking(c.sessionID)).toBe(false)
    expect(rig.view(c.id, c.parentID).phase).toBe("queued for a free slot of scripted/alpha")
  })
})

describe("9: the limits of the history", () => {
  /** A parent, its ended agent A, and A's own ended agent B. */
  const ended = async (options: object = {}) => {
    const rig = new Rig({ options: { maxDepth: 2, ...options } })
    const a = await rig.launch({ description: "A" })
    await rig.ended(a.id)
    const b = await rig.launch({ description: "B" }, a.sessionID)
    await rig.ended(b.id, a.sessionID)
    await rig.clock.advance(1000)
    return { rig, a, b }
  }
  /** Of a forgotten task its record may say what it has cost. */
  const recorded = (rig: Rig, sessionID: string): boolean => {
    const { superagents } = rig.opencode.stored(sessionID).metadata as { superagents?: { task: Task } }
    return superagents !== undefined && !superagents.task.forgotten
  }

  test("superagents_clear also forgets the tasks below the cleared tasks", async () => {
    const { rig, a, b } = await ended()
    await rig.manager.clear(rig.parent)
    expect(rig.manager.list(a.sessionID)).toEqual([])
    expect([recorded(rig, a.sessionID), recorded(rig, b.sessionID)]).toEqual([false, false])
  })

  test("a full history drops a task together with the tasks below it", async () => {
    const { rig, a, b } = await ended({ maxHistory: 1 })
    await rig.ended((await rig.launch()).id)
    await rig.launch()
    await rig.clock.advance(1000)
    expect(rig.manager.list(rig.parent).map(({ task }) => task.id)).not.toContain(a.id)
    expect(rig.manager.list(a.sessionID)).toEqual([])
    expect(recorded(rig, b.sessionID)).toBe(false)
  })

  test("the answers that a task waited for take at most 60,000 characters in its prompt", async () => {
    const rig = new Rig({ options: { maxConcurrentTasks: 0, maxLaunchesPerMinute: 0 } })
    rig.onPrompt("LONG", { text: "x".repeat(9000) })
    const seen = witness(rig)
    for (let count = 0; count < 60; count++) await rig.launch({ prompt: "LONG", batch: "long" })
    const last = await rig.launch({ prompt: "SUM UP", after: "long" })
    await rig.ended(last.id)
    const [prompt = ""] = seen.texts(last.sessionID)
    expect(prompt.match(/x/g)?.length).toBeGreaterThan(30_000)
    expect(prompt.match(/x/g)?.length).toBeLessThanOrEqual(60_000)
    expect(prompt.length).toBeLessThan(75_000)
  })

  test("the cost of forgotten tasks is forgotten together with the session that paid for it", async () => {
    const rig = new Rig({ options: { maxCostPerSession: 1 } })
    const spent = () => rig.manager.spentBy(rig.parent).session.cost
    await rig.ended((await rig.launch()).id)
    await rig.manager.clear(rig.parent)
    expect(spent()).toBeGreaterThan(0)
    rig.opencode.deleteByUser(rig.parent)
    await rig.clock.advance(48 * 60 * MINUTE)
    expect(spent()).toBe(0)
  })

  test("a compaction does not use up the last word of a task", async () => {
    const rig = new Rig({ options: { maxTokensPerTask: 10_000, maxConcurrentTasks: 0 } })
    rig.opencode.contextTokens = 9000
    rig.script(({ prompt, lastUser }) => {
      if (lastUser.includes("Answer at once")) return { text: "this far" }
      return prompt.includes("WORK") ? { tools: [{ name: "read", args: {} }], usage: { input: 9950 } } : { text: "on" }
    })
    const { id } = await rig.launch({ prompt: "WORK" })
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "tokens" }, saidLastWord: true } })
    expect((await rig.output(id)).answer).toBe("this far")
  })
})
