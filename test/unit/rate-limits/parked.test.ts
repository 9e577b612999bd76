import { describe, expect, test } from "vitest"
import { isPaused } from "../../../src/core/task.ts"
import { MINUTE_MS } from "../../../src/lib/format.ts"
import type { Place } from "../../../src/runtime/places/place.ts"
import { toolsFor } from "../../../src/tools/index.ts"
import type { Tool } from "../../../src/tools/tool.ts"
import { flush } from "../../support/fake-clock.ts"
import { FakeMachine } from "../../support/fake-machine.ts"
import {
  answerAll,
  isParkedNow,
  limited,
  Provider,
  parkedTask,
  parkedTasks,
  settings,
} from "../../support/limit-scene.ts"
import type { Reply } from "../../support/model.ts"
import { Rig } from "../../support/rig.ts"

/** A provider at its limit for 8 s, whose first task is parked, while a task of another model is at work. */
const atItsLimit = async () => {
  const provider = new Provider({ shutMs: 8000 })
  const { rig } = provider
  rig.onPrompt("ELSEWHERE", { hang: true })
  const elsewhere = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
  const [first] = await provider.launchAll(1)
  await rig.clock.until(() => isParkedNow(rig, first.id))
  return { provider, rig, elsewhere, first }
}

describe("tasks at a provider's limit", () => {
  test("forty tasks at a provider's limit all complete and notify once, with hardly any refused request", async () => {
    const provider = new Provider({ bucket: 26, shutMs: 8000 })
    const tasks = await provider.launchAll(40)
    for (const { id } of tasks) expect((await provider.rig.ended(id)).status).toBe("completed")
    expect(provider.rig.notices().filter(({ visible }) => visible.includes("finished"))).toHaveLength(40)
    // Each closing: the one that met it, and those under way within the next moment.
    const late = provider.refused.filter(
      (at, index) =>
        index > 0 && at - (provider.refused[index - 1] ?? 0) > 400 && at - (provider.refused[index - 1] ?? 0) < 8000,
    )
    expect(late.length).toBeLessThanOrEqual(2)
    expect(provider.rig.errors()).toEqual([])
  })

  test("a task parked at its provider's limit shows that, frees its slot and stops its clock", async () => {
    const provider = new Provider(
      { bucket: 0, shutMs: 30 * MINUTE_MS },
      { ...settings, maxConcurrentTasks: 1, taskTimeout: 5 * MINUTE_MS },
    )
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    await rig.clock.advance(1000)
    expect(rig.view(task.id).phase).toMatch(/^parked/)
    expect(rig.task(task.id).run.parked).toMatchObject({
      model: "scripted/alpha",
      why: expect.stringContaining("Rate limit"),
    })
    const elapsed = rig.view(task.id).elapsed
    provider.left = 100
    await rig.clock.advance(20 * MINUTE_MS)
    expect(rig.view(task.id)).toMatchObject({ phase: expect.stringMatching(/^parked until \d\d:\d\d$/), elapsed })
    expect((await rig.ended(task.id)).status).toBe("completed")
    expect(rig.task(task.id).run).toMatchObject({ parkedTimes: 1, parkedMs: expect.any(Number) })
    expect(rig.view(task.id).elapsed).toBeLessThan(MINUTE_MS)
  })

  test("a provider's limit without a reset time is probed after 5 s, then with doubled waits", async () => {
    const provider = new Provider({ shutMs: MINUTE_MS, tells: false })
    const [task] = await provider.launchAll(1)
    await provider.rig.clock.advance(MINUTE_MS - 1000)
    const waits = provider.refused.slice(1).map((at, index) => Math.round((at - (provider.refused[index] ?? 0)) / 1000))
    expect(waits).toEqual([5, 10, 20])
    provider.left = 100
    expect((await provider.rig.ended(task.id)).status).toBe("completed")
  })

  test("a reset time found only in the body of a final refusal is used", async () => {
    const rig = new Rig({ options: settings })
    let requests = 0
    const said = { status: 402, body: { error: { message: "Limited.", resets_in_seconds: 60 } } }
    rig.script(({ sessionID }) => (sessionID !== rig.parent && requests++ === 0 ? said : undefined))
    const task = await rig.launch()
    await rig.clock.advance(2000)
    expect(rig.view(task.id).phase).toMatch(/^parked until /)
    expect((await rig.ended(task.id)).status).toBe("completed")
    expect(rig.task(task.id).run.parkedMs).toBeGreaterThan(MINUTE_MS - 5000)
    expect(requests).toBe(2)
  })

  test("a provider's limit parks a task only once, even if a slow poll reports it again", async () => {
    const provider = new Provider({ shutMs: MINUTE_MS })
    const { rig } = provider
    const released: (() => void)[] = []
    const held = () => ({ held: new Promise<void>((resolve) => released.push(resolve)) })
    const [task] = await provider.launchAll(1)
    const sent = () => rig.opencode.calls.filter((call) => call === "abort").length
    rig.opencode.onCall = (method) => (method === "activity" || method === "abort" ? held() : undefined)
    const look = rig.manager.parts.poller.tick()
    await rig.clock.until(() => isParkedNow(rig, task.id))
    expect(sent()).toBe(1)
    // OpenCode answers the look with a session that is about to be stopped.
    released[0]?.()
    await look
    expect(sent()).toBe(1)
    rig.opencode.onCall = () => undefined
    for (const release of released) release()
    provider.left = 100
    expect((await rig.ended(task.id)).status).toBe("completed")
  })

  test("a provider's limit is reported by one toast and one message that does not wake the parent", async () => {
    const provider = new Provider({ shutMs: 30 * MINUTE_MS })
    const { rig } = provider
    await provider.launchAll(5)
    await rig.clock.advance(5000)
    const told = rig.notices().filter(({ visible }) => visible.startsWith("⏸"))
    expect(told).toHaveLength(1)
    expect(told[0]?.visible).toMatch(
      /^⏸ \*\*scripted\/alpha is at its limit until \d\d:\d\d\.\*\* 5 tasks are parked\.$/,
    )
    expect(told[0]?.hidden).toContain("do not wait, poll or launch them again")
    const toasts = rig.opencode.toasts.filter(({ title }) => title.includes("at its limit"))
    expect(toasts.map(({ message }) => message)).toEqual([
      "5 tasks are parked and go on by themselves. /tasks: Go on now.",
    ])
    expect(rig.answers()).toHaveLength(0)
  })

  test("the report of a limit does not count a task that waits for another, and names a single parked task", async () => {
    const { rig } = new Provider({ shutMs: 30 * MINUTE_MS })
    const { id } = await rig.launch({ prompt: "FIND" })
    await rig.launch({ prompt: "FIND then", after: [id] })
    await rig.clock.advance(5000)
    const [told] = rig.notices().filter(({ visible }) => visible.startsWith("⏸"))
    expect(told?.visible).toMatch(/ 1 task is parked\.$/)
    expect(told?.hidden).toMatch(
      new RegExp(
        `It goes on by itself: do not wait, poll or launch it again\\. superagents_cancel stops it, superagents_task\\(unpark="${id}"\\) tries now\\.$`,
      ),
    )
  })

  test("a provider's limit is reported to a busy parent only after its turn has ended", async () => {
    const provider = new Provider({ shutMs: 30 * MINUTE_MS })
    const { rig } = provider
    rig.onPrompt("GO ON", { hang: true })
    rig.opencode.say(rig.parent, "GO ON", { agent: "general" })
    await provider.launchAll(2)
    await rig.clock.advance(5000)
    const told = () => rig.notices().filter(({ visible }) => visible.startsWith("⏸"))
    expect(told()).toHaveLength(0)
    rig.opencode.conclude(rig.parent, { text: "waiting" })
    await rig.clock.advance(15_000)
    expect(told()).toHaveLength(1)
    await rig.clock.advance(MINUTE_MS)
    expect(told()).toHaveLength(1)
  })

  test("a provider's limit is not reported again within ten minutes unless its reset time moves by ten", async () => {
    const provider = new Provider({ bucket: 1, shutMs: 40_000 })
    const { rig } = provider
    const toasts = () => rig.opencode.toasts.filter(({ title }) => title.includes("at its limit")).length
    const [task] = await provider.launchAll(1)
    // Closed after each answer.
    await rig.ended(task.id)
    expect([provider.refused.length, toasts()]).toEqual([2, 1])
    const long = new Provider({ shutMs: 30 * MINUTE_MS, tells: false })
    await long.launchAll(1)
    await long.rig.clock.advance(20 * MINUTE_MS)
    expect(long.refused.length).toBeGreaterThan(5)
    expect(long.rig.opencode.toasts.filter(({ title }) => title.includes("at its limit"))).toHaveLength(1)
  })

  test.each([
    ["again if a probe finds a reset time ten minutes later", "40s", "2h", 2],
    ["even if the first refusal was only for a moment", "2s", "5h", 1],
  ])("a provider's limit is reported %s", async (_when, first, then, times) => {
    const rig = new Rig({ options: settings })
    answerAll(rig, limited(` Try again in ${first}`))
    await rig.launch()
    await rig.clock.advance(1000)
    answerAll(rig, limited(` Try again in ${then}`))
    await rig.clock.advance(MINUTE_MS)
    expect(rig.opencode.toasts.filter(({ title }) => title.includes("at its limit until"))).toHaveLength(times)
    expect(rig.notices().filter(({ visible }) => visible.startsWith("⏸"))).toHaveLength(times)
  })

  test("a provider's limit is reported again after the system clock was set back", async () => {
    const { provider, rig, id } = await parkedTask({ shutMs: 2 * MINUTE_MS })
    const told = () => rig.notices().filter(({ visible }) => visible.startsWith("⏸")).length
    provider.left = 100
    await rig.ended(id)
    expect(told()).toBe(1)
    await rig.clock.advance(20 * MINUTE_MS)
    rig.clock.setBack(120 * MINUTE_MS)
    answerAll(rig, limited(" Try again in 40m"))
    await rig.launch()
    await rig.clock.advance(MINUTE_MS)
    expect(told()).toBe(2)
  })

  test("parked tasks continue after days of sleep if the limit is over, even past their maximum parked time", async () => {
    const { provider, rig, tasks } = await parkedTasks(3, { shutMs: 5 * 60 * MINUTE_MS })
    provider.left = 100
    await rig.clock.sleep(60 * 60 * MINUTE_MS)
    for (const { id } of tasks) expect((await rig.ended(id)).status).toBe("completed")
  })

  test("parked tasks end after days of sleep if one more probe finds that the limit remains", async () => {
    const { provider, rig, tasks } = await parkedTasks(3, { shutMs: 5 * 60 * MINUTE_MS, tells: false })
    const before = provider.requests
    await rig.clock.sleep(60 * 60 * MINUTE_MS)
    for (const { id } of tasks)
      expect(await rig.ended(id)).toMatchObject({ status: "error", outcome: { reason: { code: "limit" } } })
    expect(provider.requests - before).toBe(1)
  })

  test("a message for a parked task is stored, and read when the task continues", async () => {
    const { provider, rig, task } = await parkedTask({ bucket: 1, shutMs: MINUTE_MS })
    await rig.manager.tell(task.id, "Look at the tests, too.", rig.caller)
    const before = provider.requests
    await rig.clock.advance(10_000)
    expect(provider.requests).toBe(before)
    provider.left = 100
    expect((await rig.ended(task.id)).status).toBe("completed")
  })

  test("a user's message in a parked task's session waits for the limit and is answered afterwards", async () => {
    const { provider, rig, task } = await parkedTask({ shutMs: MINUTE_MS })
    rig.opencode.say(task.sessionID, "Look at the tests, too.", { agent: "general" })
    await rig.clock.advance(1000)
    expect(rig.opencode.isWorking(task.sessionID)).toBe(false)
    provider.left = 100
    expect((await rig.ended(task.id)).status).toBe("completed")
    expect(rig.opencode.isWorking(task.sessionID)).toBe(false)
  })

  test("a parked task gains no working time while the computer sleeps", async () => {
    const { rig, task } = await parkedTask({ shutMs: 30_000 }, { ...settings, taskTimeout: 20_000, lastWord: 0 })
    await rig.clock.sleep(60 * MINUTE_MS)
    rig.script(({ sessionID }) => (sessionID === task.sessionID ? { hang: true, text: "so far" } : undefined))
    await rig.clock.advance(MINUTE_MS)
    expect(rig.task(task.id)).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
  })

  test("a parked task is probed only after the call that stops it has returned", async () => {
    const provider = new Provider({ shutMs: MINUTE_MS })
    const { rig } = provider
    let isSlow = true
    rig.opencode.onCall = (method) => (isSlow && method === "abort" ? { slow: 3000 } : undefined)
    const [task] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, task.id))
    isSlow = false
    answerAll(rig, { text: "done" })
    await rig.manager.unpark(task.id, rig.parent)
    expect((await rig.ended(task.id)).status).toBe("completed")
  })

  test("a parked task with a free slot probes the provider if the first one has no slot", async () => {
    const provider = new Provider({ shutMs: 8000 }, { ...settings, maxConcurrentTasks: 1 })
    const { rig } = provider
    const [first] = await provider.launchAll(1)
    const parent = rig.openParent()
    const second = await rig.launch({ prompt: "THERE" }, parent)
    await rig.clock.until(() => isParkedNow(rig, second.id, parent))
    rig.onPrompt("ELSEWHERE", { hang: true })
    const other = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
    provider.left = 100
    await rig.clock.advance(MINUTE_MS)
    expect(rig.task(second.id, parent).status).toBe("completed")
    await rig.manager.cancel({ type: "task", reference: other.id }, rig.caller)
    expect((await rig.ended(first.id)).status).toBe("completed")
  })

  test("a provider's limit opens with one probe, then two and four, each after an answer before", async () => {
    const { rig } = await parkedTasks(10, { shutMs: 8000 }, { ...settings, maxConcurrentTasks: 12 })
    // They would take the slots that the parked have left.
    for (let more = 0; more < 6; more++) await rig.launch({ prompt: `QUEUED ${more}` })
    const asked: string[] = []
    rig.script(({ sessionID, lastUser }) => {
      if (sessionID === rig.parent || !/FIND|QUEUED/.test(lastUser)) return undefined
      if (!asked.includes(sessionID)) asked.push(sessionID)
      return { text: "", delay: 60 * MINUTE_MS }
    })
    const answer = (at: number) => rig.opencode.conclude(asked[at] ?? "", { tools: [{ name: "read", args: {} }] })
    const waves: number[] = []
    for (const answers of [[], [0], [0], [1], [2], []]) {
      for (const at of answers) answer(at)
      await rig.clock.advance(waves.length === 0 ? 9000 : 1000)
      waves.push(asked.length)
    }
    expect(waves).toEqual([1, 3, 3, 7, 7, 7])
    // Two of the wave end without an answer: two others go in their place.
    const ids = rig.manager.list(rig.parent).filter(({ task }) => asked.slice(3, 5).includes(task.sessionID))
    for (const { task } of ids) await rig.manager.cancel({ type: "task", reference: task.id }, rig.caller)
    await rig.clock.advance(1000)
    expect(asked).toHaveLength(9)
    answer(8)
    await rig.clock.advance(1000)
    // The wave of eight, as far as there are slots: seven of twelve are taken.
    expect(asked).toHaveLength(14)
  })

  test("a provider's limit also opens for the items of maps that were launched meanwhile", async () => {
    const { provider, rig } = await parkedTasks(3, { shutMs: 8000 }, { ...settings, maxConcurrentTasks: 3 })
    const maps = []
    for (const name of ["MAP", "FIELD", "PLAN"])
      maps.push(await rig.launch({ prompt: `${name} {{item}}`, each: ["a", "b", "c", "d"] }))
    provider.left = 1000
    // Their ledgers are real files: the clock goes on beside them.
    for (const { id } of maps) expect(await rig.endedBeside(id, 1000)).toMatchObject({ status: "completed" })
  })

  test("a parked task can be cancelled, and no request follows", async () => {
    const { provider, rig, task } = await parkedTask({ shutMs: MINUTE_MS })
    await rig.manager.cancel({ type: "all" }, rig.caller)
    const before = provider.requests
    await rig.clock.advance(10 * MINUTE_MS)
    expect(rig.task(task.id).status).toBe("cancelled")
    expect(provider.requests).toBe(before)
  })

  test("a parked task is probed at once if the caller asks for that", async () => {
    const { provider, rig, task } = await parkedTasks(3, { shutMs: 30 * MINUTE_MS })
    const before = provider.requests
    await expect(rig.manager.unpark(task.id, rig.parent)).resolves.toMatchObject({ model: "scripted/alpha", others: 2 })
    await rig.clock.advance(1000)
    expect(provider.requests).toBe(before + 1)
    expect(rig.view(task.id).phase).toMatch(/^parked/)
  })

  test("a task ends when it was parked too long in total", async () => {
    const provider = new Provider(
      { bucket: 0, shutMs: 60 * MINUTE_MS, tells: false },
      { ...settings, maxParked: 10 * MINUTE_MS },
    )
    const [task] = await provider.launchAll(1)
    const ended = await provider.rig.ended(task.id)
    expect(ended).toMatchObject({
      status: "error",
      outcome: {
        reason: {
          code: "limit",
          text: expect.stringMatching(/^Parked for 10m \d+s: scripted\/alpha is at its limit: /),
        },
      },
    })
  })

  test("a reset time that passes while no task waits causes no calls", async () => {
    const { provider, rig, first } = await atItsLimit()
    await rig.manager.cancel({ type: "task", reference: first.id }, rig.caller)
    await rig.clock.advance(5000)
    let calls = 0
    rig.opencode.onCall = () => {
      calls++
      return undefined
    }
    await rig.clock.advance(10_000)
    expect(calls).toBeLessThan(20)
    rig.opencode.onCall = () => undefined
    provider.left = 100
    const [next] = await provider.launchAll(1)
    await rig.clock.advance(1000)
    expect(rig.task(next.id).status).toBe("completed")
  })

  test("a task that waits for another task is not chosen to probe the provider's limit", async () => {
    const { provider, rig, elsewhere, first } = await atItsLimit()
    await rig.launch({ prompt: "AFTER", after: [elsewhere.id] })
    const next = await rig.launch({ prompt: "NEXT" })
    await rig.manager.cancel({ type: "task", reference: first.id }, rig.caller)
    provider.left = 100
    await rig.clock.advance(20_000)
    expect(rig.task(next.id).status).toBe("completed")
  })

  test("a user's message does not start a task that still waits for another task", async () => {
    const { provider, rig, elsewhere } = await atItsLimit()
    const { id, sessionID } = await rig.launch({ prompt: "AFTER", after: [elsewhere.id] })
    rig.opencode.say(sessionID, "HELLO", { agent: "general" })
    await rig.clock.advance(2 * MINUTE_MS)
    expect(rig.task(id).run.startedAt).toBeUndefined()
    expect(rig.opencode.isWorking(sessionID)).toBe(false)
    provider.left = 100
    rig.opencode.conclude(elsewhere.sessionID, { text: "done" })
    expect((await rig.ended(id)).status).toBe("completed")
  })

  test("a provider's limit does not hold back a user's message to a task that waits for a slot", async () => {
    const provider = new Provider({ shutMs: 4000 }, { ...settings, maxConcurrentTasks: 1 })
    const { rig } = provider
    rig.onPrompt("ELSEWHERE", { hang: true })
    const [first] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, first.id))
    await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
    const { id, sessionID } = await rig.launch({ prompt: "LATER" })
    rig.opencode.say(sessionID, "HELLO", { agent: "general" })
    await rig.clock.advance(9000)
    provider.left = 100
    await rig.clock.advance(MINUTE_MS)
    expect(rig.task(id).run.startedAt).toBeUndefined()
    expect(rig.opencode.isWorking(sessionID)).toBe(false)
  })

  test("a provider's limit is left to OpenCode if the option gate is off", async () => {
    const provider = new Provider({ shutMs: 30 * MINUTE_MS }, { ...settings, gate: false })
    const [task] = await provider.launchAll(1)
    expect(await provider.rig.ended(task.id)).toMatchObject({
      status: "error",
      outcome: { reason: { code: "provider" } },
    })
  })
})

