import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest"
import {
  ask,
  callTool,
  callTools,
  eventually,
  messages,
  openSession,
  say,
  toolParts,
  unwrap,
} from "../support/drive.ts"
import type { Host } from "../support/host.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { gate, launch, launchAll, notifications, notified, startPlugged } from "../support/plugin.ts"

/** A word to an agent at work, on the real host. */

/** Turns take long where other tests run beside. */
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 })
const PATIENT = { timeout: 120_000 }

let model: ScriptedModel
let host: Host

beforeAll(async () => {
  model = await startModel()
  host = await startPlugged(
    model,
    { maxLaunchesPerMinute: 0, maxConcurrentTasks: 3, maxDepth: 2 },
    { permission: { "*": "allow", bash: "ask" } },
  )
  await ask(host, await openSession(host), "warm up")
})
afterAll(async () => {
  await host?.stop()
  await model?.close()
})
beforeEach(() => model.reset())

const tell = (session: string, id: string, prompt: string, more: object = {}) =>
  callTool(host, model, session, "superagents_task", { tell: id, prompt, ...more }, PATIENT)
const outputOf = async (session: string, id: string) =>
  (await callTool(host, model, session, "superagents_output", { task_id: id }, PATIENT)).output ?? ""
const isBusy = async (session: string) => Boolean((await unwrap(host.client.session.status()))[session])

/** One notification, and the answer is the answer to the last thing it was told. */
const endsWith = async (session: string, id: string, answer: string) => {
  const found = await notified(host, session, 1, PATIENT.timeout)
  expect(found).toHaveLength(1)
  expect(found[0]?.visible).toContain(" finished in ")
  expect(await outputOf(session, id)).toContain(`\n${answer}\n</task_output>`)
}

