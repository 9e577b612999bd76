import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { ask, callTool, eventually, idle, messages, openSession, say, toolParts, unwrap } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, launchAll, meanwhile, notifications, notified, startPlugged, wakes } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  const { scripted } = model.provider()
  const variants = { keen: { reasoningEffort: "high" }, calm: { reasoningEffort: "low" } }
  opencode = await startPlugged(model, undefined, {
    config: {
      experimental: { primary_tools: ["webfetch"] },
      provider: {
        scripted: { ...scripted, models: { ...scripted.models, beta: { ...scripted.models.beta, variants } } },
      },
      agent: {
        librarian: { mode: "subagent", description: "Finds books on any shelf.", prompt: "You are the librarian." },
        ghost: { mode: "subagent", description: "Unseen.", hidden: true, prompt: "Boo." },
        asker: { mode: "subagent", description: "Asks.", prompt: "Ask.", permission: { bash: "ask" } },
        phantom: { mode: "primary", description: "Unseen too.", hidden: true, prompt: "Boo, too." },
      },
    },
  })
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

describe("a launch", () => {
  test("a launch returns long before the child answers", async () => {
    model.use((request) => (request.lastUser === "P-SLOW" ? { text: "the answer is 42", delay: 3000 } : undefined))
    const session = await openSession(opencode)
    const task = await launch(opencode, model, session, { prompt: "P-SLOW" })
    expect(task.durationMs, "the child works for three seconds").toBeLessThan(3000)
    expect(await notifications(opencode, session)).toEqual([])
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toMatch(/ finished in [3-9](\.\d)?s\.\*\*/)
  })

  test("a launch creates a child session below the parent with the agent, the prompt and a title", async () => {
    const session = await openSession(opencode)
    const task = await launch(opencode, model, session, {
      prompt: "P-TITLE",
      description: "look at titles",
      agent: "librarian",
    })
    const child = await unwrap(opencode.client.session.get({ sessionID: task.child }))
    expect(child).toMatchObject({ parentID: session, agent: "librarian" })
    expect(child.title).toContain("look at titles")
    const request = await model.waitFor((each) => each.sessionID === task.child)
    expect(request).toMatchObject({ userTexts: ["P-TITLE"], parentSessionID: session, model: "alpha" })
    expect(request.system).toContain("You are the librarian.")
    expect(request.tools).not.toContain("question")
    expect(task.output).toContain(`Task ID: ${task.id}`)
    await notified(opencode, session)
  })

  test("the launch tool's description lists the available agents and what each is for", async () => {
    await ask(opencode, await openSession(opencode), "what is there?")
    const offered = model.requests[0]?.body.tools as { function: { name: string; description: string } }[]
    const description = offered.find((tool) => tool.function.name === "superagents_task")?.function.description
    expect(description).toContain("- librarian: Finds books on any shelf.")
    expect(description).toMatch(/- general: \w+/)
    expect(description, "hidden from the user's menu alone").toContain("- ghost: Unseen.")
    expect(description).not.toContain("- title:")
    expect(model.requests[0]?.tools.filter((name) => name.startsWith("superagents")).toSorted()).toEqual([
      "superagents_cancel",
      "superagents_clear",
      "superagents_list",
      "superagents_output",
      "superagents_task",
    ])
  })

  test("a launched child is neither offered nor allowed the tools that the configuration reserves for primary agents", async () => {
    const session = await openSession(opencode)
    const fresh = await launch(opencode, model, session, { prompt: "P-CHILD" })
    const { tools } = await model.waitFor((each) => each.sessionID === fresh.child)
    expect(tools).toContain("read")
    expect(tools).not.toContain("webfetch")
    await notified(opencode, session)
    const url = "http://127.0.0.1:9/"
    model.use(({ lastUser, sinceUser }) =>
      lastUser.includes("P-RIDER") && sinceUser.length === 0
        ? { tools: [{ name: "webfetch", args: { url, format: "text" } }] }
        : undefined,
    )
    const rider = await launch(opencode, model, session, { prompt: "P-RIDER", agent: "build", fork: "whole" })
    await notified(opencode, session, 2)
    const [part] = await toolParts(opencode, rider.child, "webfetch")
    expect(part?.state).toMatchObject({ status: "error", error: expect.stringContaining("Refused") })
  })

  test("a hidden agent can be launched by name, and a hidden caller can fork itself", async () => {
    const session = await openSession(opencode)
    const named = await launch(opencode, model, session, { prompt: "P-GHOST", agent: "ghost" })
    const forked = await launch(
      opencode,
      model,
      session,
      { prompt: "P-PHANTOM", agent: "phantom", fork: true },
      { agent: "phantom" },
    )
    const sent = (child: string) => model.waitFor((each) => each.sessionID === child)
    expect((await sent(named.child)).system).toContain("Boo.")
    expect((await sent(forked.child)).system).toContain("Boo, too.")
    await notified(opencode, session, 2)
  })

  test("a launched child's question is by default refused no sooner than an hour after its user wrote", async () => {
    model.use(({ lastUser, sinceUser }) =>
      lastUser === "P-ASKS" && sinceUser.length === 0
        ? { tools: [{ name: "bash", args: { command: "true", description: "asks" } }] }
        : undefined,
    )
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-ASKS", agent: "asker" })
    const since = Date.now()
    const asked = await eventually(async () =>
      (await unwrap(opencode.client.permission.list())).find(({ sessionID }) => sessionID === child),
    )
    const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: id })
    const [, hour, minute] = /\(refused at (?:\w{3} )?(\d\d):(\d\d) if nobody answers/.exec(output ?? "") ?? []
    // A minute is shown without its seconds.
    const at = new Date(since + 3_660_000).setHours(Number(hour), Number(minute), 0, 0)
    expect(at - since).toBeGreaterThan(3_500_000)
    await unwrap(opencode.client.permission.reply({ requestID: asked.id, reply: "once" }))
    await notified(opencode, session)
  })

  test("a launched child uses the parent's own model when its agent has none", async () => {
    const session = await openSession(opencode)
    await launch(opencode, model, session, { prompt: "P-INHERIT" }, { model: "scripted/beta", variant: "keen" })
    const request = await model.waitFor((each) => each.lastUser === "P-INHERIT")
    expect(request.model).toBe("beta")
    await notified(opencode, session)
  })
})

