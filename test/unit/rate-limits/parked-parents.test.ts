import { describe, expect, test } from "vitest"
import { Unattended } from "../../../src/features/board/unattended.ts"
import { MINUTE_MS } from "../../../src/lib/format.ts"
import { toolsFor } from "../../../src/tools/index.ts"
import type { Tool } from "../../../src/tools/tool.ts"
import { isParkedNow, limited, Provider, parkedTask, settings } from "../../support/limit-scene.ts"
import { Rig } from "../../support/rig.ts"

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
    expect(ended.run.uncountedMs).toBeGreaterThan(29 * MINUTE_MS)
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
  await rig.clock.until(() => isParkedNow(rig, task.id))
  rig.script(({ sessionID, lastUser }) => {
    if (sessionID === rig.parent) return undefined
    // It works until it is asked: then at its own pace.
    return { tools: [{ name: "read", args: {} }], delay: 20_000, ...(/last word/i.test(lastUser) && { text: "word" }) }
  })
  await rig.clock.advance(30 * MINUTE_MS)
  await rig.clock.until(() => rig.task(task.id).run.lastWordAt !== undefined)
  await rig.clock.advance(15_000)
  expect(rig.task(task.id).status).toBe("running")
})

describe("a parent at its model's limit", () => {
  test("ends are stored at once while the parent's model is at its limit, and wake it once afterwards", async () => {
    const provider = new Provider({ bucket: 3, shutMs: 10 * MINUTE_MS })
    const { rig } = provider
    rig.onPrompt("ELSEWHERE", { text: "found" })
    const [task] = await provider.launchAll(1)
    const [parked] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, task.id) || isParkedNow(rig, parked.id))
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
    const { rig, task } = await parkedTask({ shutMs: 10 * MINUTE_MS })
    rig.onPrompt("ELSEWHERE", { text: "found" })
    const elsewhere = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
    await rig.clock.until(() => rig.task(elsewhere.id).status === "completed")
    await rig.manager.cancel({ type: "task", reference: task.id }, rig.caller)
    await rig.clock.advance(MINUTE_MS)
    expect(rig.answers()).toEqual([])
    await rig.clock.advance(10 * MINUTE_MS)
    expect(rig.answers()).toHaveLength(1)
  })

  test.each(["is known", "is not known"])(
    "a parent whose wake waits for its model's limit is woken once after a restart, where that limit %s",
    async (known) => {
      const provider = new Provider({ shutMs: 10 * MINUTE_MS })
      const { rig } = provider
      rig.onPrompt("ELSEWHERE", { text: "found" })
      const [task] = await provider.launchAll(1)
      await rig.clock.until(() => isParkedNow(rig, task.id))
      const elsewhere = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
      await rig.ended(elsewhere.id)
      if (known === "is not known") await rig.manager.cancel({ type: "task", reference: task.id }, rig.caller)
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
})

