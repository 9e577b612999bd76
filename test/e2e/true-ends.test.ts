import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest"
import { ask, callTool, eventually, idle, messages, openSession, say, unwrap } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, meanwhile, notified, startPlugged, wakes } from "../support/plugin.ts"

/** Ends that are what they say, and wakes of those alone that wait, on the real OpenCode. */

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 })
const PATIENT = { timeout: 90_000 }

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  const options = { maxDepth: 2, permissionTimeout: 4000, stallTimeout: 0, maxCostPerSession: 0 }
  opencode = await startPlugged(model, options, { permission: { "*": "allow", bash: "ask" } })
  await ask(opencode, await openSession(opencode), "warm up")
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})
beforeEach(() => model.reset())

const requestsOf = (session: string) => model.requests.filter(({ sessionID }) => sessionID === session).length
const call = async (session: string, tool: string, args: Record<string, unknown> = {}) =>
  (await callTool(opencode, model, session, `superagents_${tool}`, args, PATIENT)).output ?? ""

describe("a stopped agent", () => {
  test("a stopped agent is not restarted by an unread notification of its own task", async () => {
    const below = { description: "below", prompt: "T-BELOW", agent: "general" }
    model.use(({ lastUser, sinceUser }) => {
      if (lastUser === "T-BELOW") return { text: "below is done", delay: 300 }
      if (lastUser !== "T-ABOVE") return undefined
      return sinceUser.length === 0 ? { tools: [{ name: "superagents_task", args: below }] } : { hang: true }
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "T-ABOVE" }, PATIENT)
    await notified(opencode, child, 1, PATIENT.timeout)
    await call(session, "cancel", { task_id: id })
    const before = requestsOf(child)
    await meanwhile(opencode, model)
    await idle(opencode, child)
    expect(requestsOf(child)).toBe(before)
  })
})

describe("a parent stopped by its user", () => {
  test("a parent whose user pressed ESC is notified without being woken until its user writes again", async () => {
    const door = gate()
    model.use(async ({ lastUser }) => {
      if (lastUser === "THINK") return { hang: true, text: "hm" }
      if (lastUser !== "T-ESC") return undefined
      await door.opened
      return { text: "done meanwhile" }
    })
    const session = await openSession(opencode)
    await launch(opencode, model, session, { prompt: "T-ESC" }, PATIENT)
    await say(opencode, session, "THINK")
    await model.waitFor(({ lastUser }) => lastUser === "THINK", PATIENT)
    await unwrap(opencode.client.session.abort({ sessionID: session }))
    await idle(opencode, session)
    door.open()
    await notified(opencode, session, 1, PATIENT.timeout)
    await meanwhile(opencode, model)
    expect(wakes(model, session)).toEqual([])
    await ask(opencode, session, "GO ON")
    expect(model.requests.findLast(({ sessionID }) => sessionID === session)?.lastUser).toBe("GO ON")
  })
})

test("a step that failed without an error is reported as a failure", async () => {
  model.use(({ lastUser }) => (lastUser === "T-FINISH" ? { text: "", finish: "error" } : undefined))
  const session = await openSession(opencode)
  await launch(opencode, model, session, { prompt: "T-FINISH" }, PATIENT)
  const [notification] = await notified(opencode, session, 1, PATIENT.timeout)
  expect(notification?.visible).toMatch(/^✗/)
})

test("a prompt that its user undoes and rewrites is followed, and the new answer is reported", async () => {
  model.use(({ lastUser }) => {
    if (lastUser === "T-WORSE") return { hang: true, text: "so far" }
    return lastUser === "T-BETTER" ? { text: "the better answer", delay: 500 } : undefined
  })
  const session = await openSession(opencode)
  const { id, child } = await launch(opencode, model, session, { prompt: "T-WORSE" }, PATIENT)
  await model.waitFor(({ lastUser }) => lastUser === "T-WORSE", PATIENT)
  const asked = (await unwrap(opencode.client.session.messages({ sessionID: child }))).find(
    ({ info }) => info.role === "user",
  )
  // As the terminal does it.
  await unwrap(opencode.client.session.abort({ sessionID: child }))
  await unwrap(opencode.client.session.revert({ sessionID: child, messageID: asked?.info.id ?? "" }))
  await meanwhile(opencode, model)
  await say(opencode, child, "T-BETTER")
  const [notification] = await notified(opencode, session, 1, PATIENT.timeout)
  expect(notification?.visible).toMatch(/^✓/)
  expect(await call(session, "output", { task_id: id })).toContain("the better answer")
})

