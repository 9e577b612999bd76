import { describe, expect, test, vi } from "vitest"
import { ManagerRuns, type RunView, resultOf } from "../../src/features/board/runs.ts"
import { Unattended } from "../../src/features/board/unattended.ts"
import { taskOfMessage } from "../../src/opencode/messages.ts"
import type { TaskView } from "../../src/present/view.ts"
import { flush } from "../support/fake-clock.ts"
import { Rig } from "../support/rig.ts"

/** A session that stands by itself, and runs in it as the board begins them. */
const standing = (options: ConstructorParameters<typeof Rig>[0] = {}) => {
  const rig = new Rig(options)
  const sessionID = rig.opencode.openSession()
  const runs = () => new ManagerRuns(rig.manager, Promise.resolve(), rig.clock)
  const start = async (prompt: string, agent = "general") => {
    await new Unattended(rig.manager.parts).start({ sessionID, agent, description: "#5 Migrate", prompt })
    return rig.manager.taskIn(sessionID) as TaskView
  }
  const ended = () => rig.clock.until(() => runs().of(sessionID)?.state === "ended")
  return { rig, sessionID, runs, start, ended }
}

describe("an unattended run", () => {
  test("an unattended run works in an existing session and notifies nobody of its end", async () => {
    const { rig, sessionID, runs, start, ended } = standing()
    rig.onPrompt("WORK", { text: "done" })
    const { task } = await start("WORK")
    expect(task).toMatchObject({ sessionID, parentID: "", depth: 0, status: "running", agent: "general" })
    expect(runs().of(sessionID)?.state).toBe("running")
    await ended()
    await rig.clock.advance(60_000)
    expect(runs().of(sessionID)?.result).toEqual({
      status: "completed",
      reason: undefined,
      begun: true,
      overBudget: false,
      refused: [],
    })
    expect(rig.manager.taskIn(sessionID)?.task.delivery).toEqual({ state: "none" })
    expect(rig.opencode.toasts).toEqual([])
    expect(rig.notices(sessionID)).toEqual([])
    expect(rig.manager.list(rig.parent)).toEqual([])
    expect(rig.errors()).toEqual([])
  })

  test("only one unattended run goes on in a session, and the next one resumes the same task", async () => {
    const { rig, sessionID, start, ended } = standing()
    rig.onPrompt("WORK", { text: "done" })
    const first = await start("WORK")
    await expect(start("WORK")).rejects.toThrow("is being worked in already")
    await ended()
    const second = await start("WORK", "plan")
    expect(second.task).toMatchObject({ id: first.task.id, agent: "plan", status: "resumed", run: { generation: 1 } })
    await ended()
    const asked = rig.opencode.stored(sessionID).messages.filter(({ role }) => role === "user")
    expect(asked.map(({ agent }) => agent)).toEqual(["general", "plan"])
    expect(asked.map(({ id }) => taskOfMessage(id))).toEqual([first.task.id, first.task.id])
    expect(asked.every(({ id }) => new Unattended(rig.manager.parts).wrote(id))).toBe(true)
    expect(new Unattended(rig.manager.parts).wrote("msg_0123456789abAbCdEfGhIjKlMn")).toBe(false)
  })

  test("an unattended run of a process that died is taken over by one that knew an earlier run", async () => {
    const { rig, sessionID, start, ended } = standing()
    rig.onPrompt("WORK", { text: "done" })
    rig.onPrompt("LAST", { hang: true })
    await start("WORK")
    await ended()
    await rig.clock.advance(5000)
    const other = new Rig({
      options: rig.options as never,
      share: { clock: rig.clock, database: rig.opencode.database },
    })
    const theirs = new ManagerRuns(other.manager, Promise.resolve(), rig.clock)
    await other.manager.recover()
    expect(theirs.of(sessionID)?.result).toMatchObject({ status: "completed" })
    const { task } = await start("LAST")
    await rig.clock.advance(30_000)
    rig.crash()
    // Before it is settled, nothing can stop it, and its cost is not known.
    const status = theirs.refresh().then(() => theirs.of(sessionID)?.result?.status)
    await rig.clock.advance(5000)
    expect(await status).toBe("error")
    expect(theirs.of(sessionID)?.createdAt).toBe(task.run.createdAt)
    expect(other.errors()).toEqual([])
  })

  test("an unattended run is refused for a missing session or agent, and for a background task's session", async () => {
    const { rig, start } = standing()
    rig.onPrompt("FIND", { hang: true })
    await expect(start("WORK", "nobody")).rejects.toThrow('No agent "nobody"')
    const request = { agent: "general", description: "x", prompt: "WORK" }
    await expect(new Unattended(rig.manager.parts).start({ ...request, sessionID: "ses_gone" })).rejects.toThrow(
      "does not exist any more",
    )
    const { id } = await rig.launch()
    const child = rig.task(id).sessionID
    await expect(new Unattended(rig.manager.parts).start({ ...request, sessionID: child })).rejects.toThrow(
      `belongs to background task ${id}`,
    )
    expect([rig.manager.isLaunched(child), rig.manager.isLaunched("ses_gone")]).toEqual([true, false])
    expect(new ManagerRuns(rig.manager, Promise.resolve(), rig.clock).of(child)).toBeUndefined()
    expect(await new Unattended(rig.manager.parts).stop(child)).toBe(false)
  })

  test("an unattended run ends with an error at its time limit and can be started again", async () => {
    const { rig, sessionID, runs, start, ended } = standing({ options: { taskTimeout: 60_000 } })
    rig.onPrompt("WORK", { hang: true, text: "so far" })
    await start("WORK")
    await rig.clock.advance(120_000)
    await ended()
    expect(runs().of(sessionID)?.result).toMatchObject({
      status: "error",
      begun: true,
      reason: expect.stringContaining("1m"),
    })
    await start("WORK")
    expect(runs().of(sessionID)?.state).toBe("running")
  })

  test("refusals of many unattended runs compute the spending that they share once", async () => {
    const { rig, runs, sessionID, start, ended } = standing({ options: { maxCostPerDay: 1 } })
    rig.onPrompt("WORK", { text: "done", usage: { input: 2_000_000 } })
    await start("WORK")
    await ended()
    const { opencode } = rig
    const read = vi.spyOn(opencode, "unverified")
    const refusal = await runs().refusals()
    const texts = Array.from({ length: 20 }, (_, at) => refusal(at % 2 === 0 ? sessionID : undefined))
    expect(new Set(texts)).toEqual(new Set([expect.stringContaining("maxCostPerDay")]))
    expect(read).toHaveBeenCalledTimes(1)
  })

  test("the options of an agent apply to its unattended runs", async () => {
    const general = { timeout: 60_000, maxCost: 0.5, model: "scripted/beta" }
    const { rig, sessionID, start, ended } = standing({ options: { agents: { general } } })
    rig.onPrompt("WORK", { text: "done", usage: { input: 100_000 } })
    const { task } = await start("WORK")
    const applied = { timeout: 60_000, budget: { max: 0.5, before: 0 } }
    expect(task).toMatchObject({ model: { id: "beta" }, run: applied })
    await ended()
    const cost = rig.manager.parts.ledger.ofTask(task.id).cost
    expect(cost).toBeGreaterThan(0)
    const second = await start("WORK")
    expect(second.task).toMatchObject({
      model: { id: "beta" },
      run: { ...applied, budget: { max: 0.5, before: cost } },
    })
    await ended()
    const messageID = rig.opencode.say(sessionID, "WORK", { agent: "general" })
    await new Unattended(rig.manager.parts).adopt({ sessionID, agent: "general", description: "#5" }, messageID)
    expect(rig.manager.taskIn(sessionID)?.task.run).toMatchObject({ timeout: 60_000, budget: { max: 0.5 } })
  })

  test("the limit of a model holds for unattended runs from their second one on, before their first request", async () => {
    const { rig, sessionID, start, ended } = standing({ options: { maxConcurrentPerModel: { "scripted/alpha": 1 } } })
    rig.onPrompt("WORK", { text: "done" })
    rig.onPrompt("HANG", { hang: true })
    const { task } = await start("WORK")
    await ended()
    expect(rig.manager.taskIn(sessionID)?.task.model).toMatchObject({ id: "alpha" })
    const other = rig.opencode.openSession()
    rig.opencode.say(other, "hello", { model: { provider: "scripted", id: "alpha" } })
    const request = { sessionID: other, agent: "general", description: "other", prompt: "HANG" }
    await new Unattended(rig.manager.parts).start(request)
    expect(rig.manager.taskIn(other)?.task.model).toMatchObject({ id: "alpha" })
    await start("WORK")
    const { run } = rig.manager.taskIn(sessionID)?.task ?? task
    expect([run.generation, run.startedAt]).toEqual([1, undefined])
  })

  test("an unattended run after one that a fallback model finished begins with the model of before", async () => {
    const { rig, sessionID, start, ended } = standing()
    const beta = { provider: "scripted", id: "beta" }
    rig.onPrompt("WORK", { text: "done" })
    rig.onPrompt("HANG", { hang: true })
    const { task } = await start("HANG")
    await rig.clock.advance(1000)
    const { store } = rig.manager.parts
    store.apply(task.id, { type: "switched", generation: 0, model: beta, step: 1, why: "limit" }, rig.clock.now())
    await new Unattended(rig.manager.parts).stop(sessionID)
    await ended()
    rig.opencode.say(sessionID, "so far", { agent: "general", model: beta })
    expect((await start("WORK")).task.model).toMatchObject({ id: "alpha" })
    await ended()
    const messageID = rig.opencode.say(sessionID, "WORK", { agent: "general", model: beta })
    await new Unattended(rig.manager.parts).adopt({ sessionID, agent: "general", description: "#5" }, messageID)
    expect(store.get(task.id)?.model).toBeUndefined()
  })

  test("an unattended run is stopped once when somebody stops it", async () => {
    const { rig, sessionID, runs, start } = standing()
    rig.onPrompt("WORK", { hang: true })
    await start("WORK")
    await rig.clock.advance(100)
    await runs().stop(sessionID)
    expect(runs().of(sessionID)?.result?.status).toBe("cancelled")
    expect(await new Unattended(rig.manager.parts).stop(sessionID)).toBe(false)
  })

  test("an unattended run uses no session's slot, and tasks that it launches are its children", async () => {
    const { rig, sessionID, start } = standing({ options: { maxConcurrentTasks: 1 } })
    rig.onPrompt("WORK", { hang: true })
    const other = rig.opencode.openSession()
    await start("WORK")
    await new Unattended(rig.manager.parts).start({
      sessionID: other,
      agent: "general",
      description: "other",
      prompt: "WORK",
    })
    expect(rig.manager.taskIn(other)?.task.run.startedAt).toBeDefined()
    rig.onPrompt("FIND", { hang: true })
    const { id } = await rig.launch({}, sessionID)
    expect(rig.task(id, sessionID)).toMatchObject({ depth: 1, parentID: sessionID })
  })

  test("after a restart a finished unattended run is still completed, and an unfinished one is interrupted", async () => {
    const { rig, sessionID, runs, start, ended } = standing()
    rig.onPrompt("WORK", { text: "done" })
    await start("WORK")
    await ended()
    await rig.clock.advance(20_000)
    rig.restart()
    await rig.manager.recover()
    expect(runs().of(sessionID)).toMatchObject({ state: "ended", result: { status: "completed" } })
    const { store } = rig.manager.parts
    expect(store.isForeign(store.bySession(sessionID)?.id ?? "")).toBe(false)
    rig.onPrompt("HANG", { hang: true, text: "so far" })
    await start("HANG")
    await rig.clock.advance(100)
    rig.restart()
    await rig.manager.recover()
    await ended()
    expect(runs().of(sessionID)?.result).toMatchObject({
      status: "error",
      begun: true,
      reason: expect.stringContaining("interrupted"),
    })
    expect(rig.notices(sessionID)).toEqual([])
  })

  test("an unattended run informs its listeners when it is queued, begins and ends, not of each word", async () => {
    const { rig, sessionID, start, ended } = standing()
    rig.onPrompt("WORK", { text: "one two three" })
    let told = 0
    new ManagerRuns(rig.manager, Promise.resolve(), rig.clock).listen((session) => {
      if (session === sessionID) told++
    })
    await start("WORK")
    await ended()
    await flush()
    expect(told).toBe(3)
  })

  test("an unattended run is refused when the budget is spent, and the refusal is known before", async () => {
    const { rig, sessionID, runs, start, ended } = standing({ options: { maxCostPerDay: 0.001 } })
    rig.onPrompt("WORK", { text: "done" })
    expect((await runs().refusals())(sessionID)).toBeUndefined()
    await start("WORK")
    await ended()
    expect(runs().of(sessionID)?.result).toMatchObject({ overBudget: false })
    const refusal = (await runs().refusals())(sessionID)
    expect(refusal).toContain("(option maxCostPerDay)")
    expect((await runs().refusals())(undefined)).toBe(refusal)
    await expect(start("WORK")).rejects.toThrow("Nothing was launched")
    await rig.clock.advance(25 * 3_600_000)
    expect((await runs().refusals())(sessionID)).toBeUndefined()
  })
})

