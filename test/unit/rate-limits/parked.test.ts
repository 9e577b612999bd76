import { describe, expect, test } from "vitest"
import { ManagerRuns } from "../../../src/features/board/runs.ts"
import { Unattended } from "../../../src/features/board/unattended.ts"
import { MINUTE_MS } from "../../../src/lib/format.ts"
import type { EnterRequest, Place } from "../../../src/runtime/places/place.ts"
import { toolsFor } from "../../../src/tools/index.ts"
import type { Tool } from "../../../src/tools/tool.ts"
import { flush } from "../../support/fake-clock.ts"
import { FakeMachine } from "../../support/fake-machine.ts"
import type { Reply } from "../../support/model.ts"
import { Rig, type RigOptions } from "../../support/rig.ts"

/** A provider that refuses for a time, once it has answered so many requests, and says when it opens if `tells`. */
class Provider {
  readonly rig: Rig
  requests = 0
  refused: number[] = []
  left: number
  #closedUntil = 0
  /** For how long it refuses the request that comes now; 0 or less where it answers. */
  get shutFor(): number {
    const now = this.rig.clock.now()
    return now < this.#closedUntil ? this.#closedUntil - now : this.left > 0 ? 0 : this.#shutMs
  }
  readonly #shutMs: number
  constructor(
    { bucket, shutMs, tells = true }: { bucket: number; shutMs: number; tells?: boolean },
    options: RigOptions["options"] = {},
    places: Pick<RigOptions, "worktrees" | "kind"> = {},
  ) {
    this.rig = new Rig({ options, ...places })
    this.left = bucket
    this.#shutMs = shutMs
    this.rig.script(({ sessionID, toolResults }) => {
      if (sessionID === this.rig.parent) return undefined
      this.requests++
      const now = this.rig.clock.now()
      if (now < this.#closedUntil || this.left-- <= 0) {
        if (now >= this.#closedUntil) this.#closedUntil = now + shutMs
        this.left = bucket
        this.refused.push(now)
        const wait = Math.ceil((this.#closedUntil - now) / 1000)
        return {
          status: 429,
          body: { error: { message: `Rate limit reached.${tells ? ` Try again in ${wait}s` : ""}` } },
        }
      }
      return toolResults.length < 2 ? { tools: [{ name: "read", args: {} }] } : { text: "done" }
    })
  }
  launchAll(count: number) {
    return Promise.all(
      Array.from({ length: count }, (_, at) => this.rig.launch({ prompt: `FIND ${at}`, batch: "night" })),
    )
  }
}

const isParkedNow = (rig: Rig, id: string, parent?: string) => rig.view(id, parent).phase?.startsWith("parked") === true

const settings = { maxConcurrentTasks: 10, maxLaunchesPerMinute: 0 }

/** A provider at its limit for 8 s, whose first task is parked, while a task of another model is at work. */
const atItsLimit = async () => {
  const provider = new Provider({ bucket: 0, shutMs: 8000 }, settings)
  const { rig } = provider
  rig.onPrompt("ELSEWHERE", { hang: true })
  const elsewhere = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
  const [first] = await provider.launchAll(1)
  await rig.clock.until(() => rig.view(first?.id ?? "").phase?.startsWith("parked") === true)
  return { provider, rig, elsewhere, first }
}

describe("tasks at a provider's limit", () => {
  test("forty tasks at a provider's limit all complete and notify once, with hardly any refused request", async () => {
    const provider = new Provider({ bucket: 26, shutMs: 8000 }, settings)
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
    if (!task) throw new Error("not launched")
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
    const provider = new Provider({ bucket: 0, shutMs: MINUTE_MS, tells: false }, settings)
    const [task] = await provider.launchAll(1)
    await provider.rig.clock.advance(MINUTE_MS - 1000)
    const waits = provider.refused.slice(1).map((at, index) => Math.round((at - (provider.refused[index] ?? 0)) / 1000))
    expect(waits).toEqual([5, 10, 20])
    provider.left = 100
    expect((await provider.rig.ended(task?.id ?? "")).status).toBe("completed")
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
    const provider = new Provider({ bucket: 0, shutMs: MINUTE_MS }, settings)
    const { rig } = provider
    const released: (() => void)[] = []
    const held = () => ({ held: new Promise<void>((resolve) => released.push(resolve)) })
    const [task] = await provider.launchAll(1)
    const sent = () => rig.opencode.calls.filter((call) => call === "abort").length
    rig.opencode.onCall = (method) => (method === "activity" || method === "abort" ? held() : undefined)
    const look = rig.manager.tick()
    await rig.clock.until(() => rig.view(task?.id ?? "").phase?.startsWith("parked") === true)
    expect(sent()).toBe(1)
    // OpenCode answers the look with a session that is about to be stopped.
    released[0]?.()
    await look
    expect(sent()).toBe(1)
    rig.opencode.onCall = () => undefined
    for (const release of released) release()
    provider.left = 100
    expect((await rig.ended(task?.id ?? "")).status).toBe("completed")
  })

  test("a refusal whose body says that money is missing is no limit, whatever its message", async () => {
    const rig = new Rig({ options: settings })
    let requests = 0
    const said = { status: 400, body: { error: { message: "Rate limit reached.", code: "insufficient_quota" } } }
    rig.script(({ sessionID }) => (sessionID !== rig.parent && requests++ === 0 ? said : undefined))
    const task = await rig.launch()
    const ended = await rig.ended(task.id)
    expect(ended).toMatchObject({
      status: "error",
      outcome: { reason: { code: "provider", text: expect.stringMatching(/This does not pass by waiting\.$/) } },
    })
    expect(requests).toBe(1)
  })

  test("a provider's limit is reported by one toast and one message that does not wake the parent", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 30 * MINUTE_MS }, settings)
    const { rig } = provider
    await provider.launchAll(5)
    await rig.clock.advance(5000)
    const told = rig.notices().filter(({ visible }) => visible.startsWith("⏸"))
    expect(told).toHaveLength(1)
    expect(told[0]?.visible).toMatch(
      /^⏸ \*\*scripted\/alpha is at its limit until \d\d:\d\d\.\*\* 5 tasks are parked\.$/,
    )
    expect(told[0]?.hidden).toContain("do not wait, poll or launch them again")
    expect(rig.opencode.toasts.filter(({ title }) => title.includes("at its limit"))).toHaveLength(1)
    expect(rig.answers()).toHaveLength(0)
  })

  test("the report of a limit does not count a task that waits for another, and names a single parked task", async () => {
    const { rig } = new Provider({ bucket: 0, shutMs: 30 * MINUTE_MS }, settings)
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
    const provider = new Provider({ bucket: 0, shutMs: 30 * MINUTE_MS }, settings)
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
    const provider = new Provider({ bucket: 1, shutMs: 40_000 }, settings)
    const { rig } = provider
    const toasts = () => rig.opencode.toasts.filter(({ title }) => title.includes("at its limit")).length
    const [task] = await provider.launchAll(1)
    // Closed after each answer.
    await rig.ended(task?.id ?? "")
    expect([provider.refused.length, toasts()]).toEqual([2, 1])
    const long = new Provider({ bucket: 0, shutMs: 30 * MINUTE_MS, tells: false }, settings)
    await long.launchAll(1)
    await long.rig.clock.advance(20 * MINUTE_MS)
    expect(long.refused.length).toBeGreaterThan(5)
    expect(long.rig.opencode.toasts.filter(({ title }) => title.includes("at its limit"))).toHaveLength(1)
  })

  test("a provider's limit is reported again if a probe finds a reset time ten minutes later", async () => {
    const rig = new Rig({ options: settings })
    let wait = "40s"
    rig.script(({ sessionID }) =>
      sessionID === rig.parent
        ? undefined
        : { status: 429, body: { error: { message: `Rate limit reached. Try again in ${wait}` } } },
    )
    await rig.launch()
    await rig.clock.advance(5000)
    wait = "2h"
    await rig.clock.advance(MINUTE_MS)
    expect(rig.opencode.toasts.filter(({ title }) => title.includes("at its limit until"))).toHaveLength(2)
  })

  test("a provider's limit of hours is reported even if the first refusal was only for a moment", async () => {
    const rig = new Rig({ options: settings })
    let wait = "2s"
    rig.script(({ sessionID }) =>
      sessionID === rig.parent
        ? undefined
        : { status: 429, body: { error: { message: `Rate limit reached. Try again in ${wait}` } } },
    )
    await rig.launch()
    await rig.clock.advance(1000)
    wait = "5h"
    await rig.clock.advance(MINUTE_MS)
    const limits = () => rig.opencode.toasts.filter(({ title }) => title.includes("at its limit until"))
    expect(limits()).toHaveLength(1)
    expect(rig.notices().filter(({ visible }) => visible.startsWith("⏸"))).toHaveLength(1)
  })

  test("parked tasks continue after days of sleep if the limit is over, even past their maximum parked time", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 5 * 60 * MINUTE_MS }, settings)
    const { rig } = provider
    const tasks = await provider.launchAll(3)
    await rig.clock.until(() => tasks.every(({ id }) => isParkedNow(rig, id)))
    provider.left = 100
    await rig.clock.sleep(60 * 60 * MINUTE_MS)
    for (const { id } of tasks) expect((await rig.ended(id)).status).toBe("completed")
  })

  test("parked tasks end after days of sleep if one more probe finds that the limit remains", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 5 * 60 * MINUTE_MS, tells: false }, settings)
    const { rig } = provider
    const tasks = await provider.launchAll(3)
    await rig.clock.until(() => tasks.every(({ id }) => isParkedNow(rig, id)))
    const before = provider.requests
    await rig.clock.sleep(60 * 60 * MINUTE_MS)
    for (const { id } of tasks)
      expect(await rig.ended(id)).toMatchObject({ status: "error", outcome: { reason: { code: "limit" } } })
    expect(provider.requests - before).toBe(1)
  })

  test("a message for a parked task is stored, and read when the task continues", async () => {
    const provider = new Provider({ bucket: 1, shutMs: MINUTE_MS }, settings)
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    if (!task) throw new Error("not launched")
    await rig.clock.until(() => rig.view(task.id).phase?.startsWith("parked") === true)
    await rig.manager.tell(task.id, "Look at the tests, too.", rig.caller)
    const before = provider.requests
    await rig.clock.advance(10_000)
    expect(provider.requests).toBe(before)
    provider.left = 100
    expect((await rig.ended(task.id)).status).toBe("completed")
  })

  test("a user's message in a parked task's session waits for the limit and is answered afterwards", async () => {
    const provider = new Provider({ bucket: 0, shutMs: MINUTE_MS }, settings)
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    if (!task) throw new Error("not launched")
    await rig.clock.until(() => rig.view(task.id).phase?.startsWith("parked") === true)
    rig.opencode.say(task.sessionID, "Look at the tests, too.", { agent: "general" })
    await rig.clock.advance(1000)
    expect(rig.opencode.isWorking(task.sessionID)).toBe(false)
    provider.left = 100
    expect((await rig.ended(task.id)).status).toBe("completed")
    expect(rig.opencode.isWorking(task.sessionID)).toBe(false)
  })

  test("a parked task gains no working time while the computer sleeps", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 30_000 }, { ...settings, taskTimeout: 20_000, lastWord: 0 })
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    if (!task) throw new Error("not launched")
    await rig.clock.until(() => rig.view(task.id).phase?.startsWith("parked") === true)
    await rig.clock.sleep(60 * MINUTE_MS)
    rig.script(({ sessionID }) => (sessionID === task.sessionID ? { hang: true, text: "so far" } : undefined))
    await rig.clock.advance(MINUTE_MS)
    expect(rig.task(task.id)).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
  })

  test("a parked task is probed only after the call that stops it has returned", async () => {
    const provider = new Provider({ bucket: 0, shutMs: MINUTE_MS }, settings)
    const { rig } = provider
    let isSlow = true
    rig.opencode.onCall = (method) => (isSlow && method === "abort" ? { slow: 3000 } : undefined)
    const [task] = await provider.launchAll(1)
    if (!task) throw new Error("not launched")
    await rig.clock.until(() => rig.view(task.id).phase?.startsWith("parked") === true)
    isSlow = false
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { text: "done" }))
    await rig.manager.unpark(task.id, rig.parent)
    expect((await rig.ended(task.id)).status).toBe("completed")
  })

  test("a parked task with a free slot probes the provider if the first one has no slot", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 8000 }, { ...settings, maxConcurrentTasks: 1 })
    const { rig } = provider
    const [first] = await provider.launchAll(1)
    const parent = rig.openParent()
    const second = await rig.launch({ prompt: "THERE" }, parent)
    await rig.clock.until(() => rig.view(second.id, parent).phase?.startsWith("parked") === true)
    rig.onPrompt("ELSEWHERE", { hang: true })
    const other = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
    provider.left = 100
    await rig.clock.advance(MINUTE_MS)
    expect(rig.task(second.id, parent).status).toBe("completed")
    await rig.manager.cancel({ type: "task", reference: other.id }, rig.caller)
    expect((await rig.ended(first?.id ?? "")).status).toBe("completed")
  })

  test("a provider's limit opens with one probe, then two and four, each after an answer before", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 8000 }, { ...settings, maxConcurrentTasks: 12 })
    const { rig } = provider
    await provider.launchAll(10)
    await rig.clock.until(() => rig.manager.list(rig.parent).every(({ phase }) => phase?.startsWith("parked")))
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
    const provider = new Provider({ bucket: 0, shutMs: 8000 }, { ...settings, maxConcurrentTasks: 3 })
    const { rig } = provider
    await provider.launchAll(3)
    await rig.clock.until(() => rig.manager.list(rig.parent).every(({ phase }) => phase?.startsWith("parked")))
    const maps = []
    for (const name of ["MAP", "FIELD", "PLAN"])
      maps.push(await rig.launch({ prompt: `${name} {{item}}`, each: ["a", "b", "c", "d"] }))
    provider.left = 1000
    // Their ledgers are real files: the clock goes on beside them.
    for (const { id } of maps) expect(await rig.endedBeside(id, 1000)).toMatchObject({ status: "completed" })
  })

  test("a parked task can be cancelled, and no request follows", async () => {
    const provider = new Provider({ bucket: 0, shutMs: MINUTE_MS }, settings)
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    if (!task) throw new Error("not launched")
    await rig.clock.until(() => rig.view(task.id).phase?.startsWith("parked") === true)
    await rig.manager.cancel({ type: "all" }, rig.caller)
    const before = provider.requests
    await rig.clock.advance(10 * MINUTE_MS)
    expect(rig.task(task.id).status).toBe("cancelled")
    expect(provider.requests).toBe(before)
  })

  test("a parked task is probed at once if the caller asks for that", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 30 * MINUTE_MS }, settings)
    const { rig } = provider
    const [task] = await provider.launchAll(3)
    if (!task) throw new Error("not launched")
    await rig.clock.until(() => rig.manager.list(rig.parent).every(({ phase }) => phase?.startsWith("parked")))
    const before = provider.requests
    await expect(rig.manager.unpark(task.id, rig.parent)).resolves.toMatchObject({ model: "scripted/alpha", others: 2 })
    await rig.clock.advance(1000)
    expect(provider.requests).toBe(before + 1)
    expect(rig.view(task.id).phase).toMatch(/^parked/)
  })

  test("a task ends at once if its provider's limit lasts longer than it may be parked", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 30 * MINUTE_MS }, { ...settings, maxParked: 5 * MINUTE_MS })
    const [task] = await provider.launchAll(1)
    const ended = await provider.rig.ended(task?.id ?? "")
    expect(ended).toMatchObject({
      status: "error",
      outcome: { reason: { code: "limit", text: expect.stringContaining("maxParked") } },
    })
  })

  test("a task ends when it was parked too long in total", async () => {
    const provider = new Provider(
      { bucket: 0, shutMs: 60 * MINUTE_MS, tells: false },
      { ...settings, maxParked: 10 * MINUTE_MS },
    )
    const [task] = await provider.launchAll(1)
    const ended = await provider.rig.ended(task?.id ?? "")
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
    await rig.manager.cancel({ type: "task", reference: first?.id ?? "" }, rig.caller)
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
    expect(rig.task(next?.id ?? "").status).toBe("completed")
  })

  test("a task that waits for another task is not chosen to probe the provider's limit", async () => {
    const { provider, rig, elsewhere, first } = await atItsLimit()
    await rig.launch({ prompt: "AFTER", after: [elsewhere.id] })
    const next = await rig.launch({ prompt: "NEXT" })
    await rig.manager.cancel({ type: "task", reference: first?.id ?? "" }, rig.caller)
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
    const provider = new Provider({ bucket: 0, shutMs: 4000 }, { ...settings, maxConcurrentTasks: 1 })
    const { rig } = provider
    rig.onPrompt("ELSEWHERE", { hang: true })
    const [first] = await provider.launchAll(1)
    await rig.clock.until(() => rig.view(first?.id ?? "").phase?.startsWith("parked") === true)
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
    const provider = new Provider({ bucket: 0, shutMs: 30 * MINUTE_MS }, { ...settings, gate: false })
    const [task] = await provider.launchAll(1)
    expect(await provider.rig.ended(task?.id ?? "")).toMatchObject({
      status: "error",
      outcome: { reason: { code: "provider" } },
    })
  })
})