test("an undo of a launch says what remains; a redo warns if it resets an agent's later edit", async () => {
  const undoing = await startPlugged(model, {}, { config: { snapshot: true } })
  try {
    const path = (name: string) => join(undoing.directory, name)
    for (const name of ["a.txt", "b.txt"]) writeFileSync(path(name), "before")
    const door = gate()
    const steps = ["a.txt", "b.txt"].flatMap((name) => [
      { tools: [{ name: "read", args: { filePath: path(name) } }] },
      { tools: [{ name: "write", args: { filePath: path(name), content: "by the agent" } }] },
    ])
    model.use(async ({ lastUser, sinceUser }) => {
      if (lastUser !== "T-UNDONE") return undefined
      const step = sinceUser.length / 2
      if (step > 1) await door.opened
      return steps[step] ?? { hang: true }
    })
    const written = (name: string) => readFileSync(path(name), "utf8")
    const toasts = () =>
      undoing.events.all.flatMap(({ type, properties }) =>
        type === "tui.toast.show" && /undone|redo/i.test(properties.title ?? "") ? [properties.message] : [],
      )
    const session = await openSession(undoing)
    await launch(undoing, model, session, { prompt: "T-UNDONE", description: "edit two files" }, PATIENT)
    await eventually(() => written("a.txt") === "by the agent", PATIENT)
    await idle(undoing, session)
    const asked = (await messages(undoing, session)).find(({ info }) => info.role === "user")?.info.id ?? ""
    await unwrap(undoing.client.session.revert({ sessionID: session, messageID: asked }))
    await eventually(() => toasts().length > 0, PATIENT)
    door.open()
    await eventually(() => toasts().length > 1, PATIENT)
    expect(toasts()).toEqual([
      "Still at work: edit two files (/tasks stops them). Their edits stay: a.txt",
      "edit two files has edited b.txt since your undo. A redo, or another undo, puts the files back as they were at that undo",
    ])
    expect(["a.txt", "b.txt"].map(written)).toEqual(["by the agent", "by the agent"])
    await unwrap(undoing.client.session.unrevert({ sessionID: session }))
    expect(["a.txt", "b.txt"].map(written)).toEqual(["by the agent", "before"])
  } finally {
    await undoing.stop()
  }
})

