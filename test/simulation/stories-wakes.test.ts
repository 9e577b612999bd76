import { describe, expect, test } from "vitest"
import { Rig } from "../support/rig.ts"
import { family, HANG, MINUTE, witness } from "./witness.ts"

/**
 * Lives in which two parts of the engine disagreed about what a run was doing. Each is one that the simulation could
 * meet; it stands here by itself so that it can be read. Issue *True ends, true wakes, true words* tells them: the
 * numbers are its items.
 */

describe("1: a stopped agent", () => {
  test("a stopped agent is not woken by a notification of its own task that was on its way", async () => {
    const { rig, seen, a } = await family()
    // The news of B takes a second to reach A, and A is cancelled meanwhile.
    rig.opencode.onCall = (method, session) =>
      method === "persona" && session === a.sessionID ? { slow: 1000 } : undefined
    await rig.clock.advance(500)
    await rig.manager.cancel({ type: "task", reference: a.id }, rig.caller)
    const before = seen.requests(a.sessionID)
    await rig.clock.advance(10 * MINUTE)
    expect(rig.task(a.id).status).toBe("cancelled")
    expect(seen.requests(a.sessionID)).toBe(before)
    expect(rig.opencode.isWorking(a.sessionID)).toBe(false)
  })

  test("a stopped agent is not woken by a notification that it had not read before", async () => {
    const { rig, seen, a } = await family()
    // A is in the middle of its turn: the news of B is stored, to be read at its next step.
    await rig.clock.advance(2000)
    expect(rig.notices(a.sessionID)).toHaveLength(1)
    await rig.manager.cancel({ type: "task", reference: a.id }, rig.caller)
    const before = seen.requests(a.sessionID)
    await rig.clock.advance(10 * MINUTE)
    expect(seen.requests(a.sessionID)).toBe(before)
    expect(rig.opencode.isWorking(a.sessionID)).toBe(false)
  })

  test("an agent that was stopped at a limit is not woken again, so the limit holds", async () => {
    const { rig, seen, a } = await family({ taskTimeout: 5000, lastWord: 0 })
    // The news of B reached A in the middle of its turn.
    await rig.clock.advance(6000)
    expect(rig.task(a.id)).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
    await rig.clock.advance(10 * MINUTE)
    expect(seen.requests(a.sessionID)).toBe(1)
    expect(rig.opencode.isWorking(a.sessionID)).toBe(false)
  })

  test("a task that a user launches from a stopped agent's session wakes that session", async () => {
    const { rig, seen, a } = await family()
    await rig.manager.cancel({ type: "task", reference: a.id }, rig.caller)
    await rig.clock.advance(MINUTE)
    rig.onPrompt("HELLO", { text: "here I am" })
    rig.opencode.say(a.sessionID, "HELLO", { agent: "general" })
    await rig.clock.advance(1000)
    const before = seen.requests(a.sessionID)
    const later = await rig.launch({ description: "C", prompt: "BRIEF" }, a.sessionID)
    await rig.ended(later.id, a.sessionID)
    await rig.clock.advance(1000)
    expect(seen.requests(a.sessionID)).toBe(before + 1)
  })
})