describe("an answer", () => {
  test("an answer is fetched after the notification, stands between tags, and counts as read", async () => {
    model.use((request) => (request.lastUser === "P-FETCH" ? { text: "fetched\nand fine" } : undefined))
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-FETCH", description: "fetch it" })
    await notified(opencode, session)
    const { output = "", title } = await callTool(opencode, model, session, "superagents_output", { task_id: id })
    expect(title).toBe("fetch it")
    expect(output).toContain(`Task: ${id} fetch it`)
    expect(output).toContain("Status: completed")
    expect(output).toContain(`<task_output id="${id}">\nfetched\nand fine\n</task_output>`)
    const byPrefix = await callTool(opencode, model, session, "superagents_output", { task_id: id.slice(0, -2) })
    expect(byPrefix.output).toContain("fetched\nand fine")
  })

  test("a task's answer is the text of the last step, after the tool calls", async () => {
    model.use((request) => {
      if (request.lastUser !== "P-STEPS") return undefined
      if (request.sinceUser.length > 0) return { text: "there is a readme" }
      return { text: "let me look", tools: [{ name: "glob", args: { pattern: "*" } }] }
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-STEPS" })
    await notified(opencode, session)
    const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: child })
    expect(output).toContain(`<task_output id="${id}">\nthere is a readme\n</task_output>`)
    expect(output).toMatch(/^Tool calls: 1 \(last: glob\)$/m)
    expect(output).not.toContain("let me look")
  })

  test("the output tool shows progress, not an answer, before the task has ended", async () => {
    const door = gate()
    model.use(async (request) => {
      if (request.lastUser !== "P-PROGRESS") return undefined
      if (request.sinceUser.length === 0) return { tools: [{ name: "glob", args: { pattern: "*" } }], text: "looking" }
      await door.opened
      return { text: "done looking" }
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-PROGRESS" })
    await model.waitFor((request) => request.sessionID === child && request.sinceUser.length > 0)
    const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: id })
    expect(output).toContain("Status: running, working")
    expect(output).toContain("Tool calls: 1 (last: glob)")
    expect(output).toMatch(/^Last activity: (just now|\d+s ago)$/m)
    expect(output).toContain(`Latest text:\n<task_output id="${id}">\nlooking\n</task_output>`)
    door.open()
    await notified(opencode, session)
  })

  test("a blocking output call returns the answer without waking the parent a second time", async () => {
    const [child, parent] = [gate(), gate()]
    let id = ""
    model.use(async (request) => {
      if (request.lastUser === "P-BLOCK") {
        await child.opened
        return { text: "worth the wait" }
      }
      if (request.lastUser !== "fetch it") return undefined
      const args = { task_id: id, block: true, timeout: 20_000 }
      if (request.sinceUser.length === 0) return { tools: [{ name: "superagents_output", args }] }
      await parent.opened
      return { text: "thank you" }
    })
    const session = await openSession(opencode)
    id = (await launch(opencode, model, session, { prompt: "P-BLOCK" })).id
    await say(opencode, session, "fetch it")
    await eventually(
      async () => (await toolParts(opencode, session, "superagents_output"))[0]?.state.status === "running",
    )
    child.open()
    const answered = await model.waitFor(
      ({ lastUser, toolResults }) => lastUser === "fetch it" && toolResults.length > 0,
    )
    expect(answered.toolResults[0]?.content).toContain("worth the wait")
    await meanwhile(opencode, model)
    parent.open()
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toContain(" finished in ")
    expect(await ask(opencode, session, "anything else?")).toBe("ok")
    const steps = model.requests.filter((request) => request.sessionID === session)
    expect(steps, "two for the launch, two for the output, one for the question").toHaveLength(5)
  })

  test("a blocking output call that waits too long returns the progress", async () => {
    const door = gate()
    model.use(async (request) => {
      if (request.lastUser !== "P-LATE") return undefined
      await door.opened
      return { text: "at last" }
    })
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-LATE" })
    const call = { task_id: id, block: true, timeout: 300 }
    const { status, output, durationMs } = await callTool(opencode, model, session, "superagents_output", call)
    expect(status).toBe("completed")
    // It waited: half of its time at least, since OpenCode stamps a call's beginning when that has long begun.
    expect(durationMs).toBeGreaterThan(150)
    expect(output).toContain("Status: running, working")
    door.open()
    await notified(opencode, session)
    await eventually(() => wakes(model, session).length === 1)
  })
})

