import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { NO_USAGE } from "../../src/core/task.ts"
import type { Place } from "../../src/runtime/places/place.ts"
import { Rig } from "../support/rig.ts"
import { CENT, spendingRig as rigged, STEP, spend } from "../support/spending-scene.ts"

/** Costs that a run's messages do not show at its end. A step costs a cent. */

const SLOW = { tools: [{ name: "build", args: { ms: 600_000 } }] }
const billOf = (rig: Rig) => rig.manager.spentBy(rig.parent).session

describe("messages that are gone at a run's end", () => {
  test("steps that a user has undone with the run's prompt still count", async () => {
    const rig = rigged({}, 100)
    const { id, sessionID } = await rig.launch(spend)
    await rig.clock.advance(1000)
    const { cost } = billOf(rig)
    expect(cost).toBeGreaterThan(0.03)
    rig.opencode.abortByUser(sessionID)
    await rig.clock.advance(200)
    rig.opencode.undo(sessionID, rig.opencode.stored(sessionID).messages[0]?.id ?? "")
    rig.onPrompt("BETTER", { text: "done better", ...CENT })
    rig.opencode.say(sessionID, "BETTER", { agent: "general" })
    expect((await rig.ended(id)).status).toBe("completed")
    expect(billOf(rig).cost).toBeCloseTo(cost + 0.01)
  })

  test("a step that somebody has deleted from the session still counts, once", async () => {
    const rig = rigged()
    const { id, sessionID } = await rig.launch(spend)
    await rig.clock.advance(500)
    const first = rig.opencode.stored(sessionID).messages.find(({ role }) => role === "assistant")
    await rig.opencode.deleteMessage(sessionID, first?.id ?? "")
    expect((await rig.ended(id)).status).toBe("completed")
    // The agent reads again what the deleted step had read.
    expect(billOf(rig).cost).toBeCloseTo(0.05)
  })

  test("an event that comes after the run's end counts no step again, nor in a later run", async () => {
    const rig = rigged()
    rig.opencode.onEvent = () => ({ late: 30_000 })
    const { id } = await rig.launch(spend)
    await rig.clock.advance(500)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    await rig.clock.advance(5000)
    const { cost } = billOf(rig)
    expect(cost).toBeGreaterThan(0.01)
    rig.opencode.onEvent = () => undefined
    await rig.clock.advance(60_000)
    expect(billOf(rig).cost).toBeCloseTo(cost)
  })
})

describe("answers beside a run", () => {
  test("a user's turn in a task's session counts while a resume of the task waits for a slot", async () => {
    const rig = rigged({ maxConcurrentTasks: 1 })
    const { id, sessionID } = await rig.launch(spend)
    await rig.ended(id)
    rig.onPrompt("SLOW", SLOW)
    await rig.launch({ prompt: "SLOW" })
    await rig.manager.resume(id, spend, rig.caller)
    rig.opencode.onEvent = () => "double"
    rig.opencode.say(sessionID, "SPEND more", { agent: "general" })
    await rig.clock.advance(20_000)
    expect(rig.view(id).phase).toBe("queued")
    expect(billOf(rig).cost).toBeCloseTo(0.08)
  })

  /** A task whose agent has called OpenCode's own `task` tool, and the session of that tool. */
  const withNative = async (options: object = {}, steps = 0) => {
    const rig = rigged({ maxDepth: 2, ...options })
    const calls = { tools: [{ name: "task", args: { ms: 60_000 } }] }
    rig.script(({ prompt, toolResults }) => {
      if (!prompt.startsWith("CALLS")) return undefined
      return toolResults.length < steps ? STEP : calls
    })
    const task = await rig.launch({ prompt: "CALLS" })
    await rig.clock.advance(100 + steps * 300)
    const native = rig.opencode.openSession({ parentID: task.sessionID })
    const below = rig.opencode.openSession({ parentID: native })
    return { rig, task, native, below }
  }

  test("what an agent spends through OpenCode's own task tool counts at every depth, once, also after a restart", async () => {
    const { rig, native, below } = await withNative()
    rig.opencode.onEvent = () => "double"
    rig.opencode.say(native, "SPEND", { agent: "general" })
    rig.opencode.say(below, "SPEND", { agent: "general" })
    await rig.clock.advance(20_000)
    expect(billOf(rig).cost).toBeCloseTo(0.08)
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    await rig.clock.advance(20_000)
    expect(billOf(rig).cost).toBeCloseTo(0.08)
  })

  test("a day's budget counts, once, what another process's agent spends through OpenCode's own task tool", async () => {
    const { rig, task, native, below } = await withNative({}, 2)
    const other = new Rig({
      options: { maxCostPerDay: 1 },
      share: { clock: rig.clock, database: rig.opencode.database },
    })
    const day = async () => (await other.manager.bill(other.parent)).day.cost
    await rig.launch(spend, task.sessionID)
    rig.opencode.say(native, "SPEND", { agent: "general" })
    rig.opencode.say(below, "SPEND", { agent: "general" })
    await rig.clock.advance(3000)
    expect(rig.task(task.id).status).toBe("running")
    expect(await day()).toBeCloseTo(0.14)
    // Meanwhile the task's record has been written, with these answers.
    await rig.clock.advance(31_000)
    expect(await day()).toBeCloseTo(0.14)
    await other.manager.recover()
    await other.manager.ready(rig.parent)
    expect(other.task(task.id, rig.parent).earlier.usage.cost).toBeCloseTo(0.08)
    expect(await day()).toBeCloseTo(0.14)
  })

  test("a budget stops a task whose agent exceeds it through OpenCode's own task tool", async () => {
    const { rig, task, native } = await withNative({ maxCostPerTask: 0.025, pollInterval: 60_000 })
    rig.opencode.say(native, "SPEND", { agent: "general" })
    await rig.clock.advance(1500)
    expect(rig.task(task.id).outcome?.reason?.text).toBe(
      "Stopped at its budget: it spent $0.0300 of $0.025 (option maxCostPerTask).",
    )
  })

  test("a task's own tasks count once, beside what their parent's session starts", async () => {
    const { rig, task } = await withNative()
    const own = await rig.launch(spend, task.sessionID)
    await rig.ended(own.id, task.sessionID)
    expect(billOf(rig).cost).toBeCloseTo(0.04)
    await rig.manager.clear(task.sessionID)
    expect(billOf(rig).cost).toBeCloseTo(0.04)
  })
})