describe("a refusal for lack of money", () => {
  const broke = (rig: Rig) => {
    const asked: string[] = []
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      asked.push(sessionID)
      return { status: 402, body: { error: { message: "Insufficient credits." } } }
    })
    return asked
  }

  test("a file that OpenCode cannot attach is no refusal, whatever its path, since no model was asked", async () => {
    const rig = new Rig({ options: settings })
    const { id, sessionID } = await rig.launch({ prompt: "A" })
    const message = "Cannot read binary file: /home/u/billing-quota/q3.xlsx"
    rig.opencode.tell({ type: "error", sessionID, error: { message } })
    expect(rig.task(id).run.parked).toBeUndefined()
    expect((await rig.ended(id)).status).toBe("completed")
    expect(await rig.launch({ prompt: "B" })).toBeDefined()
  })

  test("missing money ends the run after one request, ends unstarted tasks, and blocks launches for a minute", async () => {
    const rig = new Rig({ options: { ...settings, maxConcurrentTasks: 1 } })
    const asked = broke(rig)
    const [first, second] = [await rig.launch({ prompt: "A" }), await rig.launch({ prompt: "B" })]
    expect((await rig.ended(first.id)).outcome?.reason).toEqual({
      code: "provider",
      text: "Insufficient credits. This does not pass by waiting.",
    })
    expect((await rig.ended(second.id)).outcome?.reason?.text).toMatch(
      /^Not begun: scripted\/alpha refused another task \S+ ago: Insufficient credits\.$/,
    )
    expect(asked).toHaveLength(1)
    await expect(rig.launch({ prompt: "C" })).rejects.toThrow(
      "This does not pass by waiting. Launch a new task with another model",
    )
    expect(await rig.launch({ prompt: "D", model: "scripted/beta" })).toBeDefined()
    await rig.clock.advance(MINUTE_MS)
    expect(await rig.launch({ prompt: "E" })).toBeDefined()
  })

  test("missing money is told without advice to take another model where calls may name none", async () => {
    const rig = new Rig({ options: { ...settings, allowModelOverride: false } })
    broke(rig)
    const { id } = await rig.launch({ prompt: "A" })
    await rig.ended(id)
    await expect(rig.launch({ prompt: "B" })).rejects.toThrow(/This does not pass by waiting\. Tell the user\.$/)
    expect(rig.notices()[0]?.hidden).not.toContain("another `model`")
  })
})

