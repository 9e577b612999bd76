import { describe, expect, test } from "vitest"
import { callTool, eventually, idle, messages, openSession, say, toolParts, unwrap } from "../support/drive.ts"
import type { ModelRequest } from "../support/model.ts"
import type { OpencodeEventOf } from "../support/opencode.ts"
import { gate, launch, launchAll, notifications, notified } from "../support/plugin.ts"
import { endsWith, isBusy, model, opencode, outputOf, PATIENT, tell, tellScene } from "../support/tell-scene.ts"

/** Words in each moment of an agent, a hundred of them in that of its end. */

tellScene()

describe("a message to a task", () => {
  test("a task that streams its last text reads a new message, continues and answers it", async () => {
    const door = gate()
    model.use(({ lastUser }) => {
      if (lastUser === "T-MORE") return { text: "that too" }
      return lastUser === "T-WORK" ? { text: "one two three four", chunks: 4, until: door.opened } : undefined
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "T-WORK" }, PATIENT)
    const isSpoken = (event: OpencodeEventOf) =>
      event.type === "message.part.delta" && event.properties.sessionID === child && event.properties.field === "text"
    await opencode.events.waitFor(isSpoken, PATIENT)
    expect((await tell(session, id, "T-MORE")).status).toBe("completed")
    door.open()
    await endsWith(session, id, "that too")
  })

  test("a message to a queued task is placed after the task's prompt", async () => {
    const door = gate()
    model.use(async ({ lastUser }) => {
      if (lastUser.startsWith("T-FULL")) await door.opened
      return lastUser.includes("T-WORK") ? { text: "read both" } : undefined
    })
    const session = await openSession(opencode)
    await launchAll(
      opencode,
      model,
      session,
      [1, 2, 3].map((number) => ({ prompt: `T-FULL-${number}` })),
      PATIENT,
    )
    const { id, child } = await launch(opencode, model, session, { prompt: "T-WORK" }, PATIENT)
    expect((await tell(session, id, "T-MORE")).status).toBe("completed")
    door.open()
    const request = await model.waitFor(({ sessionID }) => sessionID === child, PATIENT)
    expect(request.lastUser).toMatch(/^T-WORK\s+T-MORE$/)
    await notified(opencode, session, 4, PATIENT.timeout)
    expect(model.requests.filter(({ sessionID }) => sessionID === child)).toHaveLength(1)
  })

  test("a task that waits for a permission or a user's answer reads a message after it gets that", async () => {
    const questions = [{ question: "Which?", header: "h", options: [{ label: "this", description: "one" }] }]
    model.use(({ lastUser, sinceUser, userTexts }) => {
      if (lastUser === "T-MORE") return { text: "after the answer" }
      if (sinceUser.length > 0) return undefined
      if (userTexts[0] === "T-ASKS") return { tools: [{ name: "question", args: { questions } }] }
      const args = { command: "true", description: "asks" }
      return lastUser === "T-WORK" ? { tools: [{ name: "bash", args }] } : undefined
    })
    const permissions = () => unwrap(opencode.client.permission.list())
    const asked = () => unwrap(opencode.client.question.list())
    const begin = async (prompt: string, open: () => Promise<readonly { id: string; sessionID: string }[]>) => {
      const session = await openSession(opencode)
      const { id, child } = await launch(opencode, model, session, { prompt }, PATIENT)
      const found = await eventually(async () => (await open()).find(({ sessionID }) => sessionID === child), PATIENT)
      expect((await tell(session, id, "T-MORE")).status).toBe("completed")
      return { session, id, requestID: found.id }
    }
    const [permission, question] = [await begin("T-WORK", permissions), await begin("T-ASKS", asked)]
    await unwrap(opencode.client.permission.reply({ requestID: permission.requestID, reply: "once" }))
    await unwrap(opencode.client.question.reply({ requestID: question.requestID, answers: [["this"]] }))
    for (const { session, id } of [permission, question]) await endsWith(session, id, "after the answer")
  })

  test("a message reaches a fork, a resumed task, and a task that waits for another", async () => {
    const door = gate()
    model.use(async ({ lastUser }) => {
      if (lastUser === "T-MORE") return { text: "read it" }
      if (lastUser === "T-FIRST") return { text: "first answer" }
      if (lastUser.endsWith("T-LAST\n\nT-MORE")) return { text: "read both" }
      if (lastUser !== "T-WORK") return undefined
      await door.opened
      return { text: "not read" }
    })
    const session = await openSession(opencode)
    const first = await launch(opencode, model, session, { prompt: "T-FIRST" }, PATIENT)
    await notified(opencode, session, 1, PATIENT.timeout)
    await callTool(opencode, model, session, "superagents_task", { resume: first.id, prompt: "T-WORK" }, PATIENT)
    const forked = await launch(opencode, model, session, { prompt: "T-WORK", fork: true }, PATIENT)
    const waiting = await launch(opencode, model, session, { prompt: "T-LAST", after: [forked.id] }, PATIENT)
    for (const { id } of [first, forked, waiting])
      expect((await tell(session, id, "T-MORE")).output).toContain(
        id === waiting.id ? "it reads this after its prompt" : "at its next step",
      )
    door.open()
    expect(await notified(opencode, session, 4, PATIENT.timeout)).toHaveLength(4)
    for (const { id } of [first, forked]) expect(await outputOf(session, id)).toContain("\nread it\n</task_output>")
    expect(await outputOf(session, first.id)).toContain("Resumed: 1 time")
    expect(await outputOf(session, waiting.id)).toContain("\nread both\n</task_output>")
  })

  test("a message reaches a task whose provider is being retried", async () => {
    let tries = 0
    model.use(({ lastUser }) => {
      if (lastUser === "T-MORE") return { text: "it works again" }
      if (lastUser !== "T-WORK") return undefined
      return tries++ === 0 ? { status: 503 } : { text: "one done", delay: 300 }
    })
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "T-WORK" }, PATIENT)
    await eventually(() => tries === 1)
    expect((await tell(session, id, "T-MORE")).status).toBe("completed")
    await endsWith(session, id, "it works again")
  })

  test("a message reaches a task that waits for its own tasks", async () => {
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
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "T-WORK", agent: "build" }, PATIENT)
    await model.waitFor(({ lastUser }) => lastUser === "T-BELOW", PATIENT)
    await eventually(async () => !(await isBusy(child)))
    expect((await tell(session, id, "T-MORE")).status).toBe("completed")
    await model.waitFor(({ lastUser }) => lastUser === "T-MORE", PATIENT)
    door.open()
    await endsWith(session, id, "all is in")
  })
})