describe("a word reaches a task", () => {
  test("at work: it reads it at its next step", async () => {
    const door = gate()
    model.use(async ({ lastUser, sinceUser }) => {
      if (lastUser === "T-MORE") return { text: "both done" }
      if (lastUser !== "T-WORK") return undefined
      await door.opened
      return sinceUser.length > 0
        ? { text: "one done" }
        : { tools: [{ name: "read", args: { filePath: "README.md" } }] }
    })
    const session = await openSession(host)
    const { id, child } = await launch(host, model, session, { prompt: "T-WORK" }, PATIENT)
    const { output, status } = await tell(session, id, "T-MORE")
    expect(status).toBe("completed")
    expect(output).toContain(id)
    door.open()
    await endsWith(session, id, "both done")
    expect(await isBusy(child)).toBe(false)
    expect(await outputOf(session, id)).not.toContain("(resumed)")
  })

  test("that streams its last text: it goes on and answers", async () => {
    model.use(({ lastUser }) => {
      if (lastUser === "T-MORE") return { text: "that too" }
      return lastUser === "T-WORK"
        ? { text: "one two three four five six seven eight", chunks: 16, pace: 600 }
        : undefined
    })
    const session = await openSession(host)
    const { id, child } = await launch(host, model, session, { prompt: "T-WORK" }, PATIENT)
    await model.waitFor(({ sessionID }) => sessionID === child, PATIENT)
    expect((await tell(session, id, "T-MORE")).status).toBe("completed")
    await endsWith(session, id, "that too")
  })

  test("that is queued: it stands behind its prompt", async () => {
    const door = gate()
    model.use(async ({ lastUser }) => {
      if (lastUser.startsWith("T-FULL")) await door.opened
      return lastUser.includes("T-WORK") ? { text: "read both" } : undefined
    })
    const session = await openSession(host)
    await launchAll(
      host,
      model,
      session,
      [1, 2, 3].map((number) => ({ prompt: `T-FULL-${number}` })),
      PATIENT,
    )
    const { id, child } = await launch(host, model, session, { prompt: "T-WORK" }, PATIENT)
    expect((await tell(session, id, "T-MORE")).status).toBe("completed")
    door.open()
    const request = await model.waitFor(({ sessionID }) => sessionID === child, PATIENT)
    expect(request.lastUser).toMatch(/^T-WORK\s+T-MORE$/)
    await notified(host, session, 4, PATIENT.timeout)
    expect(model.requests.filter(({ sessionID }) => sessionID === child)).toHaveLength(1)
  })

  test("that waits for a permission: it reads it when that was answered", async () => {
    model.use(({ lastUser, sinceUser }) => {
      if (lastUser === "T-MORE") return { text: "after the answer" }
      if (lastUser !== "T-WORK" || sinceUser.length > 0) return undefined
      return { tools: [{ name: "bash", args: { command: "true", description: "asks" } }] }
    })
    const session = await openSession(host)
    const { id, child } = await launch(host, model, session, { prompt: "T-WORK" }, PATIENT)
    const question = await eventually(async () =>
      (await unwrap(host.client.permission.list())).find(({ sessionID }) => sessionID === child),
    )
    expect((await tell(session, id, "T-MORE")).status).toBe("completed")
    await unwrap(host.client.permission.reply({ requestID: question.id, reply: "once" }))
    await endsWith(session, id, "after the answer")
  })

  test("whose provider is tried again", async () => {
    let tries = 0
    model.use(({ lastUser }) => {
      if (lastUser === "T-MORE") return { text: "it works again" }
      if (lastUser !== "T-WORK") return undefined
      return tries++ === 0 ? { status: 503 } : { text: "one done", delay: 300 }
    })
    const session = await openSession(host)
    const { id } = await launch(host, model, session, { prompt: "T-WORK" }, PATIENT)
    await eventually(() => tries === 1)
    expect((await tell(session, id, "T-MORE")).status).toBe("completed")
    await endsWith(session, id, "it works again")
  })

  test("that waits for its own tasks", async () => {
    const door = gate()
    model.use(async ({ lastUser, sinceUser, userTexts }) => {
      if (lastUser === "T-BELOW") await door.opened
      if (lastUser === "T-MORE") return { text: "heard while waiting" }
      if (lastUser.includes("Task Progress:") && userTexts.includes("T-WORK")) return { text: "all is in" }
      if (lastUser !== "T-WORK") return undefined
      if (sinceUser.length > 0) return { text: "waiting" }
      const args = { description: "below", prompt: "T-BELOW", agent: "general" }
      return { tools: [{ name: "superagents_task", args }] }
    })
    const session = await openSession(host)
    const { id, child } = await launch(host, model, session, { prompt: "T-WORK", agent: "build" }, PATIENT)
    await model.waitFor(({ lastUser }) => lastUser === "T-BELOW", PATIENT)
    await eventually(async () => !(await isBusy(child)))
    expect((await tell(session, id, "T-MORE")).status).toBe("completed")
    await model.waitFor(({ lastUser }) => lastUser === "T-MORE", PATIENT)
    door.open()
    await endsWith(session, id, "all is in")
  })
})

describe("a word is refused", () => {
  test("where the task has ended, which names `resume`, where there is none, and where there is nothing to say", async () => {
    const session = await openSession(host)
    const { id, child } = await launch(host, model, session, { prompt: "T-WORK" }, PATIENT)
    await notified(host, session, 1, PATIENT.timeout)
    const count = model.requests.length
    expect((await tell(session, id, "T-MORE")).error).toMatch(/completed.*`?resume/)
    expect((await tell(session, "bg_zzzzzzzz", "T-MORE")).error).toContain('No task "bg_zzzzzzzz"')
    expect((await tell(session, id, " ")).error).toContain("`prompt`")
    expect(model.requests.slice(count).some(({ sessionID }) => sessionID === child)).toBe(false)
  })

  test("together with any other argument, naming both", async () => {
    const values = { fork: true, timeout: 5000, max_cost: 1, after: ["bg_x"] }
    const others = { resume: "bg_x", description: "d", agent: "general", model: "scripted/beta", batch: "b", ...values }
    const calls = Object.entries(others).map(([name, value]) => ({
      name: "superagents_task",
      args: { tell: "bg_x", prompt: "T-MORE", [name]: value },
    }))
    const outcomes = await callTools(host, model, await openSession(host), calls, PATIENT)
    for (const [index, name] of Object.keys(others).entries()) {
      expect(outcomes[index]?.error, name).toContain("`tell`")
      expect(outcomes[index]?.error, name).toContain(`\`${name}\``)
    }
  })
})