describe("a stopped parent at its limit", () => {
  test("a stopped parent at its model's limit is not woken by earlier notifications once the model opens", async () => {
    const { rig, task } = await parkedTask({ shutMs: 10 * MINUTE_MS })
    rig.opencode.tell({ type: "error", sessionID: rig.parent, error: { message: "Aborted", aborted: true } })
    rig.onPrompt("ELSEWHERE", { text: "found" })
    const elsewhere = await rig.launch({ prompt: "ELSEWHERE", model: "scripted/beta" })
    await rig.clock.until(() => rig.task(elsewhere.id).status === "completed")
    await rig.manager.cancel({ type: "task", reference: task.id }, rig.caller)
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
    return { provider, rig, models, id: task.id }
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

  test("a fallback model continues a run for which OpenCode itself has chosen the model", async () => {
    const provider = new Provider(
      { bucket: 1, shutMs: 30 * MINUTE_MS },
      { ...settings, fallbackModels: { "scripted/alpha": ["scripted/beta"] } },
    )
    const { rig } = provider
    const sessionID = rig.opencode.openSession()
    await new Unattended(rig.manager.parts).start({ sessionID, agent: "general", description: "#5", prompt: "FIND" })
    const task = () => rig.manager.taskIn(sessionID)?.task
    await rig.clock.until(() => task()?.run.switches !== undefined)
    expect(task()).toMatchObject({ model: { id: "alpha" }, run: { model: { id: "beta" } } })
  })

  test("a fallback model is not used for a short limit, or if the user names none", async () => {
    const short = new Provider({ shutMs: 50_000 }, named)
    const [brief] = await short.launchAll(1)
    await short.rig.clock.advance(20_000)
    expect(short.rig.view(brief.id).phase).toMatch(/^parked/)
    expect(short.rig.task(brief.id).run).not.toHaveProperty("model")
    const { rig, models, id } = await launchOn({ ...settings, fallbackModels: { explore: ["scripted/beta"] } })
    await rig.clock.advance(20_000)
    expect([isParkedNow(rig, id), models.includes("scripted/beta")]).toEqual([true, false])
  })

  test("a fallback model is used after a minute if the limit has no reset time", async () => {
    const provider = new Provider({ shutMs: 60 * MINUTE_MS, tells: false }, named)
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    await rig.clock.advance(3 * MINUTE_MS)
    expect(rig.task(task.id).run.switches?.[0]).toMatchObject({ model: "scripted/beta", why: "limit" })
  })

  /** Each model refuses for so many minutes from now on, and says so unless `tells` is false; "broke" has no credit. */
  const closedFor = (
    closed: Record<string, number | "broke">,
    fallbacks: readonly string[],
    { tells = true, most = 0, delay = 0 } = {},
  ) => {
    const maxConcurrentPerModel = { "scripted/beta": most }
    const rig = new Rig({ options: { ...settings, fallbackModels: { general: fallbacks }, maxConcurrentPerModel } })
    rig.opencode.modelList = ["scripted/alpha", "scripted/beta", "scripted/gamma"]
    const asked: string[] = []
    const start = rig.clock.now()
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      const prompt = rig.opencode.stored(sessionID).messages.findLast(({ role }) => role === "user")
      const model = prompt?.model?.id ?? ""
      asked.push(model)
      const until = closed[model] ?? 0
      if (until === "broke") return { status: 402, body: { error: { message: "Payment required" } } }
      const left = start + until * MINUTE_MS - rig.clock.now()
      return left > 0 ? limited(tells ? ` Try again in ${left / 1000}s` : "") : { text: `done by ${model}`, delay }
    })
    const launchAll = (count: number) => Promise.all(Array.from({ length: count }, () => rig.launch()))
    return { rig, asked, launchAll }
  }

  test("tasks wait for their own model if the fallback model's limit is too long, and go on with it", async () => {
    const { rig, launchAll } = closedFor({ alpha: 30, beta: 72 * 60 }, ["scripted/beta"])
    const tasks = await launchAll(3)
    await rig.clock.advance(31 * MINUTE_MS)
    for (const { id } of tasks)
      expect(rig.task(id)).toMatchObject({ status: "completed", run: { model: { id: "alpha" } } })
  })

  test("a task waits for its fallback model if its own model's limit is too long", async () => {
    const { rig } = closedFor({ alpha: 72 * 60, beta: 1 }, ["scripted/beta"])
    const other = await rig.launch({ model: "scripted/beta" })
    await rig.clock.advance(1000)
    const { id } = await rig.launch()
    await rig.clock.advance(3 * MINUTE_MS)
    for (const each of [id, other.id]) expect(rig.task(each).status).toBe("completed")
  })

  test("a task ends if the limits of all its models are too long", async () => {
    const { rig, asked } = closedFor({ alpha: 72 * 60, beta: 72 * 60 }, ["scripted/beta"])
    const { id } = await rig.launch()
    expect((await rig.ended(id)).outcome?.reason).toMatchObject({
      code: "limit",
      text: expect.stringMatching(/maxParked/),
    })
    expect(asked).toEqual(["alpha", "beta"])
  })

  test("a task whose fallback model has no credit waits for its own model, and asks the other no more", async () => {
    const { rig, asked, launchAll } = closedFor({ alpha: 30, beta: "broke" }, ["scripted/beta"])
    const [first] = await launchAll(1)
    await rig.clock.advance(5000)
    // Known by now.
    const [second] = await launchAll(1)
    await rig.clock.advance(20_000)
    expect(isParkedNow(rig, first?.id ?? "")).toBe(true)
    expect(asked).toEqual(["alpha", "beta"])
    await rig.clock.advance(31 * MINUTE_MS)
    for (const each of [first, second]) expect(rig.task(each?.id ?? "").status).toBe("completed")
    expect(asked.filter((model) => model === "beta").length).toBeLessThanOrEqual(2)
    const [line] = rig.notices().flatMap(({ hidden }) => hidden.match(/^Model: .*$/m) ?? [])
    expect(line).toMatch(/, then scripted\/alpha from step 1 \(no credit\)\.$/)
  })

  test("a task whose fallback model has no credit goes on with the next", async () => {
    const { rig, asked } = closedFor({ alpha: 30, beta: "broke" }, ["scripted/beta", "scripted/gamma"])
    const { id } = await rig.launch()
    await rig.clock.advance(MINUTE_MS)
    expect(rig.task(id).status).toBe("completed")
    expect(asked).toEqual(["alpha", "beta", "gamma"])
  })

  test("only as many tasks go on with a fallback model as it has slots, and the others with their own", async () => {
    const options = { most: 1, delay: 5 * MINUTE_MS }
    const { rig, asked, launchAll } = closedFor({ alpha: 2 }, ["scripted/beta"], options)
    const tasks = await launchAll(4)
    await rig.clock.advance(MINUTE_MS)
    expect(asked.filter((model) => model === "beta")).toHaveLength(1)
    await rig.clock.advance(15 * MINUTE_MS)
    const models = tasks.map(({ id }) => rig.task(id)).map(({ status, run }) => [status, run.model?.id ?? "alpha"])
    expect(models.sort()).toEqual([...[1, 2, 3].map(() => ["completed", "alpha"]), ["completed", "beta"]])
  })

  test("two limited models that say no time are asked more and more rarely by a task that goes round", async () => {
    const { rig, asked } = closedFor({ alpha: 120, beta: 120 }, ["scripted/beta"], { tells: false })
    const { id } = await rig.launch()
    await rig.clock.advance(60 * MINUTE_MS)
    const before = asked.length
    await rig.clock.advance(30 * MINUTE_MS)
    expect(before).toBeLessThan(50)
    // Each at most every five minutes by now.
    expect(asked.length - before).toBeLessThanOrEqual(2 * 6)
    await rig.clock.advance(40 * MINUTE_MS)
    expect(rig.task(id).status).toBe("completed")
    const [line = ""] = rig.notices().flatMap(({ hidden }) => hidden.match(/^Model: .*$/m) ?? [])
    expect(line.length).toBeLessThan(300)
    expect(rig.notices().filter(({ visible }) => visible.startsWith("⏸"))).toHaveLength(2)
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

  test.each(["scripted/alpha", "scripted/beta"])(
    "a parked task asks %s at once if its caller names it, also at its limit",
    async (model) => {
      const { rig, asked } = closedFor({ alpha: 60, beta: 5 * 60 }, [])
      const { id } = await rig.launch()
      await rig.launch({ model: "scripted/beta" })
      await rig.clock.advance(5000)
      expect(asked).toEqual(["alpha", "beta"])
      await rig.manager.unpark(id, rig.parent, model)
      await rig.clock.advance(5000)
      expect(asked.slice(2).map((name) => `scripted/${name}`)).toEqual([model])
      expect(rig.task(id).run.parked).toMatchObject({ model })
    },
  )
})
