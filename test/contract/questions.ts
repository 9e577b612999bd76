import { describe, expect, test } from "vitest"
import { judge } from "../../src/core/verdict.ts"
import type { Driver } from "./driver.ts"

export function questionContract(driver: Driver): void {
  const asksOf = async (sessionID: string) =>
    (await driver.host.openAsks()).filter((ask) => ask.sessionID === sessionID)
  const firstAsk = (sessionID: string) => driver.world.eventually(async () => (await asksOf(sessionID))[0])
  const bash = { tools: [{ name: "bash", args: { command: "ls", description: "list" } }] }

  describe("an open question", () => {
    test("about a permission is heard and listed; refused, the agent is told why and goes on", async () => {
      driver.world.onPrompt("PERMISSION", bash, { text: "without it" })
      const sessionID = await driver.child({ agent: "build" })
      const sent = await driver.send(sessionID, "PERMISSION", { agent: "build" })
      const ask = await firstAsk(sessionID)
      expect(ask).toMatchObject({ sessionID, kind: "permission", what: expect.stringContaining("bash") })
      await driver.world.eventually(() =>
        driver.world.events.some((event) => event.type === "asked" && event.ask.id === ask.id),
      )
      await driver.host.refuse(ask, "nobody is here")
      const since = await driver.answered(sent)
      expect(since[1]?.parts).toContainEqual(expect.objectContaining({ type: "tool", state: "error", refused: false }))
      expect(judge(since, "working")).toMatchObject({ type: "completed" })
      await driver.heard(sessionID, "replied")
      expect(driver.heardOf(sessionID)).toContainEqual({ type: "replied", sessionID, askID: ask.id })
      expect(await asksOf(sessionID)).toEqual([])
      await driver.host.refuse(ask, "once more")
    })

    test("of the agent is heard and listed; refused, its turn ends there", async () => {
      const questions = [{ question: "Which?", header: "Which", options: [{ label: "a", description: "b" }] }]
      driver.world.onPrompt("QUESTION", { tools: [{ name: "question", args: { questions } }] }, { text: "on" })
      const sessionID = await driver.child({ agent: "build" })
      const sent = await driver.send(sessionID, "QUESTION", { agent: "build" })
      const ask = await firstAsk(sessionID)
      expect(ask).toMatchObject({ sessionID, kind: "question", what: expect.stringContaining("Which?") })
      await driver.host.refuse(ask, "nobody is here")
      await driver.world.eventually(() => driver.isIdle(sessionID))
      const since = await driver.host.messagesSince(sessionID, sent.messageID)
      expect(judge(since, "working")).toBeUndefined()
      const ended = {
        type: "completed",
        note: "The agent asked the user a question, which was dismissed; its turn ended there.",
        proven: true,
      }
      expect(judge(since, "idle")).toMatchObject(ended)
      expect(await asksOf(sessionID)).toEqual([])
      await driver.host.refuse(ask, "once more")
    })
  })
}
