import { describe, expect, test } from "vitest"
import { classify, factsOf } from "../../src/core/outcome.ts"
import { ALPHA, type Driver } from "./driver.ts"

const BETA = { provider: "scripted", id: "beta" }

export function promptContract(driver: Driver): void {
  describe("a prompt", () => {
    test("a prompt is answered, and its run can be read from that message on, oldest first", async () => {
      driver.world.onPrompt("SIMPLE", { text: "the answer", usage: { input: 100, output: 20 } })
      const sessionID = await driver.child()
      await driver.answered(await driver.send(sessionID, "something before"))
      const sent = await driver.send(sessionID, "SIMPLE")
      const [asked, answer, ...more] = await driver.answered(sent)
      expect(more).toEqual([])
      expect(asked).toMatchObject({
        id: sent.messageID,
        role: "user",
        summary: false,
        createdAt: expect.any(Number),
        parts: [{ type: "text", text: "SIMPLE", synthetic: false }],
      })
      expect(answer).toMatchObject({
        role: "assistant",
        parentID: sent.messageID,
        finish: "done",
        summary: false,
        parts: [{ type: "text", text: "the answer", synthetic: false }],
      })
      expect(answer?.error).toBeUndefined()
      expect(await driver.opencode.lastMessage(sessionID)).toEqual(answer)
      expect(await driver.opencode.hasMessage(sessionID, sent.messageID, 1)).toBe(true)
      expect(await driver.opencode.hasMessage(sessionID, "msg_none", 0)).toBe(false)
      expect(await driver.opencode.hasMessage(sessionID, sent.messageID, sent.parts.length + 1)).toBe(false)
      expect(await driver.opencode.messagesSince(sessionID, "msg_none")).toEqual([])
    })

    test("an answer of this process is not taken for another's, neither while it is written nor later", async () => {
      driver.world.onPrompt("SLOWLY", { text: "one two", chunks: 2, pace: 300 })
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "SLOWLY")
      await driver.world.eventually(async () => (await driver.opencode.activity()).has(sessionID))
      expect(await driver.opencode.isAnsweredElsewhere(sessionID)).toBe(false)
      await driver.answered(sent)
      const stored = await driver.send(sessionID, "stored", { noReply: true })
      await driver.world.eventually(() => driver.opencode.hasMessage(sessionID, stored.messageID, 1))
      expect(await driver.opencode.isAnsweredElsewhere(sessionID)).toBe(false)
    })

    test("the messages of an answered prompt carry the token counts", async () => {
      driver.world.onPrompt("COUNT", { text: "dear", usage: { input: 100, output: 20 } })
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "COUNT")
      await driver.answered(sent)
      await driver.answered(await driver.send(sessionID, "COUNT again"))
      const { usage } = factsOf(await driver.opencode.messagesSince(sessionID, sent.messageID))
      expect(usage).toMatchObject({ input: 200, output: 40, reasoning: 0 })
      expect(usage.cost).toBeGreaterThan(0)
    })

    test("a prompt causes the events active, text, answered and idle in this order, with its usage", async () => {
      driver.world.onPrompt("EVENTS", { text: "one two", chunks: 2 })
      const sessionID = await driver.child()
      await driver.answered(await driver.send(sessionID, "EVENTS"))
      await driver.heard(sessionID, "idle")
      await driver.world.eventually(() =>
        driver.heardOf(sessionID).some((event) => event.type === "answered" && event.usage.output > 0),
      )
      const types = driver.typesOf(sessionID)
      const order = ["active", "text-delta", "text", "answered", "idle"] as const
      // The text part is told of when it opens, too, and an answer's end may be told of early.
      const places = order.map((type, index) => types[index > 1 ? "lastIndexOf" : "indexOf"](type))
      expect(places).not.toContain(-1)
      expect(places).toEqual(places.toSorted((a, b) => a - b))
      const messageID = (await driver.opencode.lastMessage(sessionID))?.id
      const events = driver.heardOf(sessionID)
      expect(events).toContainEqual({ type: "active", sessionID, activity: { type: "busy" } })
      expect(events).toContainEqual(expect.objectContaining({ type: "answered", messageID }))
      expect(events.flatMap((event) => (event.type === "text-delta" ? [event.delta] : [])).join("")).toBe("one two")
      const text = events.findLast((event) => event.type === "text")
      expect(text).toMatchObject({ text: "one two", messageID })
    })

    test("the text events of a prompt leave out what the model only thought", async () => {
      driver.world.onPrompt("THINK", { text: "said", reasoning: "thought" })
      const sessionID = await driver.child()
      await driver.answered(await driver.send(sessionID, "THINK"))
      await driver.heard(sessionID, "thinking")
      await driver.heard(sessionID, "idle")
      const events = driver.heardOf(sessionID)
      expect(events.flatMap((event) => (event.type === "text-delta" ? [event.delta] : [])).join("")).toBe("said")
      expect(JSON.stringify(events)).not.toContain("thought")
    })

    test("a prompt that is sent twice with one message id gives one message and one answer", async () => {
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "twice")
      await driver.opencode.prompt(sent)
      await driver.answered(sent)
      await driver.opencode.prompt(sent)
      await driver.world.pause()
      expect((await driver.answered(sent)).map(({ role }) => role)).toEqual(["user", "assistant"])
    })

    test.each([false, true])(
      "a prompt with noReply is only stored, whether OpenCode is asked for it afterwards or not: %s",
      async (lookedFor) => {
        const sessionID = await driver.child()
        const parts = [
          { id: driver.newID("prt"), text: "seen" },
          { id: driver.newID("prt"), text: "hidden", synthetic: true },
        ]
        const sent = await driver.send(sessionID, "", { parts, noReply: true, lookedFor })
        await driver.world.eventually(() => driver.opencode.hasMessage(sessionID, sent.messageID, 1))
        await driver.world.pause()
        expect(await driver.isIdle(sessionID)).toBe(true)
        const since = await driver.opencode.messagesSince(sessionID, sent.messageID)
        expect(since).toHaveLength(1)
        expect(since[0]?.parts).toEqual([
          { type: "text", text: "seen", synthetic: false },
          { type: "text", text: "hidden", synthetic: true },
        ])
        expect(await driver.opencode.lastMessage(sessionID)).toEqual(since[0])
      },
    )

    test("a prompt that was only stored is answered when it is sent again", async () => {
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "stored first", { noReply: true })
      await driver.world.eventually(() => driver.opencode.hasMessage(sessionID, sent.messageID, 1))
      await driver.opencode.prompt({ ...sent, noReply: false })
      expect((await driver.answered(sent)).map(({ role }) => role)).toEqual(["user", "assistant"])
    })

    test("a prompt that was answered and is sent again leaves a later message unread, and asks nothing", async () => {
      driver.world.onPrompt("LATER", { text: "to the later one" })
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "answered before")
      await driver.answered(sent)
      const later = await driver.send(sessionID, "LATER", { noReply: true })
      await driver.world.eventually(() => driver.opencode.hasMessage(sessionID, later.messageID, 1))
      await driver.opencode.prompt(sent)
      await driver.world.pause()
      expect(await driver.isIdle(sessionID)).toBe(true)
      const since = await driver.opencode.messagesSince(sessionID, sent.messageID)
      expect(since.map(({ id, role }) => (role === "user" ? id : role))).toEqual([
        sent.messageID,
        "assistant",
        later.messageID,
      ])
    })

    test("an answer after a prompt was sent again is an answer to that prompt, and not to a later message", async () => {
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "stored first", { noReply: true })
      const later = await driver.send(sessionID, "stored later", { noReply: true })
      await driver.world.eventually(() => driver.opencode.hasMessage(sessionID, later.messageID, 1))
      await driver.opencode.prompt({ ...sent, noReply: false })
      const last = () => driver.opencode.lastMessage(sessionID)
      await driver.world.eventually(async () => (await last())?.completedAt !== undefined)
      expect(await last()).toMatchObject({ role: "assistant", parentID: sent.messageID })
    })

    test("a prompt to a busy session is read at the session's next step", async () => {
      driver.world.onPrompt("FIRST", { text: "one", delay: 500 })
      driver.world.onPrompt("SECOND", { text: "two" })
      const sessionID = await driver.child()
      const first = await driver.send(sessionID, "FIRST")
      await driver.world.eventually(async () => (await driver.opencode.lastMessage(sessionID))?.role === "assistant")
      const second = await driver.send(sessionID, "SECOND")
      await driver.answered(second)
      const since = await driver.opencode.messagesSince(sessionID, first.messageID)
      const answers = since.filter(({ role }) => role === "assistant").map(({ parentID }) => parentID)
      expect(answers).toEqual([first.messageID, second.messageID])
    })

    test("a prompt that arrives just before its busy session is stopped is stored and starts no turn", async () => {
      driver.world.onPrompt("LONG", { hang: true, text: "so far" })
      const sessionID = await driver.child()
      await driver.send(sessionID, "LONG")
      await driver.heard(sessionID, "text-delta")
      const { messageID } = await driver.send(sessionID, "just before")
      await driver.opencode.abort(sessionID)
      await driver.world.pause()
      expect(await driver.isIdle(sessionID)).toBe(true)
      const since = await driver.opencode.messagesSince(sessionID, messageID)
      expect(since.map(({ role }) => role)).toEqual(["user"])
    })

    test("a prompt is placed last and answered even if its id is from an earlier time", async () => {
      const sessionID = await driver.child()
      const first = await driver.send(sessionID, "the first")
      await driver.answered(first)
      const old = { messageID: driver.oldID("msg"), parts: [{ id: driver.oldID("prt"), text: "the second" }] }
      const second = await driver.send(sessionID, "", old)
      await driver.answered(second)
      const since = await driver.opencode.messagesSince(sessionID, first.messageID)
      const seen = since.map(({ role, id, parentID }) => (role === "user" ? id : `to ${parentID}`))
      const [one, two] = [first.messageID, second.messageID]
      expect(seen).toEqual([one, `to ${one}`, two, `to ${two}`])
    })

    test("any prompt permanently deletes the messages that the user has undone; before it the session counts as reverted", async () => {
      const sessionID = await driver.child()
      const first = await driver.send(sessionID, "the first")
      await driver.answered(first)
      const second = await driver.send(sessionID, "the second")
      await driver.answered(second)
      const reverted = async (how: "session" | "parent") => (await driver.opencode[how](sessionID))?.reverted
      await driver.world.undo(sessionID, second.messageID)
      await driver.world.eventually(() => reverted("parent"))
      expect(await reverted("session")).toBe(true)
      await driver.world.redo(sessionID)
      await driver.world.eventually(async () => !(await reverted("parent")))
      await driver.world.undo(sessionID, second.messageID)
      await driver.send(sessionID, "the third", { noReply: true })
      await driver.world.eventually(async () => !(await reverted("session")))
      expect(await driver.opencode.hasMessage(sessionID, second.messageID, 1)).toBe(false)
      expect(await driver.opencode.hasMessage(sessionID, first.messageID, 1)).toBe(true)
    })

    test("a prompt whose turn was stopped and undone stays visible until another prompt replaces it", async () => {
      driver.world.onPrompt("WORSE", { hang: true, text: "so far" })
      driver.world.onPrompt("BETTER", { text: "done" })
      const sessionID = await driver.child()
      const worse = await driver.send(sessionID, "WORSE")
      await driver.heard(sessionID, "text-delta")
      await driver.opencode.abort(sessionID)
      await driver.answered(worse)
      await driver.world.undo(sessionID, worse.messageID)
      await driver.world.eventually(async () => (await driver.opencode.session(sessionID))?.reverted)
      const shown = await driver.opencode.messagesSince(sessionID, worse.messageID)
      expect(classify(shown, "working")).toMatchObject({ reason: { code: "aborted" } })
      const better = await driver.send(sessionID, "BETTER")
      await driver.answered(better)
      expect(await driver.opencode.messagesSince(sessionID, worse.messageID)).toEqual([])
      expect((await driver.opencode.lastMessage(sessionID))?.parentID).toBe(better.messageID)
      const asked = await driver.opencode.lastMessage(sessionID, ({ role }) => role === "user")
      expect(asked?.id).toBe(better.messageID)
    })

    test("a prompt for an unknown agent gives an error, no idle event and no message", async () => {
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "hello", { agent: "nobody" })
      await driver.heard(sessionID, "error")
      await driver.world.pause()
      const error = driver.heardOf(sessionID).find((event) => event.type === "error")
      expect(error).toMatchObject({ error: { message: expect.stringContaining("nobody") } })
      expect(driver.typesOf(sessionID)).not.toContain("idle")
      expect(await driver.opencode.hasMessage(sessionID, sent.messageID, 1)).toBe(false)
      expect(await driver.isIdle(sessionID)).toBe(true)
    })

    test("a prompt sets its agent and model as those of the session", async () => {
      const sessionID = await driver.child()
      expect(await driver.opencode.persona(sessionID)).toMatchObject({ agent: "general", model: ALPHA })
      expect(await driver.opencode.persona(await driver.world.openSession())).toBeUndefined()
      await driver.answered(await driver.send(sessionID, "hello", { model: BETA }))
      expect(await driver.opencode.persona(sessionID)).toMatchObject({ agent: "general", model: BETA })
      await driver.send(sessionID, "stored", { agent: "build", model: ALPHA, noReply: true })
      await driver.world.eventually(async () => (await driver.opencode.persona(sessionID))?.agent === "build")
      expect(await driver.opencode.persona(sessionID)).toMatchObject({ model: ALPHA })
    })

    test("the agent and model of a prompt's answer can be looked up", async () => {
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "hello")
      const [, answer] = await driver.answered(sent)
      expect(await driver.opencode.caller(sessionID, String(answer?.id))).toMatchObject({
        agent: "general",
        model: ALPHA,
      })
    })
  })
}
