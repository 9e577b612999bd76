import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest"
import { ask, callTool, eventually, messages, openSession, toolParts } from "../support/drive.ts"
import type { Host } from "../support/host.ts"
import { type ModelRequest, type Reply, type ScriptedModel, startModel } from "../support/model.ts"
import { launch, notified, startPlugged } from "../support/plugin.ts"

/** The last word before every limit, on the real host. A step that says nothing else costs $0.01 and 10,000 tokens. */

/** Turns take long where other tests run beside. */
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 })
const PATIENT = { timeout: 90_000 }

let model: ScriptedModel
let host: Host

beforeAll(async () => {
  model = await startModel()
  host = await startPlugged(
    model,
    { lastWord: 3000, maxTokensPerTask: 60_000, maxLaunchesPerMinute: 0, resumable: ["completed", "error"] },
    { permission: { "*": "allow", bash: { "*": "allow", "ls*": "ask" } } },
  )
  model.use(({ sinceUser }) => (sinceUser.length === 0 ? read() : undefined))
  await ask(host, await openSession(host), "warm up", PATIENT)
})
afterAll(async () => {
  await host?.stop()
  await model?.close()
})
beforeEach(() => model.reset())

const CENT = { input: 10_000, output: 0 }
const isAsked = ({ messages }: ModelRequest) => JSON.stringify(messages).includes("Answer at once: what is done")
const read = (more: object = {}): Reply => ({ tools: [{ name: "read", args: { filePath: "README.md" } }], ...more })
const bash = (command: string): Reply => ({
  tools: [{ name: "bash", args: { command, description: "x" } }],
  usage: CENT,
})
const outputOf = async (session: string, id: string) =>
  (await callTool(host, model, session, "superagents_output", { task_id: id }, PATIENT)).output ?? ""

/** What the agent of prompt `L-…` does until it is asked for its last word, and then. */
const script = (work: (request: ModelRequest) => Reply, word: (request: ModelRequest) => Reply) =>
  model.use((request) => {
    if (!request.userTexts.some((text) => text === "L-WORK")) return undefined
    return isAsked(request) ? word(request) : work(request)
  })
const OBEYS = () => ({ text: "half is done, the rest is in a.txt", usage: CENT })

/** It ended by its limit, once, with its last word marked as partial in output and notification. */
const saidItsWord = async (session: string, id: string, limit: string, word = "half is done, the rest is in a.txt") => {
  const [notification, ...others] = await notified(host, session, 1, PATIENT.timeout)
  expect(others).toEqual([])
  expect(notification?.visible).toContain(" failed in ")
  expect(notification?.hidden).toMatch(new RegExp(`Reason: Stopped at .*${limit}.*; its last word is below\\.`))
  expect(notification?.hidden).toContain(word)
  expect(notification?.hidden).toMatch(/partial/i)
  const output = await outputOf(session, id)
  expect(output).toContain("Status: error")
  expect(output).toMatch(/its last word is below\.[\s\S]*partial[\s\S]*<task_output/i)
  expect(output).toContain(word)
}
const asked = (child: string) => model.requests.filter((request) => request.sessionID === child && isAsked(request))

describe("near each kind of limit a child that obeys ends with its last word:", () => {
  const steps = () => script(() => read({ usage: CENT, delay: 60 }), OBEYS)

  test("its time", async () => {
    script(() => read({ delay: 250 }), OBEYS)
    const session = await openSession(host)
    const { id, child } = await launch(host, model, session, { prompt: "L-WORK", timeout: 9000 }, PATIENT)
    await saidItsWord(session, id, "time limit of 9s \\(its timeout argument\\)")
    expect(asked(child)).toHaveLength(1)
    expect(asked(child)[0]?.lastUser).toContain("time limit")
  })

  test("its tokens", async () => {
    steps()
    const session = await openSession(host)
    const { id, child } = await launch(host, model, session, { prompt: "L-WORK" }, PATIENT)
    await saidItsWord(session, id, "option maxTokensPerTask")
    const [word, ...others] = asked(child)
    expect(others).toEqual([])
    // Six steps of 10,000: the sixth reaches nine tenths, the seventh is the word.
    expect(model.requests.filter(({ sessionID }) => sessionID === child).indexOf(word as ModelRequest)).toBe(6)
  })

  test("its cost; a resume afterwards has all its tools", async () => {
    steps()
    const session = await openSession(host)
    const args = { prompt: "L-WORK", max_cost: 0.05 }
    const { id, child } = await launch(host, model, session, args)
    await saidItsWord(session, id, "argument max_cost")
    const before = model.requests.find(({ sessionID }) => sessionID === child)?.tools
    model.use(({ lastUser }) => (lastUser === "L-AGAIN" ? { text: "went on" } : undefined))
    await callTool(host, model, session, "superagents_task", { resume: id, prompt: "L-AGAIN" }, PATIENT)
    const again = await model.waitFor(({ lastUser }) => lastUser === "L-AGAIN", PATIENT)
    expect(again.tools).toEqual(before)
    expect(JSON.stringify(again.messages)).not.toContain("Answer at once")
    await notified(host, session, 2, PATIENT.timeout)
    expect(await outputOf(session, id)).toContain("went on")
  })

  test("in a fork", async () => {
    steps()
    const session = await openSession(host)
    await ask(host, session, "some history")
    const { id } = await launch(
      host,
      model,
      session,
      { prompt: "L-WORK", fork: true, max_cost: 0.05 } as never,
      PATIENT,
    )
    await saidItsWord(session, id, "argument max_cost")
  })
})