test("each of a hundred messages sent as tasks end is read or refused, and no turn runs unwatched", {
  timeout: 600_000,
}, async () => {
  const SESSIONS = 4
  const ROUNDS = 9
  /** In one turn, as many as run at once. */
  const TASKS = [0, 1, 2]
  const WORDS = SESSIONS * ROUNDS * TASKS.length
  expect(WORDS).toBeGreaterThanOrEqual(100)
  const outcomes = { told: 0, late: 0 }
  const numbers = (first: number) => TASKS.map((index) => first * TASKS.length + index)
  const resultsSince = (said: ModelRequest["messages"], words: string) =>
    said.slice(said.findLastIndex(({ role, content }) => role === "user" && JSON.stringify(content).includes(words)))
  model.use(({ lastUser, sessionID, parentSessionID, userTexts, messages: said }) => {
    const [, delay] = /^R-WORK \d+ for (\d+)/.exec(lastUser) ?? []
    if (delay) return { text: "first answer", delay: Number(delay) }
    if (lastUser.startsWith("R-MORE")) return { text: `answer to ${lastUser}` }
    // The parent launches some, and says a word to each as soon as it has their ids; news may come in between.
    const [order, round] =
      userTexts.flatMap((text) => [/^race (\d+)\./.exec(text) ?? []]).findLast(([all]) => all) ?? []
    if (!order || !sessionID || parentSessionID) return undefined
    const results = resultsSince(said, order).filter(({ role }) => role === "tool")
    const own = numbers(Number(round))
    if (results.length === 0) {
      const launches = own.map((number) => {
        const prompt = `R-WORK ${number} for ${(number * 37) % 300}`
        return { name: "superagents_task", args: { description: `race ${number}`, prompt, agent: "general" } }
      })
      return { tools: launches }
    }
    if (results.length > TASKS.length) return { text: "ok" }
    const ids = results.map(({ content }) => /\bbg_[a-z0-9]{8}\b/.exec(JSON.stringify(content))?.[0])
    const words = own.map((number, at) => ({
      name: "superagents_task",
      args: { tell: ids[at], prompt: `R-MORE ${number}.` },
    }))
    return { tools: words, delay: (Number(round) * 197) % 2400 }
  })
  const runIn = async (first: number) => {
    const session = await openSession(opencode)
    for (let round = 0; round < ROUNDS; round++) {
      await say(opencode, session, `race ${first + round}.`, PATIENT)
      await notified(opencode, session, (round + 1) * TASKS.length, PATIENT.timeout)
      // The words may come after the last end.
      const word = `R-MORE ${numbers(first + round).at(-1)}.`
      const isSaid = (event: OpencodeEventOf) =>
        event.type === "message.part.updated" &&
        event.properties.part.type === "tool" &&
        ["completed", "error"].includes(event.properties.part.state.status) &&
        event.properties.part.state.input.prompt === word
      await opencode.events.waitFor(isSaid, PATIENT)
      await idle(opencode, session)
    }
    const calls = (await toolParts(opencode, session)).filter(
      ({ state }) => "prompt" in state.input && "tell" in state.input,
    )
    expect(calls).toHaveLength(ROUNDS * TASKS.length)
    for (const { state } of calls) {
      const word = String(state.input.prompt)
      const read = model.requests.filter(({ lastUser }) => lastUser === word)
      const [number] = /\d+/.exec(word) ?? []
      const work = new RegExp(`^R-WORK ${number} for `)
      // A word that came before the first step is read with the prompt.
      const child = model.requests.find(({ userTexts }) => userTexts.some((text) => work.test(text)))?.sessionID
      const said = await messages(opencode, String(child))
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
    expect(await notifications(opencode, session)).toHaveLength(ROUNDS * TASKS.length)
  }
  await Promise.all(Array.from({ length: SESSIONS }, (_, index) => runIn(index * ROUNDS)))
  console.log("words in the moment of the end:", JSON.stringify(outcomes))
  expect(outcomes.told).toBeGreaterThan(3)
  expect(outcomes.late).toBeGreaterThan(3)
})