/** A rig in which tries have places, beside a task of scripted/alpha, the model of the caller. */
const withTries = async (reply: Reply) => {
  const machine = new FakeMachine()
  const rig = new Rig({ options: settings, worktrees: async () => machine as never as Place })
  rig.opencode.modelList = ["alpha", "beta", "gamma"].map((name) => `scripted/${name}`)
  rig.onPrompt("ALPHA", reply)
  const { id } = await rig.launch({ prompt: "ALPHA" })
  const launch = (...tries: string[]) =>
    rig.launch({ prompt: "TRY", check: "true", tries: tries.map((name) => `scripted/${name}`) })
  return { rig, id, launch, machine }
}

describe("missing money for tries with models of their own", () => {
  const money = { status: 402, body: { error: { message: "Insufficient credits." } } }
  const scene = async () => {
    const found = await withTries(money)
    const { rig, id } = found
    await rig.ended(id)
    const pauper = async (name: string) => {
      rig.onPrompt(name, money)
      await rig.ended((await rig.launch({ prompt: name, model: `scripted/${name}` })).id)
    }
    return { ...found, pauper }
  }

  test("missing money refuses no tries of which one has a model with money, whichever is the caller's", async () => {
    const { rig, launch } = await scene()
    for (const models of [
      ["beta", "gamma"],
      ["alpha", "beta"],
    ])
      expect(await rig.ended((await launch(...models)).id)).toMatchObject({ status: "completed" })
  })

  test("missing money for all models of tries refuses their launch and their resume", async () => {
    const { rig, launch, pauper } = await scene()
    rig.onPrompt("TRY", { hang: true })
    const { id } = await launch("beta", "alpha")
    await rig.clock.advance(1000)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    await rig.ended(id)
    await pauper("beta")
    const refused =
      /^Nothing was launched: scripted\/beta refused .*: Insufficient credits; scripted\/alpha refused .*: Insufficient credits\. This does not pass by waiting\. /
    await expect(rig.manager.resume(id, { prompt: "" }, rig.caller)).rejects.toThrow(refused)
    await expect(launch("beta", "alpha")).rejects.toThrow(refused)
  })

  test("missing money for the model of the only try that is left, or of the one that won, refuses the resume", async () => {
    const { rig, launch, pauper, machine } = await scene()
    rig.onPrompt("TRY", { text: "done" })
    const won = await rig.ended((await launch("beta", "gamma")).id)
    machine.passes = () => false
    const { id } = await launch("gamma", "beta")
    const tries = () => rig.manager.list(rig.task(id).sessionID)
    await rig.clock.until(() => tries()[0]?.task.status === "error")
    rig.onPrompt("TRY", { hang: true })
    await rig.clock.until(() => tries().length === 2)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    await rig.ended(id)
    await pauper("beta")
    for (const each of [won.id, id])
      await expect(rig.manager.resume(each, { prompt: "MORE" }, rig.caller)).rejects.toThrow(
        /^Nothing was launched: scripted\/beta refused [^;]*$/,
      )
  })
})

