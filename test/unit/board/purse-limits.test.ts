import { describe, expect, test } from "vitest"
import { NO_USAGE, NOBODY } from "../../../src/core/task.ts"
import { PURSE_ENDED, PURSE_WORDS } from "../../../src/features/board/purse/purses.ts"
import { ManagerRuns } from "../../../src/features/board/runs.ts"
import { Unattended } from "../../../src/features/board/unattended.ts"
import { HOUR_MS, MINUTE_MS } from "../../../src/lib/format.ts"
import { Rig } from "../../support/rig.ts"

/** Runs that a board's purse pays. A step costs a cent. */

const CENT = { usage: { input: 10_000 } }
const LAUNCH = { description: "a part", prompt: "CHILD", agent: "general", fork: false }

const rigged = ({ ms = 200, ...options }: { ms?: number; [option: string]: unknown } = {}) => {
  const rig = new Rig({ options })
  rig.script(({ prompt, lastUser, sessionID }) => {
    if (sessionID === rig.parent) return undefined
    if (lastUser.includes("Answer at once")) return { text: "last word", ...CENT }
    return prompt.startsWith("WORK") ? { tools: [{ name: "read", args: { ms } }], ...CENT } : undefined
  })
  const runs = new ManagerRuns(rig.manager, Promise.resolve(), rig.clock)
  const sessions = [rig.opencode.openSession(), rig.opencode.openSession(), rig.opencode.openSession()]
  const start = () =>
    Promise.all(
      sessions.map((sessionID, at) =>
        runs.start({ sessionID, agent: "general", description: `#${at + 1} work`, prompt: "WORK" }),
      ),
    )
  const open = (max: number, hours = 8) =>
    runs.usePurse({
      max,
      words: PURSE_WORDS,
      openedAt: rig.clock.now(),
      until: rig.clock.now() + hours * HOUR_MS,
      threads: Object.fromEntries(sessions.map((sessionID) => [sessionID, runs.usageOf(sessionID)])),
    })
  const ended = () => rig.clock.until(() => sessions.every((sessionID) => runs.of(sessionID)?.state === "ended"))
  return { rig, runs, sessions, start, open, ended }
}