describe("an overloaded model", () => {
  /** Refuses so many of the first requests with a 529 or the like, and answers the others. */
  const failing = (times: number, status = 529, message = "Overloaded") => {
    const rig = new Rig({ options: { ...settings, maxConcurrentTasks: 12 } })
    let left = times
    const asked: { sessionID: string; at: number }[] = []
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      asked.push({ sessionID, at: rig.clock.now() })
      return left-- > 0 ? { status, body: { error: { message } } } : { text: "done", delay: 30_000 }
    })
    return { rig, asked }
  }
  const parkedOf = (rig: Rig) => rig.manager.list(rig.parent).filter(({ task }) => task.run.parkedTimes).length

  test("a single overload is left to OpenCode's own retry, without parking or reporting a task", async () => {
    const { rig } = failing(1)
    const tasks = await Promise.all(Array.from({ length: 12 }, (_, at) => rig.launch({ prompt: `FIND ${at}` })))
    for (const { id } of tasks) expect((await rig.ended(id)).status).toBe("completed")
    expect(parkedOf(rig)).toBe(0)
    expect(rig.opencode.toasts.filter(({ title }) => title.includes("scripted/alpha"))).toEqual([])
  })

  test("a model that is overloaded twice within ten seconds is left alone for five, then probed once", async () => {
    const { rig, asked } = failing(2)
    const tasks = await Promise.all(Array.from({ length: 4 }, (_, at) => rig.launch({ prompt: `FIND ${at}` })))
    await rig.clock.advance(1000)
    expect(parkedOf(rig)).toBeGreaterThan(0)
    const late = await rig.launch({ prompt: "LATE" })
    const before = asked.length
    await rig.clock.advance(3000)
    expect(asked).toHaveLength(before)
    for (const { id } of [...tasks, late]) expect((await rig.ended(id)).status).toBe("completed")
  })

  test("a model whose answers begin and break off is asked more and more rarely, even if only one task asks it", async () => {
    const rig = new Rig({ options: settings })
    const asked: number[] = []
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      asked.push(rig.clock.now())
      const breaksOff = { status: 529, body: { error: { message: "Overloaded" } } }
      rig.clock.after(500, () => rig.opencode.conclude(sessionID, breaksOff))
      return { hang: true, text: "half of an ans" }
    })
    const { id } = await rig.launch()
    await rig.clock.until(() => asked.length === 5, 5 * MINUTE_MS)
    const waits = asked.slice(1).map((at, nth) => Math.floor((at - (asked[nth] ?? 0)) / 5000))
    expect(waits).toEqual([1, 2, 4, 8])
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  })

  test("a model that is overloaded twice in half a minute is still asked", async () => {
    const { rig } = failing(1)
    const first = await rig.launch()
    await rig.clock.advance(20_000)
    rig.script(({ sessionID, lastUser }) =>
      lastUser.includes("AGAIN") && sessionID !== rig.parent
        ? { status: 529, body: { error: { message: "Overloaded" } } }
        : undefined,
    )
    const second = await rig.launch({ prompt: "AGAIN" })
    await rig.clock.advance(1000)
    expect(parkedOf(rig)).toBe(0)
    await rig.manager.cancel({ type: "task", reference: second.id }, rig.caller)
    expect((await rig.ended(first.id)).status).toBe("completed")
  })

  test("an overload of more than half a minute is reported as overload, and not as a limit", async () => {
    const { rig } = failing(1000)
    const { id } = await rig.launch()
    await rig.clock.advance(10_000)
    expect(rig.view(id).phase).toMatch(/^parked/)
    expect(rig.notices().filter(({ visible }) => visible.startsWith("⏸"))).toEqual([])
    await rig.clock.advance(2 * MINUTE_MS)
    const told = rig.notices().filter(({ visible }) => visible.startsWith("⏸"))
    expect(told.map(({ visible }) => visible)).toEqual([
      expect.stringMatching(/^⏸ \*\*scripted\/alpha is overloaded, next try \d\d:\d\d\.\*\* 1 task is parked\.$/),
    ])
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  })

  test("the note about parked items of a map offers no call that takes only whole tasks", async () => {
    const { rig } = failing(1000)
    const { id } = await rig.launch({ prompt: "MAP {{item}}", each: ["a"] })
    await rig.clock.until(() => rig.notices().some(({ visible }) => visible.startsWith("⏸")))
    expect(rig.notices()[0]?.hidden).toMatch(/It goes on by itself: nothing to do; do not launch it again\.$/)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  })

  test("a model that cannot be reached is reported with those words", async () => {
    const { rig } = failing(0)
    await rig.ended((await rig.launch()).id)
    const tool = toolsFor(rig.manager, rig.options).superagents_task as Tool
    rig.script(({ sessionID }) =>
      sessionID === rig.parent ? undefined : { status: 500, body: { error: { message: "Unable to connect" } } },
    )
    const { id } = await rig.launch({ prompt: "FIND again" })
    await rig.clock.advance(3000)
    const { output } = await tool.execute({ prompt: "LATER", description: "d", agent: "general" }, rig.caller)
    expect(output).toMatch(/scripted\/alpha cannot be reached, next try \d\d:\d\d/)
    await rig.clock.advance(2 * MINUTE_MS)
    expect(rig.opencode.toasts.map(({ title }) => title)).toContainEqual(
      expect.stringMatching(/^scripted\/alpha cannot be reached, next try/),
    )
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  })
})