describe("a user's message in its session", () => {
  let count = 0
  const write = async (
    { rig, sessionID, runs }: Pick<ReturnType<typeof standing>, "rig" | "sessionID" | "runs">,
    text: string,
  ) => {
    const time = (BigInt(rig.clock.now()) * 4096n).toString(16).padStart(12, "0").slice(-12)
    const messageID = `msg_${time}UsersOwn${String(++count).padStart(6, "0")}`
    const parts = [{ id: `prt_${messageID.slice(4)}`, text }]
    await rig.opencode.prompt({ sessionID, messageID, agent: "general", parts })
    await runs().adopt({ sessionID, agent: "general", description: "#5 Migrate" }, messageID)
  }

  test("a user's message in such a session counts as a run, with its cost on the task", async () => {
    const all = standing()
    const { rig, sessionID, runs, start, ended } = all
    rig.onPrompt("WORK", { text: "done" })
    rig.onPrompt("And this?", { text: "that, too" })
    await start("WORK")
    await ended()
    await rig.clock.advance(1000)
    await write(all, "And this?")
    expect(runs().of(sessionID)).toMatchObject({ state: "running", byPerson: true })
    await ended()
    expect(rig.manager.taskIn(sessionID)?.whole.usage.cost).toBeCloseTo(0.002)
    expect(runs().of(sessionID)).toMatchObject({ byPerson: true, result: { status: "completed" } })
    const asked = rig.opencode.stored(sessionID).messages.filter(({ role }) => role === "user")
    expect(asked).toHaveLength(2)
    expect(rig.errors()).toEqual([])
  })

  test("a user's message is the first run of a session without one, and ends like others", async () => {
    const all = standing({ options: { taskTimeout: 60_000 } })
    const { rig, sessionID, runs, ended } = all
    rig.onPrompt("Go on", { hang: true, text: "so far" })
    await write(all, "Go on")
    expect(runs().of(sessionID)?.state).toBe("running")
    await rig.clock.advance(120_000)
    await ended()
    expect(runs().of(sessionID)).toMatchObject({ byPerson: true, result: { status: "error" } })
  })

  test("a user's message joins a running run, and becomes no run when a limit would stop it", async () => {
    const all = standing({ options: { maxCostPerDay: 0.001 } })
    const { rig, sessionID, runs, start, ended } = all
    rig.onPrompt("WORK", { hang: true })
    await start("WORK")
    const { run } = rig.manager.taskIn(sessionID)?.task ?? {}
    await runs().adopt({ sessionID, agent: "general", description: "x" }, "msg_theirs")
    expect(rig.manager.taskIn(sessionID)?.task.run).toEqual(run)
    await runs().stop(sessionID)
    rig.onPrompt("DEAR", { text: "done" })
    await start("DEAR")
    await ended()
    rig.onPrompt("And?", { text: "so" })
    await write(all, "And?")
    expect(runs().of(sessionID)?.state).toBe("ended")
    expect(runs().of(sessionID)?.byPerson).toBe(false)
  })

  const asking = (question: string) => ({ tools: [{ name: "question", args: { questions: [{ question }] } }] })

  test.each([
    ["before its user wrote there needs nobody", [], undefined],
    ["after its user wrote there needs somebody", [asking("And this?")], "And this?"],
  ])("a question of a run that was refused %s", async (_when, later, needs) => {
    const { rig, sessionID, start, ended, ...all } = standing({ options: { permissionTimeout: 60_000 } })
    const runs = all.runs()
    const replies = [asking("Which one?"), { hang: true } as const, ...later, { text: "done" }]
    rig.script((request) => (request.sessionID === sessionID ? replies.shift() : undefined))
    await start("WORK")
    await rig.clock.until(() => replies.length === later.length + 1)
    await rig.clock.advance(1000)
    await write({ rig, sessionID, runs: () => runs }, "The second one")
    await rig.clock.advance(1000)
    rig.opencode.conclude(sessionID, { text: "so far" })
    await ended()
    expect(replies).toEqual([])
    expect(resultOf(runs.of(sessionID) as RunView)).toEqual({ kind: "completed", ...(needs && { needs }) })
    expect(rig.errors()).toEqual([])
  })
})