describe("a child near its time limit", () => {
  const launched = async (timeout = 9000) => {
    const session = await openSession(host)
    return { session, ...(await launch(host, model, session, { prompt: "L-WORK", timeout }, PATIENT)) }
  }

  test("that goes on calling tools has its calls refused with that reason, and is stopped", async () => {
    script(
      () => read({ delay: 200 }),
      () => read({ text: "not yet", delay: 200 }),
    )
    const { session, id, child } = await launched()
    const [notification] = await notified(host, session, 1, PATIENT.timeout)
    expect(notification?.hidden).toContain("Reason: Stopped at its time limit of 9s (its timeout argument).")
    const refused = (await toolParts(host, child)).filter(({ state }) => state.status === "error")
    expect(refused.length).toBeGreaterThan(0)
    expect(JSON.stringify(refused[0]?.state)).toContain("You are near your time limit")
    expect(await outputOf(session, id)).toContain("not yet")
    await eventually(() => model.inFlight === 0)
  })

  test("that hangs in a tool is interrupted, asked once more without tools, and has time of its own", async () => {
    script(
      () => bash("sleep 60"),
      () => ({ ...OBEYS(), delay: 400 }),
    )
    const { session, id, child } = await launched()
    await saidItsWord(session, id, "time limit of 9s")
    expect(asked(child)).toHaveLength(1)
    expect(asked(child)[0]?.tools).toEqual([])
    const last = (await messages(host, child)).at(-1)
    expect(last?.info.role).toBe("assistant")
  })

  test("that hangs then too is stopped when its own time is over", async () => {
    script(
      () => bash("sleep 60"),
      () => ({ hang: true, text: "almost" }),
    )
    const { session, id } = await launched(6000)
    const [notification] = await notified(host, session, 1, PATIENT.timeout)
    expect(notification?.hidden).toContain("Reason: Stopped at its time limit of 6s (its timeout argument).")
    expect(await outputOf(session, id)).toContain("almost")
    await eventually(() => model.inFlight === 0)
  })

  test("that waits for a permission has its question refused first", async () => {
    script(() => bash("ls"), OBEYS)
    const { session, id, child } = await launched()
    await saidItsWord(session, id, "time limit of 9s")
    expect((await host.client.permission.list()).data).toEqual([])
    expect(asked(child)).toHaveLength(1)
  })

  test("that has ended by then is told of nothing", async () => {
    script(() => ({ text: "all is done", delay: 400 }), OBEYS)
    const { session } = await launched()
    const [notification] = await notified(host, session, 1, PATIENT.timeout)
    expect(notification?.visible).toContain(" finished in ")
  })
})

test("a cancel gets no last word", async () => {
  script(() => bash("sleep 60"), OBEYS)
  const session = await openSession(host)
  const { id, child } = await launch(host, model, session, { prompt: "L-WORK" }, PATIENT)
  await eventually(async () => (await toolParts(host, child)).some(({ state }) => state.status === "running"))
  await callTool(host, model, session, "superagents_cancel", { task_id: id }, PATIENT)
  await notified(host, session, 1, PATIENT.timeout)
  expect(asked(child)).toEqual([])
})