describe("a tripped breaker", () => {
  const refusing = (options: object = {}, worktrees?: RigOptions["worktrees"]) => {
    const provider = new Provider({ bucket: 0, shutMs: 8000 }, { ...settings, ...options }, { worktrees })
    return { provider, rig: provider.rig }
  }

  test("a breaker resets with the first part of an answer, without waiting for its end", async () => {
    const { provider, rig } = refusing()
    const tasks = await provider.launchAll(8)
    await rig.clock.until(() => tasks.every(({ id }) => isParkedNow(rig, id)))
    const began = rig.clock.now()
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { hang: true, text: "so far" }))
    await rig.clock.until(() => tasks.every(({ id }) => rig.view(id).phase === "working"), MINUTE_MS)
    expect(rig.clock.now() - began).toBeLessThan(10_000)
  })

  test("a breaker does not wait for a probe that asks for a permission", async () => {
    const { provider, rig } = refusing()
    const tasks = await provider.launchAll(3)
    await rig.clock.until(() => tasks.every(({ id }) => isParkedNow(rig, id)))
    provider.left = 1000
    rig.opencode.asking.add("bash")
    rig.script(({ sessionID, lastUser }) =>
      sessionID === rig.parent || !lastUser.includes("FIND 0")
        ? undefined
        : { tools: [{ name: "bash", args: { command: "true" } }] },
    )
    const [, second, third] = tasks
    await rig.clock.advance(20_000)
    expect([second, third].map((task) => rig.task(task?.id ?? "").status)).toEqual(["completed", "completed"])
    expect(rig.view(tasks[0]?.id ?? "").phase).toBe("waiting for permission")
    await rig.manager.cancel({ type: "all" }, rig.caller)
  })

  test("a breaker sends another probe if its probe is silent for half a minute", async () => {
    const { provider, rig } = refusing()
    const [first, second] = await provider.launchAll(2)
    await rig.clock.until(() => isParkedNow(rig, first?.id ?? "") && isParkedNow(rig, second?.id ?? ""))
    provider.left = 1000
    rig.script(({ sessionID, lastUser }) =>
      sessionID === rig.parent || !lastUser.includes("FIND 0") ? undefined : { text: "late", delay: 10 * MINUTE_MS },
    )
    await rig.clock.advance(20_000)
    expect(rig.view(second?.id ?? "").phase).toMatch(/^parked/)
    await rig.clock.advance(25_000)
    expect(rig.task(second?.id ?? "").status).toBe("completed")
    await rig.manager.cancel({ type: "all" }, rig.caller)
  })

  test("a breaker does not wait for a task whose place is still being prepared, and probes with another", async () => {
    const ready: (() => void)[] = []
    const place = {
      capture: async () => {},
      enter: async () => {
        await new Promise<void>((resolve) => ready.push(resolve))
        return { directory: "/place", preface: "Work in /place." }
      },
      archive: async () => ({ files: [], added: 0, removed: 0, submodules: [], unsaved: [] }),
    }
    const { provider, rig } = refusing({}, async () => place as never)
    const [first] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, first?.id ?? ""))
    const slow = await rig.launch({ prompt: "SLOW", place: "worktree" })
    const next = await rig.launch({ prompt: "NEXT" })
    await rig.manager.cancel({ type: "task", reference: first?.id ?? "" }, rig.caller)
    provider.left = 1000
    await rig.clock.advance(20_000)
    expect(ready).toHaveLength(1)
    expect(rig.task(next.id).status).toBe("completed")
    for (const make of ready) make()
    expect((await rig.ended(slow.id)).status).toBe("completed")
  })

  test("a late refusal of a request from before the breaker tripped changes neither its probe nor its wait", async () => {
    const rig = new Rig({ options: settings })
    const limited = { status: 429, body: { error: { message: "Rate limit reached." } } }
    const replies: Record<string, Reply[]> = {
      LATE: [{ ...limited, delay: 8000 }],
      FIRST: [limited, { text: "done", delay: 10_000 }],
    }
    rig.script(({ sessionID, lastUser }) => (sessionID === rig.parent ? undefined : replies[lastUser]?.shift()))
    const began = rig.clock.now()
    const late = await rig.launch({ prompt: "LATE" })
    await rig.launch({ prompt: "FIRST" })
    await rig.clock.advance(1000)
    const next = await rig.launch({ prompt: "NEXT" })
    await rig.clock.advance(9000)
    expect([rig.task(late.id).run.parkedTimes, rig.task(next.id).run.startedAt]).toEqual([1, undefined])
    await rig.ended(next.id)
    // The probe was sent after 5 s, and answered 10 s later.
    expect(Math.floor(((rig.task(next.id).run.startedAt ?? 0) - began) / 1000)).toBe(15)
  })

  test("a breaker that no task waits for is forgotten, so a launch hours later begins at once", async () => {
    const { provider, rig } = refusing()
    const [task] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, task?.id ?? ""))
    await rig.manager.cancel({ type: "task", reference: task?.id ?? "" }, rig.caller)
    await rig.clock.advance(8 * 60 * MINUTE_MS)
    provider.left = 1000
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { text: "done", delay: 20_000 }))
    const six = await provider.launchAll(6)
    await rig.clock.advance(1000)
    expect(six.map(({ id }) => rig.view(id).phase)).toEqual(six.map(() => "working"))
    for (const { id } of six) expect((await rig.ended(id)).status).toBe("completed")
  })

  test("a task that waits for a breaker and has not begun shows which model it waits for", async () => {
    const { provider, rig } = refusing()
    await provider.launchAll(1)
    await rig.clock.advance(4000)
    const next = await rig.launch({ prompt: "NEXT" })
    expect(rig.view(next.id).phase).toMatch(/^waiting for scripted\/alpha, which is at its limit \(until \d\d:\d\d\)$/)
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { text: "done", delay: 10_000 }))
    await rig.clock.until(() => rig.view(next.id).phase === "waiting for scripted/alpha (another task tests it first)")
    const list = await (toolsFor(rig.manager, rig.options).superagents_list as Tool).execute({}, rig.caller)
    expect(list.output).toContain("running, waiting for scripted/alpha (another task tests it first)")
    provider.left = 1000
    expect((await rig.ended(next.id)).status).toBe("completed")
  })

  test("a refused compaction trips the breaker of the compacting model only, and the task continues", async () => {
    const rig = new Rig({ options: settings })
    let isShut = true
    rig.opencode.contextTokens = 1000
    rig.opencode.compaction = {
      model: { provider: "scripted", id: "beta" },
      reply: () => (isShut ? { status: 429, body: { error: { message: "Rate limit. Try again in 60s" } } } : undefined),
    }
    rig.onPrompt("BIG", { tools: [{ name: "read", args: {} }], usage: { input: 5000 } })
    rig.onPrompt("Continue", { text: "went on", usage: { input: 10 } })
    const { id } = await rig.launch({ prompt: "BIG" })
    await rig.clock.advance(2000)
    expect(rig.task(id).run.parked).toMatchObject({ model: "scripted/beta" })
    rig.onPrompt("OTHER", { text: "done", usage: { input: 10 } })
    const other = await rig.launch({ prompt: "OTHER" })
    const beside = await rig.launch({ prompt: "OTHER too", model: "scripted/beta" })
    await rig.clock.advance(2000)
    expect([rig.task(other.id).status, rig.task(beside.id).status]).toEqual(["completed", "running"])
    isShut = false
    expect(await rig.ended(id)).toMatchObject({ status: "completed" })
    expect((await rig.ended(beside.id)).status).toBe("completed")
    expect(rig.errors()).toEqual([])
  })

  test("parking a task reads only its last message, and not its history", async () => {
    const { provider, rig } = refusing()
    const calls: string[] = []
    rig.opencode.onCall = (method) => {
      calls.push(method)
      return undefined
    }
    const [task] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, task?.id ?? ""))
    await rig.clock.advance(1000)
    expect(calls).not.toContain("messagesSince")
    expect(calls.filter((method) => method === "lastMessage")).toHaveLength(1)
  })
})