describe("a compaction", () => {
  /** More than the model's context holds. */
  const FILLED = { input: 60_000, cached: 150_000 }
  const summarize = { providerID: "scripted", modelID: "alpha" }

  test.each([
    ["some text", "Progress: 2 of 3"],
    ["no text", undefined],
  ])(
    "an agent with %s, whose conversation is compacted while it works, is asked to continue, and its answer is reported",
    async (what, text) => {
      const prompt = `T-COMPACTED with ${what}`
      model.use(({ lastUser }) => {
        if (lastUser.includes("A compaction of the conversation")) return { text: "all three are done" }
        if (lastUser !== prompt) return undefined
        return { text, tools: [{ name: "glob", args: { pattern: "*" } }], delay: 1500 }
      })
      const session = await openSession(opencode)
      const { id, child } = await launch(opencode, model, session, { prompt }, PATIENT)
      await model.waitFor(({ lastUser }) => lastUser === prompt, PATIENT)
      await unwrap(opencode.client.session.summarize({ sessionID: child, ...summarize }))
      const [notification] = await notified(opencode, session, 1, PATIENT.timeout)
      expect(notification?.visible).toMatch(/^✓/)
      const output = await call(session, "output", { task_id: id })
      expect(output).toContain("all three are done")
      expect(output).not.toContain("Progress: 2 of 3")
      const isSummary = ({ info }: { info: { role: string; summary?: unknown } }) => info.summary === true
      expect((await unwrap(opencode.client.session.messages({ sessionID: child }))).some(isSummary)).toBe(true)
    },
  )

  test("an agent whose user's compaction fails while it works is asked to continue, and its answer is reported", async () => {
    const prompt = "T-NOT-COMPACTED"
    model.use(({ lastUser, userTexts, tools }) => {
      if (lastUser.includes("A compaction of the conversation")) return { text: "all three are done" }
      if (userTexts[0] === prompt && tools.length === 0) return { status: 400 }
      if (lastUser !== prompt) return undefined
      return { tools: [{ name: "glob", args: { pattern: "*" } }], delay: 1500 }
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt }, PATIENT)
    await model.waitFor(({ lastUser }) => lastUser === prompt, PATIENT)
    await unwrap(opencode.client.session.summarize({ sessionID: child, ...summarize })).catch(() => {})
    const [notification] = await notified(opencode, session, 1, PATIENT.timeout)
    expect(notification?.visible).toMatch(/^✓/)
    expect(await call(session, "output", { task_id: id })).toContain("all three are done")
  })

  test.each([
    ["an answer", "the whole answer", undefined],
    ["a value", '{"found":1}', { type: "object", required: ["found"] }],
  ])("the answer of a run stays %s when that fills the context and causes a compaction", async (what, text, schema) => {
    const prompt = `T-FILLED with ${what}`
    model.use(({ lastUser }) => {
      if (lastUser.startsWith(prompt)) return { text, usage: FILLED }
      return lastUser.startsWith("Continue if you have next steps")
        ? { text: "There is nothing left to do." }
        : undefined
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt, ...(schema && { schema }) }, PATIENT)
    const [notification] = await notified(opencode, session, 1, PATIENT.timeout)
    expect(notification?.visible).toMatch(/^✓/)
    const output = await call(session, "output", { task_id: id })
    expect(output).toContain(text)
    expect(output).not.toContain("nothing left")
    const asked = model.requests.filter(({ sessionID }) => sessionID === child).map(({ lastUser }) => lastUser)
    expect(asked.some((each) => each.startsWith("Continue if you have next steps"))).toBe(true)
  })
})

describe("a turn ended by a refusal", () => {
  const command = (text: string) => ({ name: "bash", args: { command: `echo ${text}`, description: "says it" } })
  const asksOf = async (child: string) =>
    (await unwrap(opencode.client.permission.list())).filter(({ sessionID }) => sessionID === child)

  test("an agent whose two open questions our plugin refused is asked to continue", async () => {
    model.use(({ lastUser, sinceUser }) => {
      if (lastUser.includes("Nobody allowed")) return { text: "done without them" }
      if (lastUser !== "T-TWO") return undefined
      return sinceUser.length === 0 ? { tools: [command("one"), command("two")] } : { text: "done without them" }
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "T-TWO" }, PATIENT)
    await eventually(async () => (await asksOf(child)).length === 2, PATIENT)
    const [notification] = await notified(opencode, session, 1, PATIENT.timeout)
    expect(notification?.visible).toMatch(/^✓/)
    expect(await call(session, "output", { task_id: id })).toContain("done without them")
  })

  test("a turn that ends without text at its user's refusal is no success and has its own mark", async () => {
    model.use(({ lastUser }) => (lastUser === "T-NO" ? { tools: [command("no")] } : undefined))
    const session = await openSession(opencode)
    const { child } = await launch(opencode, model, session, { prompt: "T-NO" }, PATIENT)
    const asked = await eventually(async () => (await asksOf(child))[0], PATIENT)
    await unwrap(opencode.client.permission.reply({ requestID: asked.id, reply: "reject" }))
    const [notification] = await notified(opencode, session, 1, PATIENT.timeout)
    expect(notification?.visible).toMatch(/^⊖ .* stopped at a refusal after /)
  })
})