describe("texts about a parked task", () => {
  const closed = async () => {
    const provider = new Provider({ shutMs: 30 * MINUTE_MS })
    const [task] = await provider.launchAll(2)
    await provider.rig.clock.until(() => isParkedNow(provider.rig, task.id))
    return {
      rig: provider.rig,
      id: task.id,
      tool: (name: string) => toolsFor(provider.rig.manager, provider.rig.options)[name] as Tool,
    }
  }

  test("a launch says that the task is parked and begins by itself, and the list says when", async () => {
    const { rig, tool } = await closed()
    const launched = await tool("superagents_task").execute(
      { prompt: "FIND", description: "d", agent: "general" },
      rig.caller,
    )
    expect(launched.output).toMatch(
      /scripted\/alpha is at its limit until \d\d:\d\d \(in \S+( \S+)?\): the task is parked and begins by itself then\./,
    )
    expect(launched.output).not.toContain("free slot")
    const { output } = await tool("superagents_list").execute({}, rig.caller)
    expect(output.split("\n").at(-1)).toMatch(/ \| 3 parked until \d\d:\d\d \(scripted\/alpha\)$/)
  })

  test.each<[string, object, string?]>([
    ["items", { each: ["a", "b"] }, "items"],
    ["tries whose first model is at its limit", { tries: ["scripted/alpha", "scripted/beta"] }, "tries"],
    ["tries whose first model is another one", { tries: ["scripted/beta", "scripted/alpha"] }],
  ])("a launch and a resume of %s say whether they wait for a limit", async (_what, group, who) => {
    const { rig } = await withTries(limited(" Try again in 1800s"))
    rig.onPrompt("TRY", { hang: true })
    await rig.clock.until(() => rig.manager.list(rig.parent).every(({ task }) => isPaused(task)))
    const tool = toolsFor(rig.manager, rig.options).superagents_task as Tool
    const says = who
      ? expect.stringMatching(
          `scripted/alpha is at its limit until \\d\\d:\\d\\d \\(in \\S+( \\S+)?\\): its ${who} wait and begin by themselves then\\.`,
        )
      : expect.not.stringContaining("limit until")
    const given = {
      prompt: "TRY {{item}}",
      description: "d",
      agent: "general",
      ...("tries" in group && { check: "true" }),
    }
    const launched = await tool.execute({ ...given, ...group }, rig.caller)
    expect(launched.output).toEqual(says)
    await rig.clock.advance(1000)
    const id = rig.manager.list(rig.parent).at(-1)?.task.id ?? ""
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    expect((await tool.execute({ resume: id }, rig.caller)).output).toEqual(says)
    await rig.manager.cancel({ type: "all" }, rig.caller)
  })

  test("all texts name the next try by the newest known time if there is no reset time", async () => {
    const provider = new Provider({ shutMs: 30 * MINUTE_MS, tells: false })
    const { rig } = provider
    const [first, second] = await provider.launchAll(2)
    await rig.clock.until(() => rig.manager.list(rig.parent).every(({ phase }) => phase?.startsWith("parked")))
    const tool = (name: string) => toolsFor(rig.manager, rig.options)[name] as Tool
    // Both were parked by one refusal; the probes that follow are the first's and the second's by turns.
    await rig.clock.advance(6 * MINUTE_MS)
    const phases = [first, second].map((task) => rig.view(task?.id ?? "").phase)
    expect(phases).toEqual([expect.stringMatching(/^parked, next try \d\d:\d\d$/), phases[0]])
    const { output } = await tool("superagents_output").execute({ task_id: first.id }, rig.caller)
    expect(output).toMatch(
      /\nParked, next try \d\d:\d\d \(in \S+( \S+)?\): scripted\/alpha says "Rate limit reached\."\. It goes on by itself; /,
    )
    const list = await tool("superagents_list").execute({}, rig.caller)
    expect(list.output.split("\n").at(-1)).toMatch(/ \| 2 parked, next try \d\d:\d\d \(scripted\/alpha\)$/)
    const launched = await tool("superagents_task").execute(
      { prompt: "FIND", description: "d", agent: "general" },
      rig.caller,
    )
    expect(launched.output).toMatch(
      /scripted\/alpha is at its limit, next try \d\d:\d\d \(in \S+( \S+)?\): the task is parked and begins by itself when it answers\./,
    )
    expect(rig.opencode.toasts.find(({ title }) => title.includes("limit"))?.title).toMatch(
      /^scripted\/alpha is at its limit, next try \d\d:\d\d$/,
    )
    answerAll(rig, { text: "done" })
    await rig.clock.advance(10 * MINUTE_MS)
    const notice = rig.notices().find(({ visible }) => visible.includes("finished"))
    expect(notice?.hidden).toMatch(/\nParked \d+ times, \S+( \S+)? in all \(scripted\/alpha\)\.\n/)
  })

  test("a waiting call returns at once if the task stays parked longer than the call would wait", async () => {
    const { rig, id } = await closed()
    const before = rig.clock.now()
    const { view } = await rig.output(id, rig.caller, 60_000)
    expect([view.phase, rig.clock.now()]).toEqual([expect.stringMatching(/^parked until/), before])
  })

  test("an attempt to unpark a task that is not parked reports what the task does", async () => {
    const rig = new Rig({ options: settings })
    answerAll(rig, { hang: true })
    const { id } = await rig.launch()
    await flush()
    await expect(rig.manager.unpark(id, rig.parent)).rejects.toThrow(`${id} is not parked: it is working.`)
  })
})