test("a refused turn of the user, which cannot be parked, causes only occasional polls of OpenCode", async () => {
  const rig = new Rig({ options: { ...settings, board: { dir: ".opencode/tasks", agents: null } } })
  const sessionID = rig.opencode.openSession()
  rig.script((request) =>
    request.sessionID === sessionID ? { status: 429, body: { error: { message: "Rate limit reached." } } } : undefined,
  )
  let looks = 0
  const atOnce = new Map<number, number>()
  rig.opencode.onCall = (method) => {
    if (method !== "activity") return undefined
    looks++
    atOnce.set(rig.clock.now(), (atOnce.get(rig.clock.now()) ?? 0) + 1)
    if (looks > 600) throw new Error("OpenCode is asked back to back")
    return undefined
  }
  const messageID = `msg_${(BigInt(rig.clock.now()) * 4096n).toString(16).slice(-12)}UsersOwn000001`
  await rig.opencode.prompt({ sessionID, messageID, agent: "general", parts: [{ text: "And this?" }] })
  await new Unattended(rig.manager.parts).adopt({ sessionID, agent: "general", description: "#5 Migrate" }, messageID)
  await rig.clock.advance(MINUTE_MS)
  expect(looks).toBeGreaterThan(0)
  expect(looks).toBeLessThan(40)
  expect(Math.max(...atOnce.values())).toBeLessThanOrEqual(2)
})

test("parked board runs that continue together respect the limit of concurrent runs", async () => {
  const board = { dir: ".opencode/tasks", agents: null, schedule: "0 0 30 2 *", maxConcurrentRuns: 1 }
  const provider = new Provider({ bucket: 0, shutMs: MINUTE_MS }, { ...settings, board })
  const { rig } = provider
  const sessions = [rig.opencode.openSession(), rig.opencode.openSession(), rig.opencode.openSession()]
  const phases = () => sessions.map((id) => rig.manager.taskIn(id)?.phase)
  for (const sessionID of sessions)
    await new Unattended(rig.manager.parts).start({ sessionID, agent: "general", description: "#1", prompt: "FIND it" })
  await rig.clock.until(() => phases().every((phase) => phase?.startsWith("parked")))
  provider.left = 100
  let most = 0
  await rig.clock.until(() => {
    most = Math.max(most, phases().filter((phase) => phase === "working").length)
    return phases().every((phase) => phase === undefined)
  })
  expect(most).toBe(1)
})

test("parked board runs wait for free slots, and continue before runs that have not begun", async () => {
  const board = { dir: ".opencode/tasks", agents: null, schedule: "0 0 30 2 *", maxConcurrentRuns: 2 }
  const rig = new Rig({ options: { ...settings, board } })
  const beta = { provider: "scripted", id: "beta" }
  rig.opencode.agentList = rig.opencode.agentList.map((agent) =>
    agent.name === "plan" ? { ...agent, model: beta } : agent,
  )
  const asked: string[] = []
  let isShut = true
  rig.script(({ sessionID, lastUser }) => {
    if (sessionID === rig.parent) return undefined
    asked.push(lastUser)
    if (isShut && lastUser.startsWith("FIRST"))
      return { status: 429, body: { error: { message: "Rate limit reached. Try again in 30s" } } }
    return { hang: true }
  })
  const start = async (prompt: string) => {
    const sessionID = rig.opencode.openSession()
    await new Unattended(rig.manager.parts).start({
      sessionID,
      agent: prompt.startsWith("FIRST") ? "general" : "plan",
      description: prompt,
      prompt,
    })
    return sessionID
  }
  const phase = (sessionID: string) => rig.manager.taskIn(sessionID)?.phase
  const first = [await start("FIRST a"), await start("FIRST b")]
  await rig.clock.until(() => first.every((id) => phase(id)?.startsWith("parked")))
  const others = [await start("OTHER c"), await start("OTHER d")]
  const last = await start("OTHER e")
  await rig.clock.until(() => asked.filter((prompt) => prompt.startsWith("OTHER")).length === 2)
  expect(phase(last)).toBe("queued")
  isShut = false
  const before = asked.length
  await rig.clock.advance(60_000)
  // Both slots are taken: nobody goes to see.
  expect(asked).toHaveLength(before)
  expect(first.map(phase)).toEqual(Array(2).fill("parked, waiting for a free slot"))
  rig.opencode.conclude(others[0] ?? "", { text: "done" })
  await rig.clock.advance(5000)
  expect([asked.length - before, first.filter((id) => phase(id) === "working").length]).toEqual([1, 1])
  expect(phase(last)).toBe("queued")
})

