import { describe, expect, test } from "vitest"
import { classify } from "../../src/core/outcome.ts"
import type { Ask } from "../../src/core/task.ts"
import type { ToolReply } from "../support/model.ts"
import type { Driver } from "./driver.ts"

export function questionContract(driver: Driver): void {
  const asksOf = async (sessionID: string) =>
    (await driver.opencode.openAsks()).filter((ask) => ask.sessionID === sessionID)
  const firstAsk = (sessionID: string) => driver.world.eventually(async () => (await asksOf(sessionID))[0])
  const permission = { name: "bash", args: { command: "ls", description: "list" } }
  const bash = { tools: [permission] }

  describe("an open question", () => {
    test("a permission question is reported and listed; when it is refused, the agent reads the reason and continues", async () => {
      driver.world.onPrompt("PERMISSION", bash, { text: "without it" })
      const sessionID = await driver.child({ agent: "build" })
      const sent = await driver.send(sessionID, "PERMISSION", { agent: "build" })
      const ask = await firstAsk(sessionID)
      expect(ask).toMatchObject({ sessionID, kind: "permission", what: expect.stringContaining("bash") })
      await driver.world.eventually(() =>
        driver.world.events.some((event) => event.type === "asked" && event.ask.id === ask.id),
      )
      await driver.opencode.refuse(ask, "nobody is here")
      const since = await driver.answered(sent)
      expect(since[1]?.parts).toContainEqual(expect.objectContaining({ type: "tool", state: "error", refused: false }))
      expect(classify(since, "working")).toMatchObject({ type: "completed" })
      await driver.heard(sessionID, "replied")
      expect(driver.heardOf(sessionID)).toContainEqual({ type: "replied", sessionID, askID: ask.id })
      expect(await asksOf(sessionID)).toEqual([])
      await driver.opencode.refuse(ask, "once more")
    })

    test("an agent's question is reported and listed; when it is refused, the turn ends", async () => {
      const questions = [{ question: "Which?", header: "Which", options: [{ label: "a", description: "b" }] }]
      driver.world.onPrompt("QUESTION", { tools: [{ name: "question", args: { questions } }] }, { text: "on" })
      const sessionID = await driver.child({ agent: "build" })
      const sent = await driver.send(sessionID, "QUESTION", { agent: "build" })
      const ask = await firstAsk(sessionID)
      expect(ask).toMatchObject({ sessionID, kind: "question", what: expect.stringContaining("Which?") })
      await driver.opencode.refuse(ask, "nobody is here")
      await driver.world.eventually(() => driver.isIdle(sessionID))
      const since = await driver.opencode.messagesSince(sessionID, sent.messageID)
      expect(classify(since, "working")).toBeUndefined()
      const ended = {
        type: "cancelled",
        reason: {
          code: "refused",
          text: "The agent asked the user a question, which was dismissed; its turn ended there. It had written nothing.",
        },
        proven: true,
      }
      expect(classify(since, "idle")).toMatchObject(ended)
      expect(await asksOf(sessionID)).toEqual([])
      await driver.opencode.refuse(ask, "once more")
    })

    test("an open question stays open when its session is stopped, until it is refused", async () => {
      driver.world.onPrompt("LEAVE", bash)
      const sessionID = await driver.child({ agent: "build" })
      await driver.send(sessionID, "LEAVE", { agent: "build" })
      const ask = await firstAsk(sessionID)
      await driver.opencode.abort(sessionID)
      await driver.world.eventually(() => driver.isIdle(sessionID))
      await driver.world.pause()
      expect((await asksOf(sessionID)).map(({ id }) => id)).toEqual([ask.id])
      await driver.opencode.refuse(ask, "")
      await driver.world.eventually(async () => (await asksOf(sessionID)).length === 0)
      expect(await driver.isIdle(sessionID)).toBe(true)
    })

    test("a question that is refused while its session is stopped is closed and reported as closed", async () => {
      driver.world.onPrompt("MOMENT", bash)
      const sessionID = await driver.child({ agent: "build" })
      await driver.send(sessionID, "MOMENT", { agent: "build" })
      const ask = await firstAsk(sessionID)
      await Promise.all([driver.opencode.refuse(ask, ""), driver.opencode.abort(sessionID)])
      await driver.world.eventually(() => driver.isIdle(sessionID))
      await driver.world.pause()
      expect(await asksOf(sessionID)).toEqual([])
      expect(driver.heardOf(sessionID)).toContainEqual({ type: "replied", sessionID, askID: ask.id })
    })

    test("refusing a permission for three equal calls ends the turn with an error, with or without a reason", async () => {
      const same = { name: "read", args: { filePath: "/no/such/file" } }
      driver.world.onPrompt("DOOM", { text: "I read", tools: [same, same, same] }, { text: "without it" })
      for (const word of ["nobody is here", ""]) {
        const sessionID = await driver.child({ agent: "build" })
        const sent = await driver.send(sessionID, "DOOM", { agent: "build" })
        const ask = await firstAsk(sessionID)
        const doing = "the same call three times in a row of read"
        expect(ask).toMatchObject({ sessionID, kind: "permission", what: "doom_loop: read", doing })
        await driver.opencode.refuse(ask, word)
        await driver.heard(sessionID, "idle", 2)
        const since = await driver.opencode.messagesSince(sessionID, sent.messageID)
        const [, answer, ...more] = since
        expect(more).toEqual([])
        expect(answer).toMatchObject({ finish: undefined, error: { refused: true } })
        expect(answer?.parts.map((part) => part.type === "tool" && part.state)).toEqual([
          false,
          ...Array(3).fill("error"),
        ])
        expect(driver.heardOf(sessionID)).toContainEqual({ type: "error", sessionID, error: answer?.error })
        expect(classify(since, "working")).toBeUndefined()
        expect(classify(since, "idle")).toMatchObject({ type: "completed", note: expect.stringContaining("refused") })
      }
    })

    describe("another question of the same step", () => {
      const question = (text: string) => ({
        name: "question",
        args: { questions: [{ question: text, header: "Which", options: [{ label: "a", description: "b" }] }] },
      })
      const asked = async (text: string, tools: ToolReply["tools"]) => {
        driver.world.onPrompt(text, { tools }, { text: "on" })
        const sessionID = await driver.child({ agent: "build" })
        const { messageID } = await driver.send(sessionID, text, { agent: "build" })
        const asks = await driver.world.eventually(async () => {
          const open = await asksOf(sessionID)
          return open.length === tools.length && open
        })
        const since = () => driver.opencode.messagesSince(sessionID, messageID)
        const refusals = async () =>
          (await since()).flatMap(({ parts }) => parts.flatMap((part) => (part.type === "tool" ? [part.refused] : [])))
        return { sessionID, asks, since, refusals }
      }
      const rests = (sessionID: string) => driver.world.eventually(() => driver.isIdle(sessionID))

      test("refusing a permission without a reason also refuses the other open request and ends the turn", async () => {
        const { sessionID, asks, since, refusals } = await asked("BOTH", [permission, permission])
        await driver.opencode.refuse(asks[0] as Ask, "nobody is here")
        await rests(sessionID)
        expect(await asksOf(sessionID)).toEqual([])
        expect(await refusals()).toEqual([false, "permission"])
        expect((await since()).map(({ finish }) => finish)).toEqual([undefined, "called"])
        await driver.heard(sessionID, "replied", 2)
      })

      test("refusing a question leaves the step's other question open; the turn ends when that is answered", async () => {
        const { sessionID, asks, since, refusals } = await asked("TWICE", [question("one?"), question("two?")])
        await driver.opencode.refuse(asks[0] as Ask, "")
        await driver.world.pause()
        expect((await asksOf(sessionID)).map(({ id }) => id)).toEqual([asks[1]?.id])
        expect(await driver.isIdle(sessionID)).toBe(false)
        await driver.opencode.refuse(asks[1] as Ask, "")
        await rests(sessionID)
        expect(await refusals()).toEqual(["question", "question"])
        expect((await since()).map(({ finish }) => finish)).toEqual([undefined, "called"])
      })

      test("refusing a permission with a reason leaves a question of the same step open, and the agent continues", async () => {
        const { sessionID, asks, since } = await asked("MIXED", [permission, question("two?")])
        const of = (kind: Ask["kind"]) => asks.find((ask) => ask.kind === kind) as Ask
        await driver.opencode.refuse(of("permission"), "nobody is here")
        await driver.world.pause()
        expect((await asksOf(sessionID)).map(({ id }) => id)).toEqual([of("question").id])
        await driver.opencode.refuse(of("question"), "")
        await rests(sessionID)
        expect((await since()).map(({ finish }) => finish)).toEqual([undefined, "called"])
      })
    })
  })
}