describe("the limits of a purse's runs", () => {
  test("runs of a purse say their last word in time and overrun the purse by one step each", async () => {
    const { rig, runs, sessions, start, open, ended } = rigged()
    open(0.3)
    await start()
    await ended()
    const { used } = runs.ofPurse()
    expect(used.cost).toBeGreaterThan(0.26)
    expect(used.cost).toBeLessThanOrEqual(0.3 + sessions.length * 0.01 + 1e-9)
    for (const sessionID of sessions) {
      expect(runs.of(sessionID)?.result).toMatchObject({ overBudget: true, begun: true })
      expect(await runs.account(sessionID)).toMatchObject({ lastWord: "last word" })
      expect(rig.manager.taskIn(sessionID)?.task.outcome?.reason).toMatchObject({
        code: "purse",
        text: expect.stringMatching(/^Stopped at the board's purse: the board's tasks spent \$0\.\d{4} of \$0\.30/),
      })
    }
    await expect(start()).rejects.toThrow("the board's tasks spent")
    runs.usePurse(undefined)
    expect(await runs.refusals().then((refusal) => refusal(sessions[0]))).toBeUndefined()
    expect(rig.errors()).toEqual([])
  })

  test("a purse pays for its runs, and for tasks they launch, only from its opening on", async () => {
    const { rig, runs, sessions, open } = rigged()
    const [sessionID = ""] = sessions
    rig.onPrompt("BEFORE", { text: "done", ...CENT })
    await runs.start({ sessionID, agent: "general", description: "#1 work", prompt: "BEFORE" })
    await rig.clock.until(() => runs.of(sessionID)?.state === "ended")
    expect(runs.usageOf(sessionID).cost).toBeCloseTo(0.01)
    open(0.2)
    expect(runs.ofPurse().used.cost).toBeCloseTo(0)
    rig.onPrompt("CHILD", { text: "done", ...CENT })
    const child = await rig.launch({ prompt: "CHILD" }, sessionID)
    await rig.ended(child.id, sessionID)
    expect(runs.ofPurse().used.cost).toBeGreaterThanOrEqual(0.01)
    expect(runs.usageOf("ses_nobody")).toEqual(NO_USAGE)
  })

  /** A thread at work, and a task of its at work. */
  const waiting = async () => {
    const { rig, runs, sessions } = rigged({ pollInterval: 0, maxDepth: 2 })
    const [sessionID = ""] = sessions
    await runs.start({ sessionID, agent: "general", description: "#1 work", prompt: "WAIT" })
    rig.onPrompt("WAIT", { tools: [{ name: "build", args: { ms: 60_000 } }] })
    await rig.clock.advance(100)
    return { rig, runs, sessionID, child: await rig.launch({ prompt: "WAIT" }, sessionID) }
  }

  test("what the tasks of a stopped thread have spent is known once the thread is stopped", async () => {
    const { rig, runs, sessionID, child } = await waiting()
    await rig.launch({ prompt: "WORK" }, child.sessionID)
    rig.opencode.onEvent = (event) => (event.type === "answered" ? "lose" : undefined)
    await rig.clock.advance(500)
    let spent = NO_USAGE
    void runs.stop(sessionID).then(() => {
      spent = runs.usageOf(sessionID)
    })
    rig.opencode.onCall = (method, session) =>
      method === "abort" && session !== sessionID ? { slow: 3000 } : undefined
    await rig.clock.advance(60_000)
    expect(spent).toMatchObject({ cost: expect.closeTo(0.03, 6), atLeast: true })
    expect(spent).toEqual(runs.usageOf(sessionID))
  })

  test("a stopped thread does not wait for a task whose folder takes long to archive", async () => {
    const { rig, runs, sessionID, child } = await waiting()
    await rig.clock.advance(100)
    const { dispatcher } = rig.manager.parts
    const closed = dispatcher.closed.bind(dispatcher)
    dispatcher.closed = (taskID) => (taskID === child.id ? new Promise(() => {}) : closed(taskID))
    let isStopped = false
    void runs.stop(sessionID).then(() => {
      isStopped = true
    })
    await rig.clock.advance(10_000)
    expect(isStopped).toBe(true)
  })

  test("a purse does not pay what a thread's tasks cost more than a week before", async () => {
    const { rig, sessions } = rigged()
    const [sessionID = ""] = sessions
    for (const prompt of ["THREAD", "CHILD"]) rig.onPrompt(prompt, { text: "done", ...CENT })
    const start = async (runs: ManagerRuns) => {
      await runs.start({ sessionID, agent: "general", description: "#1 work", prompt: "THREAD" })
      await rig.clock.until(() => runs.of(sessionID)?.state === "ended")
    }
    await start(new ManagerRuns(rig.manager, Promise.resolve(), rig.clock))
    const child = await rig.launch({ prompt: "CHILD" }, sessionID)
    await rig.ended(child.id, sessionID)
    await rig.clock.advance(8 * 24 * HOUR_MS)
    rig.restart()
    await rig.manager.recover()
    const runs = new ManagerRuns(rig.manager, Promise.resolve(), rig.clock)
    await runs.know(sessionID)
    const [openedAt, threads] = [rig.clock.now(), { [sessionID]: runs.usageOf(sessionID) }]
    runs.usePurse({ words: PURSE_WORDS, max: 1, openedAt, until: openedAt + HOUR_MS, threads })
    await start(runs)
    await rig.manager.ready(sessionID)
    expect(runs.ofPurse().used.cost).toBeCloseTo(0.01)
  })

  test("runs paid by a purse say their last word before its deadline and are stopped then", async () => {
    const { rig, runs, sessions, start, open, ended } = rigged({ ms: 60_000, taskTimeout: 0 })
    open(100, 1)
    const end = rig.clock.now() + HOUR_MS
    await start()
    await ended()
    expect(rig.clock.now()).toBeLessThanOrEqual(end + 1000)
    expect(rig.clock.now()).toBeGreaterThan(end - 61_000)
    const [task] = sessions.map((sessionID) => rig.manager.taskIn(sessionID)?.task)
    expect(task?.outcome?.reason?.text).toMatch(/^Stopped at the end of the board's purse, \d\d:\d\d/)
    expect(runs.of(sessions[0] ?? "")?.result?.overBudget).toBe(true)
  })

  test("runs paid by a purse launch nothing when too little time is left, and queued tasks never begin", async () => {
    const { rig, runs, sessions, open } = rigged({ maxConcurrentTasks: 1 })
    const [sessionID = ""] = sessions
    const HANG = { hang: true, text: "so far" } as const
    rig.onPrompt("THREAD", HANG)
    rig.onPrompt("CHILD", HANG)
    open(100, 1)
    await runs.start({ sessionID, agent: "general", description: "#1 work", prompt: "THREAD" })
    await rig.clock.advance(HOUR_MS - 61_000)
    rig.opencode.conclude(sessionID, { tools: [{ name: "read", args: { ms: HOUR_MS } }] })
    const { task: first } = (await rig.manager.launch(LAUNCH, rig.callerIn(sessionID))).view
    const { task: waiting } = (await rig.manager.launch(LAUNCH, rig.callerIn(sessionID))).view
    await rig.clock.advance(1000)
    await expect(rig.manager.launch(LAUNCH, rig.callerIn(sessionID))).rejects.toThrow(
      /^Nothing was launched: the board's purse pays until \d\d:\d\d \(tasks_purse\), and the time left is too little to begin with\./,
    )
    rig.opencode.conclude(first.sessionID, { text: "done" })
    await rig.clock.advance(1000)
    const ended = rig.manager.taskIn(waiting.sessionID)?.task
    expect(ended).toMatchObject({
      status: "error",
      outcome: { reason: { code: "budget" } },
    })
    expect(ended?.run.startedAt).toBeUndefined()
    expect(ended?.outcome?.reason?.text).toMatch(/^It never began: the board's purse pays until /)
    expect(await runs.refusals().then((refusal) => refusal(sessionID))).toContain("pays until")
  })

  test("runs paid by a purse show the same cost after a crash as before", async () => {
    const { rig, runs, sessions, start, open } = rigged()
    const [sessionID = ""] = sessions
    open(100)
    rig.opencode.onEvent = ({ type }) => (type === "answered" ? "lose" : undefined)
    await start()
    await rig.clock.advance(1000)
    await runs.stop(sessionID)
    await rig.clock.advance(5000)
    const { cost } = runs.usageOf(sessionID)
    expect(cost).toBeGreaterThan(0.03)
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(5000)
    expect(new Unattended(rig.manager.parts).usageOf(sessionID).cost).toBeCloseTo(cost)
  })

  test("a purse still counts the cost of a thread whose task was forgotten", async () => {
    const { rig, runs, sessions, open } = rigged()
    const [sessionID = ""] = sessions
    rig.onPrompt("ONCE", { text: "done", ...CENT })
    const once = async () => {
      await runs.start({ sessionID, agent: "general", description: "#1 work", prompt: "ONCE" })
      await rig.clock.until(() => runs.of(sessionID)?.state === "ended")
    }
    await once()
    open(1)
    await once()
    expect(runs.ofPurse().used.cost).toBeCloseTo(0.01)
    const { metadata } = rig.opencode.stored(sessionID)
    rig.opencode.writeMetadata(sessionID, { ...metadata, superagentsRequest: { id: "r1", action: "clear" } })
    await rig.clock.until(() => rig.manager.taskIn(sessionID) === undefined)
    expect(runs.ofPurse().used.cost).toBeCloseTo(0.01)
    await once()
    expect(runs.ofPurse().used.cost).toBeCloseTo(0.02)
    expect(runs.usageOf(sessionID).cost).toBeCloseTo(0.03)
  })

  test("a slow removal of a cleared task's record does not overwrite the record of the thread's next task", async () => {
    const { rig, runs, sessions } = rigged()
    const [sessionID = ""] = sessions
    rig.onPrompt("ONCE", { text: "done", ...CENT })
    const start = () => runs.start({ sessionID, agent: "general", description: "#1 work", prompt: "ONCE" })
    await start()
    await rig.clock.until(() => runs.of(sessionID)?.state === "ended")
    await rig.clock.advance(MINUTE_MS)
    let saves = 0
    rig.opencode.onCall = (method) => (method === "saveRecord" && saves++ === 0 ? { slow: 5000 } : undefined)
    void rig.manager.clear(NOBODY)
    await rig.clock.until(() => saves > 0)
    void start()
    await rig.clock.advance(MINUTE_MS)
    const { id } = rig.manager.taskIn(sessionID)?.task ?? {}
    expect(await rig.opencode.session(sessionID)).toMatchObject({ record: { task: { id, status: "completed" } } })
  })

  test("what a thread cost before it was cleared is known after it has worked again and OpenCode has restarted", async () => {
    const { rig, runs, sessions } = rigged({ maxCostPerDay: 1, agents: { general: { maxCost: 0.5 } } })
    const [sessionID = ""] = sessions
    rig.onPrompt("ONCE", { text: "done", ...CENT })
    const other = new Rig({
      options: { maxCostPerDay: 1 },
      share: { clock: rig.clock, database: rig.opencode.database },
    })
    const once = async () => {
      await runs.start({ sessionID, agent: "general", description: "#1 work", prompt: "ONCE" })
      await rig.clock.until(() => runs.of(sessionID)?.state === "ended")
    }
    const expectSpent = async (cost: number) => {
      await other.manager.recover()
      await rig.clock.advance(MINUTE_MS)
      for (const { manager } of [rig, other]) {
        expect(new Unattended(manager.parts).usageOf(sessionID).cost).toBeCloseTo(cost)
        expect((await manager.bill(NOBODY)).day.cost).toBeCloseTo(cost)
      }
    }
    await once()
    for (const cost of [0.01, 0.02]) {
      await rig.manager.clear(NOBODY)
      await expectSpent(cost)
      await once()
      expect(rig.manager.taskIn(sessionID)?.task.run).toMatchObject({ generation: 0, budget: { before: cost } })
      await expectSpent(cost + 0.01)
    }
    rig.restart()
    await rig.manager.recover()
    await expectSpent(0.03)
  })

  test("runs that are stopped together with their purse do not count as failed", async () => {
    const { runs, sessions, start, open } = rigged()
    open(100)
    await start()
    await runs.stop(sessions[0] ?? "", PURSE_ENDED)
    expect(runs.of(sessions[0] ?? "")?.result).toMatchObject({ status: "cancelled", overBudget: true })
  })

  test("a purse reserves what the most expensive step of each running task may need", async () => {
    const { rig, runs, start, open } = rigged({ ms: 5000 })
    open(1)
    await start()
    await rig.clock.advance(8000)
    expect(runs.ofPurse().reserve).toBeCloseTo(0.03)
  })

  test("runs paid by a purse are parked at their provider's limit", async () => {
    const { rig, runs, sessions, open } = rigged()
    const [sessionID = ""] = sessions
    let isOpen = false
    rig.onPrompt("LIMITED", { text: "done", ...CENT })
    rig.script(({ prompt }) =>
      prompt.startsWith("LIMITED") && !isOpen
        ? { status: 429, body: { error: { message: "Rate limit reached. Try again in 600s" } } }
        : undefined,
    )
    open(1)
    await runs.start({ sessionID, agent: "general", description: "#1 work", prompt: "LIMITED" })
    await rig.clock.until(() => runs.of(sessionID)?.pause !== undefined)
    expect(runs.of(sessionID)).toMatchObject({
      state: "running",
      pause: { waitsFor: "scripted/alpha" },
    })
    isOpen = true
    await rig.clock.until(() => runs.of(sessionID)?.state === "ended")
    expect(runs.of(sessionID)?.result?.status).toBe("completed")
    expect(rig.opencode.toasts.map(({ title }) => title)).toEqual([expect.stringContaining("is at its limit until")])
    expect(rig.errors()).toEqual([])
  })
})