describe("a task with only parked children", () => {
  const minutes = 10
  /** A task at work that has launched others and waits for them; what these are answered is up to `reply`. */
  const family = async (children: readonly string[], options: object = {}) => {
    const rig = new Rig({ options: { ...settings, taskTimeout: minutes * MINUTE_MS, maxDepth: 3, ...options } })
    const closedUntil = rig.clock.now() + 30 * MINUTE_MS
    let leader = ""
    rig.script(({ sessionID, lastUser }) => {
      if (sessionID === rig.parent) return undefined
      const now = rig.clock.now()
      if (sessionID === leader || lastUser.includes("LEAD"))
        return now > closedUntil ? { text: "all done" } : { hang: true }
      const wait = Math.ceil((closedUntil - now) / 1000)
      if (now >= closedUntil) return { text: "done" }
      return { status: 429, body: { error: { message: `Rate limit reached. Try again in ${wait}s` } } }
    })
    rig.onPrompt("BUSY", { hang: true })
    const lead = await rig.launch({ prompt: "LEAD", timeout: minutes * MINUTE_MS })
    leader = lead.sessionID
    await rig.clock.until(() => rig.opencode.isWorking(leader))
    const own = []
    for (const prompt of children)
      own.push(
        await rig.launch(
          { prompt, timeout: 120 * MINUTE_MS, model: prompt === "BUSY" ? "scripted/beta" : undefined },
          lead.sessionID,
        ),
      )
    await rig.clock.advance(1000)
    return { rig, lead, own }
  }

  test("a task whose children are all parked has its clock stopped, and completes", async () => {
    const { rig, lead, own } = await family(["CHILD a", "CHILD b"], { lastWord: 0 })
    rig.opencode.conclude(lead.sessionID, { text: "waiting" })
    await rig.clock.until(() => own.every(({ id }) => isParkedNow(rig, id, lead.sessionID)))
    await rig.clock.advance(25 * MINUTE_MS)
    expect(rig.view(lead.id).phase).toBe("waiting for its own tasks")
    expect(rig.view(lead.id).elapsed).toBeLessThan(MINUTE_MS)
    const ended = await rig.ended(lead.id)
    expect(ended).toMatchObject({ status: "completed" })
    expect(rig.view(lead.id).elapsed).toBeLessThan(2 * MINUTE_MS)
    expect(ended.run.stillMs).toBeGreaterThan(29 * MINUTE_MS)
    expect(rig.errors()).toEqual([])
  })

  test("a task's clock runs while it works itself or one of its children does", async () => {
    const works = await family(["CHILD a"], { lastWord: 0 })
    const waits = await family(["CHILD a", "BUSY"], { lastWord: 0 })
    waits.rig.opencode.conclude(waits.lead.sessionID, { text: "waiting" })
    for (const { rig, lead } of [works, waits]) {
      await rig.clock.advance((minutes + 1) * MINUTE_MS)
      expect(rig.task(lead.id)).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
    }
  })

  test("a task's clock runs again when one of its parked children continues", async () => {
    const { rig, lead, own } = await family(["CHILD a", "CHILD b"], { lastWord: 0 })
    rig.opencode.conclude(lead.sessionID, { text: "waiting" })
    await rig.clock.until(() => own.every(({ id }) => isParkedNow(rig, id, lead.sessionID)))
    await rig.clock.advance(20 * MINUTE_MS)
    rig.script(({ sessionID }) => (own.some((one) => one.sessionID === sessionID) ? { hang: true } : undefined))
    await rig.manager.unpark(own[0]?.id ?? "", lead.sessionID)
    await rig.clock.advance((minutes - 2) * MINUTE_MS)
    expect(rig.view(lead.id).elapsed).toBeGreaterThan((minutes - 3) * MINUTE_MS)
    await rig.clock.advance(3 * MINUTE_MS)
    expect(rig.task(lead.id)).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
  })

  test("a task whose children were parked still has its time for a last word", async () => {
    const { rig, lead, own } = await family(["CHILD a"], { lastWord: MINUTE_MS })
    rig.opencode.conclude(lead.sessionID, { text: "waiting" })
    await rig.clock.until(() => own.every(({ id }) => isParkedNow(rig, id, lead.sessionID)))
    await rig.clock.advance(20 * MINUTE_MS)
    rig.script(({ sessionID }) => (own.some((one) => one.sessionID === sessionID) ? { hang: true } : undefined))
    await rig.manager.unpark(own[0]?.id ?? "", lead.sessionID)
    rig.script(({ sessionID }) => (sessionID === lead.sessionID ? { text: "my last word" } : undefined))
    expect(await rig.ended(lead.id)).toMatchObject({ outcome: { saidLastWord: true, reason: { code: "timeout" } } })
  })
})

test("a run that was parked still has its time for a last word", async () => {
  const provider = new Provider(
    { bucket: 0, shutMs: 30 * MINUTE_MS },
    { ...settings, taskTimeout: 10 * MINUTE_MS, lastWord: MINUTE_MS },
  )
  const { rig } = provider
  const [task] = await provider.launchAll(1)
  await rig.clock.until(() => isParkedNow(rig, task?.id ?? ""))
  rig.script(({ sessionID, lastUser }) => {
    if (sessionID === rig.parent) return undefined
    // It works until it is asked: then at its own pace.
    return { tools: [{ name: "read", args: {} }], delay: 20_000, ...(/last word/i.test(lastUser) && { text: "word" }) }
  })
  await rig.clock.advance(30 * MINUTE_MS)
  await rig.clock.until(() => rig.task(task?.id ?? "").run.lastWordAt !== undefined)
  await rig.clock.advance(15_000)
  expect(rig.task(task?.id ?? "").status).toBe("running")
})

describe("parked tasks after a restart", () => {
  test("a parked task stays parked over a restart, and continues in time without repeating a step", async () => {
    const provider = new Provider({ bucket: 2, shutMs: 30 * MINUTE_MS }, settings)
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    if (!task) throw new Error("not launched")
    await rig.clock.until(() => rig.view(task.id).phase?.startsWith("parked") === true)
    const { sessionID } = rig.task(task.id)
    const calls = () =>
      rig.opencode.stored(sessionID).messages.flatMap(({ parts }) => parts.filter(({ type }) => type === "tool")).length
    const done = calls()
    rig.restart()
    await rig.manager.recover()
    await flush()
    await rig.clock.advance(MINUTE_MS)
    expect(rig.view(task.id).phase).toMatch(/^parked/)
    expect(rig.notices().filter(({ visible }) => visible.includes("Agent"))).toEqual([])
    provider.left = 100
    expect((await rig.ended(task.id)).status).toBe("completed")
    expect(done).toBe(2)
    expect(calls()).toBe(2)
  })

  test("the tasks of one breaker, parked one after the other, are no series of refusals after a restart", async () => {
    const rig = new Rig({ options: settings })
    let isOpen = true
    rig.script(({ sessionID, toolResults, prompt }) => {
      if (sessionID === rig.parent) return undefined
      if (!isOpen) return { status: 429, body: { error: { message: "Rate limit reached." } } }
      if (toolResults.length > 0) return { text: "done" }
      return { tools: [{ name: "read", args: { ms: 1000 + 300 * Number(prompt.replace("FIND ", "")) } }] }
    })
    const numbers = Array.from({ length: 8 }, (_, at) => at)
    const tasks = await Promise.all(numbers.map((at) => rig.launch({ prompt: `FIND ${at}` })))
    await rig.clock.advance(900)
    isOpen = false
    await rig.clock.until(() => tasks.every(({ id }) => isParkedNow(rig, id)))
    isOpen = true
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(MINUTE_MS / 2)
    expect(tasks.map(({ id }) => rig.task(id).status)).toEqual(tasks.map(() => "completed"))
  })

  test("what a parked task has spent before a restart counts for its budget", async () => {
    const rig = new Rig({ options: { maxCostPerTask: 0.05, lastWord: 0 } })
    let isOpen = true
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      if (!isOpen) return { status: 429, body: { error: { message: "Rate limit reached. Try again in 60s" } } }
      return { tools: [{ name: "read", args: { ms: 100 } }], usage: { input: 10_000 } }
    })
    const { id } = await rig.launch()
    await rig.clock.until(() => rig.view(id).whole.usage.cost > 0.025)
    isOpen = false
    await rig.clock.until(() => isParkedNow(rig, id))
    const { usage } = rig.view(id).whole
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(10_000)
    expect(rig.view(id)).toMatchObject({ phase: expect.stringMatching(/^parked/), whole: { usage } })
    isOpen = true
    const { outcome } = await rig.ended(id)
    expect(outcome).toMatchObject({ reason: { code: "budget" } })
    expect(outcome?.usage.cost).toBeLessThan(0.07)
  })

  test("a parked task continues in time although the system clock is set back", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 8000, tells: false }, settings)
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    if (!task) throw new Error("not launched")
    await rig.clock.until(() => isParkedNow(rig, task.id))
    rig.clock.setBack(60 * MINUTE_MS)
    rig.script(() => ({ text: "done" }))
    await rig.clock.advance(MINUTE_MS)
    expect(rig.task(task.id).status).toBe("completed")
  })

  test("a parked task continues after a restart days later if its provider has opened", async () => {
    const provider = new Provider({ bucket: 2, shutMs: 30 * MINUTE_MS }, settings)
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    if (!task) throw new Error("not launched")
    await rig.clock.until(() => rig.view(task.id).phase?.startsWith("parked") === true)
    provider.left = 100
    rig.manager.stop()
    await rig.clock.sleep(60 * 60 * MINUTE_MS)
    rig.restart()
    await rig.manager.recover()
    await flush()
    expect((await rig.ended(task.id)).status).toBe("completed")
  })
})