test.each<[number, string, string?]>([
  [402, "Payment required"],
  [429, "You exceeded your current quota: insufficient_quota"],
  [400, "Rate limit reached.", "insufficient_quota"],
  [401, "Invalid API key"],
  [400, "Bad request"],
  [400, "This model's maximum context length is 8192 tokens"],
])(
  "a refusal that does not pass by waiting parks no task and is not repeated: %i %s",
  async (status, message, code) => {
    const rig = new Rig({ options: settings })
    let requests = 0
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      requests++
      return { status, body: { error: { message, code } } }
    })
    const { id } = await rig.launch()
    expect(await rig.ended(id)).toMatchObject({ status: "error", outcome: { reason: { code: "provider" } } })
    if (/quota|Payment/.test(`${message}${code}`))
      expect(rig.task(id).outcome?.reason?.text).toMatch(/This does not pass by waiting\.$/)
    expect(rig.task(id).run).not.toHaveProperty("parkedTimes")
    expect(requests).toBe(1)
  },
)

test("the option gate adds no call, timer or write as long as no request is refused", async () => {
  const counted = async (gate: boolean) => {
    const rig = new Rig({ options: { ...settings, gate } })
    const calls: Record<string, number> = {}
    rig.opencode.onCall = (method) => {
      calls[method] = (calls[method] ?? 0) + 1
      return undefined
    }
    rig.onPrompt("FIND", { text: "done" })
    const tasks = await Promise.all([rig.launch(), rig.launch(), rig.launch()])
    for (const { id } of tasks) await rig.ended(id)
    await rig.clock.advance(MINUTE_MS)
    return { calls, timers: rig.timers.pending, toasts: rig.opencode.toasts.length }
  }
  expect(await counted(true)).toEqual(await counted(false))
})