describe("2: a parent stopped by its user", () => {
  /** A parent in the middle of a turn of its own, whose agent ends two seconds from now. */
  const interrupted = async () => {
    const rig = new Rig()
    rig.onPrompt("THINK", HANG)
    rig.onPrompt("FIND", { text: "found", delay: 2000 })
    const seen = witness(rig)
    rig.opencode.say(rig.parent, "THINK")
    await rig.clock.advance(100)
    const task = await rig.launch()
    return { rig, seen, task }
  }

  test("a parent that its user stopped is notified without being woken and reads it later", async () => {
    const { rig, seen, task } = await interrupted()
    await rig.clock.advance(500)
    rig.opencode.abortByUser(rig.parent)
    const before = seen.requests(rig.parent)
    await rig.ended(task.id)
    await rig.clock.advance(MINUTE)
    expect(rig.notices()).toHaveLength(1)
    expect(seen.requests(rig.parent)).toBe(before)
    rig.onPrompt("GO ON", { text: "on it" })
    rig.opencode.say(rig.parent, "GO ON")
    await rig.clock.advance(MINUTE)
    expect(seen.texts(rig.parent).slice(before)).toEqual(["GO ON"])
  })

  test("a parent that its user stopped is not woken by what was stored for its next step", async () => {
    const { rig, seen } = await interrupted()
    await rig.clock.advance(3000)
    expect(rig.notices()).toHaveLength(1)
    const before = seen.requests(rig.parent)
    rig.opencode.abortByUser(rig.parent)
    await rig.clock.advance(MINUTE)
    expect(seen.requests(rig.parent)).toBe(before)
    expect(rig.opencode.isWorking(rig.parent)).toBe(false)
  })

  test("a parent that its user stopped is not woken after a shell command of its user", async () => {
    const { rig, seen, task } = await interrupted()
    rig.opencode.abortByUser(rig.parent)
    await rig.clock.advance(100)
    rig.opencode.shell(rig.parent, "git status")
    await rig.clock.advance(500)
    const before = seen.requests(rig.parent)
    await rig.ended(task.id)
    await rig.clock.advance(MINUTE)
    expect(rig.notices()).toHaveLength(1)
    expect(seen.requests(rig.parent)).toBe(before)
  })

  test("a parent that its user stopped is not woken after a late event of the turn that was stopped", async () => {
    const { rig, seen, task } = await interrupted()
    rig.opencode.abortByUser(rig.parent)
    await rig.clock.advance(100)
    rig.opencode.tell({ type: "began", sessionID: rig.parent })
    const before = seen.requests(rig.parent)
    await rig.ended(task.id)
    await rig.clock.advance(MINUTE)
    expect(seen.requests(rig.parent)).toBe(before)
  })

  test("a parent that its user stopped is woken after its user's message whose provider refuses", async () => {
    const { rig, seen, task } = await interrupted()
    rig.opencode.abortByUser(rig.parent)
    await rig.clock.advance(100)
    const activity = { type: "retry", attempt: 1, message: "overloaded" } as const
    rig.opencode.tell({ type: "active", sessionID: rig.parent, activity })
    const before = seen.requests(rig.parent)
    await rig.ended(task.id)
    await rig.clock.advance(1000)
    expect(seen.requests(rig.parent)).toBe(before + 1)
  })

  test("a parent that its user stopped is woken by later ends after its user has written again", async () => {
    const { rig, seen, task } = await interrupted()
    rig.opencode.abortByUser(rig.parent)
    await rig.clock.advance(100)
    rig.onPrompt("GO ON", { text: "on it" })
    rig.opencode.say(rig.parent, "GO ON")
    await rig.clock.advance(500)
    const before = seen.requests(rig.parent)
    await rig.ended(task.id)
    await rig.clock.advance(1000)
    expect(seen.requests(rig.parent)).toBe(before + 1)
  })
})

describe("5: a finished batch with wake: last", () => {
  test("a finished batch wakes its parent even if its last task was forgotten at the screen", async () => {
    const rig = new Rig({ options: { wake: "last" } })
    rig.onPrompt("BRIEF", { text: "done", delay: 200 })
    rig.onPrompt("WORK", HANG)
    const seen = witness(rig)
    await rig.launch({ prompt: "BRIEF" })
    const last = await rig.launch({ prompt: "WORK" })
    await rig.clock.advance(2000)
    expect(seen.requests(rig.parent)).toBe(0)
    const { metadata } = rig.opencode.stored(last.sessionID)
    rig.opencode.writeMetadata(last.sessionID, { ...metadata, superagentsRequest: { id: "r1", action: "clear" } })
    await rig.clock.advance(MINUTE)
    expect(rig.manager.list(rig.parent).map(({ task }) => task.id)).not.toContain(last.id)
    expect(seen.requests(rig.parent)).toBe(1)
  })

  test("a finished batch wakes its parent even if one failure ended waiting tasks of two batches", async () => {
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

describe("10: agents with quick answers", () => {
  /** Three agents whose last texts come within 26 ms; OpenCode then takes so long to close their turns. */
  const three = async (snapshots: readonly number[]) => {
    const rig = new Rig()
    const sessions: string[] = []
    rig.opencode.snapshotMs = (sessionID) => snapshots[sessions.indexOf(sessionID)] ?? 0
    for (const [index] of snapshots.entries()) {
      rig.onPrompt(`FIND ${index}`, { text: "found", delay: 2000 + 13 * index })
      sessions.push((await rig.launch({ prompt: `FIND ${index}` })).sessionID)
    }
    return { rig, seen: witness(rig) }
  }

  test("tasks that answer within the same second cost their parent only one turn", async () => {
    const { rig, seen } = await three([250, 600, 975])
    await rig.clock.advance(MINUTE)
    expect(rig.notices()).toHaveLength(3)
    expect(seen.requests(rig.parent)).toBe(1)
  })

  test("a notification is not delayed by more than a second to wait for other tasks", async () => {
    const { rig, seen } = await three([250, 5000, 250])
    await rig.clock.advance(4000)
    expect(rig.notices()).toHaveLength(2)
    expect(seen.requests(rig.parent)).toBeGreaterThan(0)
  })
})