describe("a launch at a model's limit", () => {
  const scene = async (
    options: RigOptions["options"] = settings,
    shutMs = 30 * MINUTE_MS,
    places: Pick<RigOptions, "worktrees" | "kind"> = {},
  ) => {
    const provider = new Provider({ bucket: 0, shutMs }, options, places)
    const [first] = await provider.launchAll(1)
    await provider.rig.clock.until(() => isParkedNow(provider.rig, first?.id ?? ""))
    return { provider, rig: provider.rig, first: first?.id ?? "" }
  }

  test("a task launched at its model's limit is parked without using a request, slot or time", async () => {
    const { provider, rig } = await scene({ ...settings, maxConcurrentTasks: 1, taskTimeout: MINUTE_MS })
    const before = provider.requests
    const { id } = await rig.launch({ prompt: "FIND LATER" })
    await rig.clock.advance(20 * MINUTE_MS)
    expect(rig.view(id)).toMatchObject({ phase: expect.stringMatching(/^parked until \d\d:\d\d$/), elapsed: 0 })
    expect(provider.requests).toBe(before)
    provider.left = 100
    expect(await rig.ended(id)).toMatchObject({ status: "completed", run: { parkedTimes: 1 } })
    const asked = rig.opencode.stored(rig.task(id).sessionID).messages.filter(({ role }) => role === "user")
    expect(asked.map(({ parts }) => parts.map((part) => part.type === "text" && part.text))).toEqual([["FIND LATER"]])
    expect(rig.view(id).elapsed).toBeLessThan(MINUTE_MS)
    expect(rig.errors()).toEqual([])
  })

  test("a task launched at its model's limit survives a restart, and so does a queued one", async () => {
    const { provider, rig, first } = await scene({ ...settings, maxConcurrentTasks: 1 })
    const tasks = [first, (await rig.launch({ prompt: "FIND A" })).id, (await rig.launch({ prompt: "FIND B" })).id]
    await rig.clock.advance(1000)
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(MINUTE_MS)
    for (const id of tasks) expect(rig.view(id).phase).toMatch(/^parked until/)
    provider.left = 100
    for (const id of tasks) expect((await rig.ended(id)).status).toBe("completed")
    expect(rig.notices().filter(({ visible }) => visible.includes("finished"))).toHaveLength(3)
  })

  /** The next OpenCode has taken over what the last one left. */
  const restarted = async (rig: Rig) => {
    await rig.clock.advance(1000)
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    await rig.clock.advance(MINUTE_MS)
  }
  const asked = (rig: Rig, sessionID: string) =>
    rig.opencode
      .stored(sessionID)
      .messages.flatMap(({ role, parts: [part] }) => (role === "user" && part?.type === "text" ? [part.text] : []))

  test("a parked launch still has the answers that it waited for in its prompt after a restart", async () => {
    const { provider, rig } = await scene()
    rig.onPrompt("BEFORE", { text: "what was found" })
    const before = await rig.launch({ prompt: "BEFORE", model: "scripted/beta" })
    const { id, sessionID } = await rig.launch({ prompt: "FIND LATER", after: [before.id] })
    await rig.ended(before.id)
    await restarted(rig)
    expect(rig.view(id).phase).toMatch(/^parked until/)
    provider.left = 100
    expect((await rig.ended(id)).status).toBe("completed")
    expect(asked(rig, sessionID)).toEqual([expect.stringMatching(/what was found[\s\S]*Your task:\n\nFIND LATER$/)])
  })

  test("a parked launch without a restart has the answers that it waited for in its prompt once", async () => {
    const { provider, rig } = await scene()
    rig.onPrompt("BEFORE", { text: "what was found" })
    const before = await rig.launch({ prompt: "BEFORE", model: "scripted/beta" })
    const { id, sessionID } = await rig.launch({ prompt: "FIND LATER", after: [before.id] })
    await rig.clock.until(() => isParkedNow(rig, id))
    provider.left = 100
    expect((await rig.ended(id)).status).toBe("completed")
    expect(asked(rig, sessionID)).toEqual([expect.stringMatching(/what was found[\s\S]*Your task:\n\nFIND LATER$/)])
    expect(asked(rig, sessionID)[0]?.match(/what was found/g)).toHaveLength(1)
  })

  test("a parked board run survives a restart, and the board shows it as queued", async () => {
    const board = { dir: ".opencode/tasks", agents: null, schedule: "0 0 30 2 *", maxConcurrentRuns: 2 }
    const { provider, rig } = await scene({ ...settings, board })
    const model = { provider: "scripted", id: "alpha" }
    rig.opencode.agentList = rig.opencode.agentList.map((agent) => ({ ...agent, model }))
    const sessionID = rig.opencode.openSession()
    await new Unattended(rig.manager.parts).start({ sessionID, agent: "general", description: "#1", prompt: "FIND it" })
    await rig.clock.until(() => rig.manager.taskIn(sessionID)?.phase?.startsWith("parked") === true)
    const runs = () => new ManagerRuns(rig.manager, Promise.resolve(), rig.clock)
    expect(runs().of(sessionID)).toMatchObject({ state: "queued", pause: { waitsFor: expect.any(String) } })
    await restarted(rig)
    expect(rig.manager.taskIn(sessionID)?.phase).toMatch(/^parked until/)
    expect(runs().of(sessionID)?.state).toBe("queued")
    provider.left = 100
    await rig.clock.until(() => rig.manager.taskIn(sessionID)?.task.status === "completed")
    expect(asked(rig, sessionID)).toEqual(["FIND it"])
  })

  test("parked tries survive a restart, and the first to pass wins", async () => {
    const { provider, rig } = await scene({}, 30 * MINUTE_MS, {
      worktrees: async () => new FakeMachine() as never as Place,
      kind: { isShared: true, guards: true },
    })
    const { id } = await rig.launch({ prompt: "FIND it", tries: 2, check: "true", place: "worktree" })
    const members = () => rig.manager.list(rig.task(id).sessionID)
    await rig.clock.until(() => members().length === 2 && members().every(({ phase }) => phase?.startsWith("parked")))
    await restarted(rig)
    expect([rig.task(id).status, ...members().map(({ phase }) => phase?.slice(0, 6))]).toEqual([
      "running",
      "parked",
      "parked",
    ])
    provider.left = 100
    expect((await rig.endedBeside(id, 20_000)).status).toBe("completed")
    expect(rig.task(id).outcome?.group).toMatchObject({ rows: [{ how: "won" }, {}] })
    expect(rig.errors()).toEqual([])
  })

  test("the parked items of a map survive a restart, and the map completes", async () => {
    const { provider, rig } = await scene()
    const { id } = await rig.launch({ prompt: "FIND {{item}}", each: ["a", "b", "c"] })
    const members = () => rig.manager.list(rig.task(id).sessionID)
    await rig.clock.until(() => members().some(({ phase }) => phase?.startsWith("parked")))
    await restarted(rig)
    expect([rig.task(id).status, members()[0]?.phase?.slice(0, 6)]).toEqual(["running", "parked"])
    provider.left = 100
    expect(await rig.endedBeside(id, 20_000)).toMatchObject({
      status: "completed",
      outcome: { group: { valid: 3, total: 3 } },
    })
  })

  test("a queued task is parked as soon as its model's breaker trips", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 30 * MINUTE_MS }, { ...settings, maxConcurrentTasks: 1 })
    const { rig } = provider
    const tasks = await provider.launchAll(3)
    await rig.clock.advance(2000)
    for (const { id } of tasks) expect(rig.view(id).phase).toMatch(/^parked until/)
    expect(provider.requests).toBe(1)
    expect(rig.notices().find(({ visible }) => visible.startsWith("⏸"))?.visible).toContain("3 tasks are parked.")
  })

  test("a parked launch can be probed, receive messages and be cancelled like any parked task", async () => {
    const { provider, rig } = await scene()
    const { id } = await rig.launch({ prompt: "FIND LATER" })
    const other = await rig.launch({ prompt: "FIND NEVER" })
    await rig.manager.tell(id, "Look at the tests, too.", rig.caller)
    await rig.manager.cancel({ type: "task", reference: other.id }, rig.caller)
    const before = provider.requests
    provider.left = 100
    const seen: string[] = []
    rig.script(({ sessionID, lastUser }) => {
      if (sessionID === rig.task(id).sessionID) seen.push(lastUser)
      return undefined
    })
    // The provider has opened, whatever it said.
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { text: "done" }))
    await rig.manager.unpark(id, rig.parent)
    expect((await rig.ended(id)).status).toBe("completed")
    expect(rig.opencode.stored(rig.task(id).sessionID).messages.filter(({ role }) => role === "user")).toHaveLength(2)
    expect(provider.requests).toBe(before)
    expect(rig.task(other.id).status).toBe("cancelled")
  })

  test("a task ends at once and says so if the reset is later than it may be parked", async () => {
    const { rig } = await scene({ ...settings, maxParked: 60 * MINUTE_MS })
    const hours = new Provider(
      { bucket: 0, shutMs: 2 * 60 * MINUTE_MS },
      { ...settings, maxConcurrentTasks: 1, maxParked: 60 * MINUTE_MS },
    )
    const tasks = await hours.launchAll(2)
    for (const { id } of tasks)
      expect(await hours.rig.ended(id)).toMatchObject({
        outcome: { reason: { code: "limit", text: expect.stringContaining("longer than a task is parked") } },
      })
    expect(hours.requests).toBe(1)
    expect(rig.errors()).toEqual([])
  })

  test("parked launches end without a request if another task finds that money is missing", async () => {
    const { provider, rig } = await scene()
    const tasks = [await rig.launch({ prompt: "FIND A" }), await rig.launch({ prompt: "FIND B" })]
    const asked: string[] = []
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      asked.push(sessionID)
      return { status: 402, body: { error: { message: "Payment required" } } }
    })
    await rig.clock.advance(31 * MINUTE_MS)
    for (const { id } of tasks)
      expect(await rig.ended(id)).toMatchObject({
        outcome: {
          reason: { code: "provider", text: expect.stringMatching(/^Not begun: scripted\/alpha refused another task/) },
        },
      })
    expect(asked).toHaveLength(1)
    expect(provider.requests).toBe(1)
  })

  test("a launch stays queued if its model's limit lasts only a moment", async () => {
    const { provider, rig } = await scene(settings, 3000)
    provider.left = 100
    const { id } = await rig.launch({ prompt: "FIND LATER" })
    await flush()
    expect(rig.view(id).phase).toMatch(/^waiting for scripted\/alpha, which is at its limit \(until/)
    expect((await rig.ended(id)).status).toBe("completed")
    expect(rig.task(id).run).not.toHaveProperty("parkedTimes")
  })
})