test("a hundred words in the moment of the end: each is read or an error, none is lost, and no turn runs unwatched", {
  timeout: 600_000,
}, async () => {
  const SESSIONS = 4
  const ROUNDS = 25
  const outcomes = { told: 0, late: 0 }
  model.use(({ lastUser, sessionID, parentSessionID, messages: said }) => {
    if (lastUser.startsWith("R-WORK")) return { text: "first answer", delay: 20 }
    if (lastUser.startsWith("R-MORE")) return { text: `answer to ${lastUser}` }
    // The parent launches, and says a word as soon as it has the task's id.
    const [, number, delay] = /^race (\d+) (\d+)$/.exec(lastUser) ?? []
    if (!number || !sessionID || parentSessionID) return undefined
    const results = said.slice(said.findLastIndex(({ role }) => role === "user")).filter(({ role }) => role === "tool")
    const prompt = `R-WORK ${delay} of ${number}`
    const args = { description: `race ${number}`, prompt, agent: "general" }
    if (results.length === 0) return { tools: [{ name: "superagents_task", args }] }
    const id = /\bbg_[a-z0-9]{8}\b/.exec(JSON.stringify(results[0]?.content))?.[0]
    if (results.length > 1) return { text: "ok" }
    const word = { name: "superagents_task", args: { tell: id, prompt: `R-MORE ${number}.` } }
    return { tools: [word], delay: Number(delay) }
  })
  const runIn = async (first: number) => {
    const session = await openSession(host)
    for (let round = 0; round < ROUNDS; round++) {
      const number = first + round
      await say(host, session, `race ${number} ${(number * 37) % 900}`, PATIENT)
      await notified(host, session, round + 1, PATIENT.timeout)
    }
    const calls = (await toolParts(host, session)).filter(
      ({ state }) => "prompt" in state.input && "tell" in state.input,
    )
    expect(calls).toHaveLength(ROUNDS)
    for (const { state } of calls) {
      const word = String(state.input.prompt)
      const read = model.requests.filter(({ lastUser }) => lastUser === word)
      const [number] = /\d+/.exec(word) ?? []
      const work = new RegExp(`^R-WORK \\d+ of ${number}\\b`)
      // A word that came before the first step is read with the prompt.
      const child = model.requests.find(({ userTexts }) => userTexts.some((text) => work.test(text)))?.sessionID
      const said = await messages(host, String(child))
      const texts = said.at(-1)?.parts.flatMap((part) => (part.type === "text" ? part.text : []))
      if (state.status === "error") {
        outcomes.late++
        expect(state.error).toContain("resume")
        expect(read, `${word} ${state.error}`).toHaveLength(0)
        expect(texts).toEqual(["first answer"])
      } else {
        outcomes.told++
        expect(read.length, `${word} was read`).toBeGreaterThan(0)
        expect(texts).toEqual([`answer to ${word}`])
      }
      expect(await isBusy(String(child))).toBe(false)
    }
    expect(await notifications(host, session)).toHaveLength(ROUNDS)
  }
  await Promise.all(Array.from({ length: SESSIONS }, (_, index) => runIn(index * ROUNDS)))
  console.log("words in the moment of the end:", JSON.stringify(outcomes))
  expect(outcomes.told).toBeGreaterThan(3)
  expect(outcomes.late).toBeGreaterThan(3)
})