describe("the list", () => {
  test("superagents_list says when there are no tasks", async () => {
    const session = await openSession(opencode)
    const { output } = await callTool(opencode, model, session, "superagents_list", {})
    expect(output).toBe("No background tasks found")
  })

  test("superagents_list shows only this session's tasks, with their total", async () => {
    const [mine, other] = [await openSession(opencode), await openSession(opencode)]
    const [a, b] = await launchAll(opencode, model, mine, [{ prompt: "P-A" }, { prompt: "P-B", agent: "librarian" }])
    const foreign = await launch(opencode, model, other, { prompt: "P-C" })
    await Promise.all([notified(opencode, mine, 2), notified(opencode, other)])
    const { output = "" } = await callTool(opencode, model, mine, "superagents_list", {})
    const rows = output.split("\n")
    expect(rows).toHaveLength(3)
    expect(rows[0]).toMatch(new RegExp(`^${a?.id} do P-A \\| general \\| completed \\| `))
    expect(rows[1]).toMatch(new RegExp(`^${b?.id} do P-B \\| librarian \\| completed \\| `))
    expect(rows[2]).toMatch(/^2 tasks, 0 running \| 0 tool calls \| 240 tokens, \$0\.0003/)
    expect(output).not.toContain(foreign.id)
  })

  test("superagents_list can be filtered by a status or a batch", async () => {
    const door = gate()
    model.use(async (request) => {
      if (request.lastUser !== "P-RUNS") return undefined
      await door.opened
      return { text: "ran" }
    })
    const session = await openSession(opencode)
    const [quick, runs] = await launchAll(opencode, model, session, [
      { prompt: "P-QUICK", batch: "nightly" },
      { prompt: "P-RUNS", batch: "daily" },
    ])
    await notified(opencode, session)
    const listed = async (filter: Record<string, unknown>) => {
      const { output = "" } = await callTool(opencode, model, session, "superagents_list", filter)
      return output.match(/^bg_\w+/gm) ?? []
    }
    expect(await listed({ status: "running" })).toEqual([runs?.id])
    expect(await listed({ status: "completed" })).toEqual([quick?.id])
    expect(await listed({ status: "error" })).toEqual([])
    expect(await listed({ batch: "nightly" })).toEqual([quick?.id])
    expect(await listed({ batch: "daily", status: "completed" })).toEqual([])
    expect(await listed({ batch: "no such batch" })).toEqual([])
    expect(await listed({ status: null, batch: null })).toEqual([quick?.id, runs?.id])
    door.open()
    await notified(opencode, session, 2)
  })
})

describe("the user's choice of model", () => {
  test("the user's choice of model, agent and variant stays after a notification and for the woken model", async () => {
    const session = await openSession(opencode)
    const chosen = { model: "scripted/beta", agent: "plan", variant: "keen" }
    await launch(opencode, model, session, { prompt: "P-CHOICE" }, chosen)
    const [notification] = await notified(opencode, session)
    await eventually(() => wakes(model, session).length === 1)
    await idle(opencode, session)
    const stored = { providerID: "scripted", modelID: "beta", variant: "keen" }
    expect(notification).toMatchObject({ agent: "plan", model: stored })
    expect(wakes(model, session)[0]).toMatchObject({ model: "beta", body: { reasoning_effort: "high" } })
    expect((await messages(opencode, session)).at(-1)?.info).toMatchObject({
      role: "assistant",
      agent: "plan",
      modelID: "beta",
      variant: "keen",
    })
    expect(await unwrap(opencode.client.session.get({ sessionID: session }))).toMatchObject({
      agent: "plan",
      model: { providerID: "scripted", id: "beta", variant: "keen" },
    })
  })
})