describe("parked tasks and a second process", () => {
  test("a second process leaves a parked task alone, says so, and takes over when the first dies", async () => {
    const provider = new Provider({ bucket: 1, shutMs: 30 * MINUTE_MS }, settings)
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    const id = task?.id ?? ""
    await rig.clock.until(() => isParkedNow(rig, id))
    await rig.clock.advance(1000)
    const other = new Rig({
      options: rig.options as never,
      share: { clock: rig.clock, database: rig.opencode.database },
    })
    await other.manager.recover()
    await other.manager.ready(rig.parent)
    const seen = () => other.manager.list(rig.parent)[0]?.phase
    expect(seen()).toMatch(/^parked until/)
    for (const model of [undefined, "scripted/beta"])
      await expect(other.manager.unpark(id, rig.parent, model)).rejects.toThrow(
        `Task ${id} is run by another OpenCode process. Only the user can try it, there.`,
      )
    const before = provider.requests
    await rig.clock.advance(5 * MINUTE_MS)
    expect([provider.requests, seen()]).toEqual([before, expect.stringMatching(/^parked until/)])
    rig.crash()
    other.script(({ sessionID, toolResults }) => {
      if (sessionID === rig.parent) return undefined
      return toolResults.length < 2 ? { tools: [{ name: "read", args: {} }] } : { text: "done" }
    })
    await rig.clock.advance(10 * MINUTE_MS)
    expect(seen()).toMatch(/^parked until/)
    await rig.clock.advance(30 * MINUTE_MS)
    expect(other.manager.list(rig.parent)[0]?.task.status).toBe("completed")
    const { messages } = other.opencode.stored(task?.sessionID ?? "")
    expect(messages.flatMap(({ parts }) => parts.filter(({ type }) => type === "tool"))).toHaveLength(2)
  })
})

describe("parked worktree tasks after a restart", () => {
  test("a parked worktree task is archived at a restart, and continues in a new worktree with its prompt", async () => {
    const calls: string[] = []
    const place = {
      capture: async () => {},
      enter: async ({ again, bringIn }: EnterRequest) => {
        calls.push(`enter ${again ?? false} ${bringIn ?? false}`)
        return { directory: "/place", preface: `Work in /place, ${calls.length}.` }
      },
      archive: async () => {
        calls.push("put away")
        return { files: [], added: 0, removed: 0, submodules: [], unsaved: [] }
      },
    }
    const places = { worktrees: async () => place as never }
    const provider = new Provider({ bucket: 1, shutMs: 30 * MINUTE_MS }, settings, places)
    const { rig } = provider
    const { id, sessionID } = await rig.launch({ prompt: "FIND 0", place: "worktree" })
    await rig.clock.until(() => isParkedNow(rig, id))
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(MINUTE_MS)
    expect(rig.view(id).phase).toMatch(/^parked until/)
    expect(calls).toEqual(["enter false false"])
    expect(rig.opencode.folderOf(sessionID)).toBe("/project")
    provider.left = 100
    expect((await rig.ended(id)).status).toBe("completed")
    expect(calls).toEqual(["enter false false", "put away", "enter true false", "put away"])
    const asked = rig.opencode.stored(sessionID).messages.filter(({ role }) => role === "user")
    expect(asked.map(({ parts }) => parts.map((part) => (part.type === "text" ? part.text : "")))).toEqual([
      ["FIND 0", "\n\nWork in /place, 1."],
    ])
    expect(rig.errors()).toEqual([])
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

  test("missing money ends a run at the first refusal even if OpenCode would retry", async () => {
    const rig = new Rig({ options: settings })
    let asked = 0
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      asked++
      return { status: 429, body: { error: { message: "You exceeded your current quota: insufficient_quota" } } }
    })
    const { id } = await rig.launch({ prompt: "A" })
    expect((await rig.ended(id)).outcome?.reason?.text).toContain("This does not pass by waiting.")
    expect(asked).toBe(1)
  })
})

describe("a parent at its model's limit", () => {
  test("ends are stored at once while the parent's model is at its limit, and wake it once afterwards", async () => {
    const provider = new Provider({ bucket: 3, shutMs: 10 * MINUTE_MS }, settings)
    const { rig } = provider
    rig.onPrompt("ELSEWHERE", { text: "found" })
    const [task] = await provider.launchAll(1)
    const [parked] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, task?.id ?? "") || isParkedNow(rig, parked?.id ?? ""))
    const elsewhere = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
    const again = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
    await rig.ended(elsewhere.id)
    await rig.ended(again.id)
    await rig.clock.advance(MINUTE_MS)
    const told = () => rig.notices().filter(({ visible }) => visible.includes("finished")).length
    expect(told()).toBeGreaterThanOrEqual(2)
    const before = rig.answers().length
    provider.left = 100
    await rig.clock.advance(10 * MINUTE_MS)
    expect(rig.answers().length).toBeGreaterThan(before)
    expect(rig.errors()).toEqual([])
  })

  test("a parent at its model's limit is woken at the reset time if no parked task probes before", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 10 * MINUTE_MS }, settings)
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, task?.id ?? ""))
    rig.onPrompt("ELSEWHERE", { text: "found" })
    const elsewhere = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
    await rig.clock.until(() => rig.task(elsewhere.id).status === "completed")
    await rig.manager.cancel({ type: "task", reference: task?.id ?? "" }, rig.caller)
    await rig.clock.advance(MINUTE_MS)
    expect(rig.answers()).toEqual([])
    await rig.clock.advance(10 * MINUTE_MS)
    expect(rig.answers()).toHaveLength(1)
  })

  test.each(["is known", "is not known"])(
    "a parent whose wake waits for its model's limit is woken once after a restart, where that limit %s",
    async (known) => {
      const provider = new Provider({ bucket: 0, shutMs: 10 * MINUTE_MS }, settings)
      const { rig } = provider
      rig.onPrompt("ELSEWHERE", { text: "found" })
      const [task] = await provider.launchAll(1)
      await rig.clock.until(() => isParkedNow(rig, task?.id ?? ""))
      const elsewhere = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
      await rig.ended(elsewhere.id)
      if (known === "is not known") await rig.manager.cancel({ type: "task", reference: task?.id ?? "" }, rig.caller)
      await rig.clock.advance(2 * MINUTE_MS)
      expect(rig.answers()).toEqual([])
      rig.restart()
      await rig.manager.recover()
      await rig.clock.advance(MINUTE_MS)
      expect(rig.answers()).toHaveLength(known === "is known" ? 0 : 1)
      await rig.manager.cancel({ type: "all" }, rig.caller)
      await rig.clock.advance(15 * MINUTE_MS)
      expect(rig.answers()).toHaveLength(1)
      rig.restart()
      await rig.manager.recover()
      await rig.clock.advance(15 * MINUTE_MS)
      expect(rig.answers()).toHaveLength(1)
      expect(rig.errors()).toEqual([])
    },
  )

  test("a parent at its model's limit is woken at the reset time even if polls happen before", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 10 * MINUTE_MS }, settings)
    const { rig } = provider
    rig.onPrompt("ELSEWHERE", { text: "found" })
    const [task] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, task?.id ?? ""))
    const elsewhere = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
    await rig.ended(elsewhere.id)
    await rig.manager.cancel({ type: "task", reference: task?.id ?? "" }, rig.caller)
    expect(rig.answers()).toEqual([])
    await rig.clock.advance(11 * MINUTE_MS)
    expect(rig.answers()).toHaveLength(1)
  })
})