describe("answers while a run is closed", () => {
  const told = (rig: Rig, sessionID: string) => rig.opencode.say(sessionID, "SPEND more", { agent: "general" })

  test.each([true, false])("a user's turn counts, once, while work is archived (merged: %s)", async (merge) => {
    const wait = () => new Promise<void>((resolve) => void rig.clock.after(60_000, resolve))
    const archive = () => wait().then(() => ({ files: [], added: 0, removed: 0, submodules: [], unsaved: [] }))
    const capture = async () => {}
    const enter = async () => ({ directory: "/place", preface: "" })
    const place = { capture, enter, archive } as never as Place
    const rig = rigged({}, 4, { worktrees: async () => place })
    rig.opencode.onEvent = () => "double"
    const { id, sessionID } = await rig.launch({ ...spend, place: "worktree", merge })
    await rig.clock.advance(10_000)
    expect(rig.task(id).status).toBe("completed")
    told(rig, sessionID)
    await rig.clock.advance(10_000)
    expect(rig.task(id).delivery.state).toBe("pending")
    await rig.ended(id)
    expect(billOf(rig).cost).toBeCloseTo(0.08)
    await rig.clock.advance(60_000)
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    expect(billOf(rig).cost).toBeCloseTo(0.08)
  })

  test.each(["slow", "heldAfter"])(
    "a user's turn counts, once, while a stopped run's messages are read (%s)",
    async (how) => {
      const rig = rigged({}, 100)
      rig.onPrompt("more", { text: "more", ...CENT })
      const { id, sessionID } = await rig.launch(spend)
      await rig.clock.advance(500)
      rig.opencode.onCall = (method) => {
        if (method !== "messagesSince") return undefined
        const wait = new Promise<void>((resolve) => void rig.clock.after(5000, resolve))
        return how === "slow" ? { slow: 5000 } : { heldAfter: wait }
      }
      void rig.manager.cancel({ type: "task", reference: id }, rig.caller)
      await rig.clock.advance(1000)
      told(rig, sessionID)
      await rig.clock.advance(60_000)
      expect(rig.task(id).status).toBe("cancelled")
      const spent = rig.opencode.stored(sessionID).messages.reduce((sum, { usage }) => sum + (usage?.cost ?? 0), 0)
      expect(rig.opencode.stored(sessionID).messages.at(-1)?.parts).toMatchObject([{ text: "more" }])
      expect(billOf(rig).cost).toBeCloseTo(spent)
    },
  )
})

describe("an end whose messages are not known", () => {
  test("the bill is a lower bound where the session of a stopped run cannot be read", async () => {
    const rig = rigged({}, 100)
    const { id } = await rig.launch(spend)
    await rig.clock.advance(505)
    rig.opencode.onCall = (method) =>
      method === "messagesSince" ? { fail: new OpencodeError("no answer") } : undefined
    const cancelling = rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    await rig.clock.advance(60_000)
    await cancelling
    expect(rig.task(id).outcome?.usage).toMatchObject({ cost: 0.02, atLeast: true })
  })

  test("the bill is a lower bound where OpenCode dies before the session of a stopped run was read", async () => {
    const rig = rigged({}, 100)
    const { id } = await rig.launch(spend)
    await rig.clock.advance(505)
    rig.opencode.onCall = (method) => (method === "abort" ? { slow: 5000 } : undefined)
    void rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    await rig.clock.advance(200)
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    await rig.clock.advance(5000)
    expect(rig.task(id).status).toBe("cancelled")
    expect(billOf(rig)).toMatchObject({ cost: 0.02, atLeast: true })
  })

  test("the bill is exact where a run's model was never asked, or its task is a group", async () => {
    const rig = rigged({ maxConcurrentTasks: 1 }, 100)
    await rig.launch(spend)
    const queued = await rig.launch(spend)
    await rig.manager.cancel({ type: "task", reference: queued.id }, rig.caller)
    expect(rig.task(queued.id).outcome?.usage).toEqual(NO_USAGE)
  })
})