describe("a stopped parent at its limit", () => {
  test("a stopped parent at its model's limit is not woken by earlier notifications once the model opens", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 10 * MINUTE_MS }, settings)
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, task?.id ?? ""))
    rig.opencode.tell({ type: "error", sessionID: rig.parent, error: { message: "Aborted", aborted: true } })
    rig.onPrompt("ELSEWHERE", { text: "found" })
    const elsewhere = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
    await rig.clock.until(() => rig.task(elsewhere.id).status === "completed")
    await rig.manager.cancel({ type: "task", reference: task?.id ?? "" }, rig.caller)
    await rig.clock.advance(MINUTE_MS)
    expect(rig.notices()).toHaveLength(2)
    rig.opencode.tell({ type: "active", sessionID: rig.parent, activity: { type: "busy" } })
    await rig.clock.advance(20 * MINUTE_MS)
    expect(rig.answers()).toEqual([])
  })
})

describe("fallback models", () => {
  const named = { ...settings, fallbackModels: { general: ["scripted/gone", "scripted/beta"] } }
  /** Answers every model but alpha, which is closed. */
  const launchOn = async (options: object, bucket = 1) => {
    const provider = new Provider({ bucket, shutMs: 30 * MINUTE_MS }, options)
    const { rig } = provider
    const models: string[] = []
    rig.script(({ sessionID, toolResults }) => {
      const prompt = rig.opencode.stored(sessionID).messages.findLast(({ role }) => role === "user")
      const model = `${prompt?.model?.provider}/${prompt?.model?.id}`
      if (sessionID === rig.parent) return undefined
      models.push(model)
      if (model === "scripted/alpha") return undefined
      return toolResults.length < 2 ? { tools: [{ name: "read", args: {} }] } : { text: "done by beta" }
    })
    const [task] = await provider.launchAll(1)
    return { provider, rig, models, id: task?.id ?? "" }
  }

  test("a fallback model continues a run at once if its model is refused for over a minute", async () => {
    const { rig, models, id } = await launchOn(named)
    const { status } = await rig.ended(id)
    expect(status).toBe("completed")
    expect(models).toEqual(["scripted/alpha", "scripted/alpha", "scripted/beta", "scripted/beta"])
    const asked = rig.opencode.stored(rig.task(id).sessionID).messages.filter(({ role }) => role === "user")
    expect(asked).toHaveLength(1)
    const line = /Model: scripted\/alpha, then scripted\/beta from step 2 \(limit until \d\d:\d\d\)\./
    expect(rig.notices().find(({ visible }) => visible.includes("finished"))?.hidden).toMatch(line)
    const output = await (toolsFor(rig.manager, rig.options).superagents_output as Tool).execute(
      { task_id: id },
      rig.caller,
    )
    expect(output.output).toMatch(line)
    expect(rig.opencode.toasts.filter(({ message }) => message.includes("scripted/gone"))).toHaveLength(1)
  })

  test("a fallback model is not used for a short limit, or if the user names none", async () => {
    const short = new Provider({ bucket: 0, shutMs: 50_000 }, named)
    const [brief] = await short.launchAll(1)
    await short.rig.clock.advance(20_000)
    expect(short.rig.view(brief?.id ?? "").phase).toMatch(/^parked/)
    expect(short.rig.task(brief?.id ?? "").run).not.toHaveProperty("model")
    const { rig, models, id } = await launchOn({ ...settings, fallbackModels: { explore: ["scripted/beta"] } })
    await rig.clock.advance(20_000)
    expect([isParkedNow(rig, id), models.includes("scripted/beta")]).toEqual([true, false])
  })

  test("a fallback model is used after a minute if the limit has no reset time", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 60 * MINUTE_MS, tells: false }, named)
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    await rig.clock.advance(3 * MINUTE_MS)
    expect(rig.task(task?.id ?? "").run.switches?.[0]).toMatchObject({ model: "scripted/beta", why: "limit" })
  })

  test("a fallback model is used for its run only, and a resume begins with the original model", async () => {
    const { provider, rig, models, id } = await launchOn({ ...named, resumable: ["completed"] })
    await rig.ended(id)
    models.length = 0
    provider.left = 100
    await rig.clock.advance(31 * MINUTE_MS)
    await rig.manager.resume(id, { prompt: "FIND more" }, rig.caller)
    await rig.ended(id)
    expect(new Set(models)).toEqual(new Set(["scripted/alpha"]))
  })

  test("a parked task can be continued with another model by its caller", async () => {
    const { rig, models, id } = await launchOn(settings)
    await rig.clock.until(() => isParkedNow(rig, id))
    const tool = toolsFor(rig.manager, rig.options).superagents_task as Tool
    const { output } = await tool.execute({ unpark: id, model: "scripted/beta" }, rig.caller)
    expect(output).toBe(`${id} (find it) tries scripted/beta now.`)
    expect((await rig.ended(id)).status).toBe("completed")
    expect(models.at(-1)).toBe("scripted/beta")
    await expect(rig.manager.unpark(id, rig.parent, "scripted/nothing")).rejects.toThrow('No model "scripted/nothing"')
  })
})

describe("texts about a parked task", () => {
  const closed = async () => {
    const provider = new Provider({ bucket: 0, shutMs: 30 * MINUTE_MS }, settings)
    const [task] = await provider.launchAll(2)
    await provider.rig.clock.until(() => isParkedNow(provider.rig, task?.id ?? ""))
    return {
      rig: provider.rig,
      id: task?.id ?? "",
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

  test("all texts name the next try by the newest known time if there is no reset time", async () => {
    const provider = new Provider({ bucket: 0, shutMs: 30 * MINUTE_MS, tells: false }, settings)
    const { rig } = provider
    const [first, second] = await provider.launchAll(2)
    await rig.clock.until(() => rig.manager.list(rig.parent).every(({ phase }) => phase?.startsWith("parked")))
    const tool = (name: string) => toolsFor(rig.manager, rig.options)[name] as Tool
    // Both were parked by one refusal; the probes that follow are the first's and the second's by turns.
    await rig.clock.advance(6 * MINUTE_MS)
    const phases = [first, second].map((task) => rig.view(task?.id ?? "").phase)
    expect(phases).toEqual([expect.stringMatching(/^parked, next try \d\d:\d\d$/), phases[0]])
    const { output } = await tool("superagents_output").execute({ task_id: first?.id ?? "" }, rig.caller)
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
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { text: "done" }))
    await rig.clock.advance(10 * MINUTE_MS)
    const notice = rig.notices().find(({ visible }) => visible.includes("finished"))
    expect(notice?.hidden).toMatch(/\nParked \d+ times, \S+( \S+)? in all \(scripted\/alpha\)\.\n/)
  })

  test("a waiting call returns at once if the task stays parked longer than the call would wait", async () => {
    const { rig, id } = await closed()
    const before = rig.clock.now()
    const { view } = await rig.manager.output(id, rig.caller, 60_000)
    expect([view.phase, rig.clock.now()]).toEqual([expect.stringMatching(/^parked until/), before])
  })

  test("an attempt to unpark a task that is not parked reports what the task does", async () => {
    const rig = new Rig({ options: settings })
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { hang: true }))
    const { id } = await rig.launch()
    await flush()
    await expect(rig.manager.unpark(id, rig.parent)).rejects.toThrow(`${id} is not parked: it is working.`)
  })
})

test.each([
  [402, "Payment required"],
  [429, "You exceeded your current quota: insufficient_quota"],
  [401, "Invalid API key"],
  [400, "Bad request"],
  [400, "This model's maximum context length is 8192 tokens"],
])("a refusal that does not pass by waiting parks no task: %i %s", async (status, message) => {
  const rig = new Rig({ options: settings })
  rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { status, body: { error: { message } } }))
  const { id } = await rig.launch()
  expect((await rig.ended(id)).status).toBe("error")
  expect(rig.task(id).run).not.toHaveProperty("parkedTimes")
})

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

test("a task without any refused request is never parked", async () => {
  const provider = new Provider({ bucket: 1000, shutMs: 1000 }, settings)
  const [task] = await provider.launchAll(1)
  await provider.rig.ended(task?.id ?? "")
  expect(provider.refused).toEqual([])
  expect(provider.rig.task(task?.id ?? "").run).not.toHaveProperty("parkedTimes")
})
