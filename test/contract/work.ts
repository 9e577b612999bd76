import { describe, expect, test } from "vitest"
import { answerText, classify, factsOf, isCutByCompaction } from "../../src/core/outcome.ts"
import { emptiesIn, NOTHING_OBSERVED, withMessages } from "../../src/core/run/progress.ts"
import { CONTEXT, type Driver } from "./driver.ts"

/** A session that has answered, and in which its user runs a shell command of so many seconds. */
async function inShell(driver: Driver, seconds: number) {
  const sessionID = await driver.child()
  const first = await driver.send(sessionID, "the first")
  await driver.answered(first)
  await driver.world.shell(sessionID, seconds)
  await driver.world.eventually(async () => !(await driver.isIdle(sessionID)))
  return { sessionID, first }
}

export function workContract(driver: Driver): void {
  describe("a working model", () => {
    test("a session is reported as active while its model works; a session without an activity is idle", async () => {
      driver.world.onPrompt("BUSY", { text: "done", delay: 500 })
      const sessionID = await driver.child()
      expect(await driver.isIdle(sessionID)).toBe(true)
      const sent = await driver.send(sessionID, "BUSY")
      const doing = await driver.world.eventually(async () => (await driver.opencode.activity()).get(sessionID))
      expect(doing).toEqual({ type: "busy" })
      await driver.answered(sent)
      expect(await driver.isIdle(sessionID)).toBe(true)
    })

    test("the model's tool calls are reported by call id, and its todos are stored", async () => {
      const todos = [
        { content: "one", status: "completed", priority: "high" },
        { content: "two", status: "in_progress", priority: "high" },
        { content: "three", status: "pending", priority: "high" },
        { content: "four", status: "cancelled", priority: "high" },
      ]
      const call = { name: "todowrite", args: { todos }, id: "call_todos" }
      driver.world.onPrompt("TODOS", { tools: [call] }, { text: "planned" })
      const sessionID = await driver.child({ agent: "build" })
      expect(await driver.opencode.openTodos(sessionID)).toBe(0)
      const sent = await driver.send(sessionID, "TODOS", { agent: "build" })
      const since = await driver.answered(sent)
      expect(since.map(({ finish }) => finish)).toEqual([undefined, "called", "done"])
      const messageID = since[1]?.id
      const ended = { digest: expect.any(String), ms: expect.any(Number) }
      const part = {
        type: "tool",
        callID: "call_todos",
        tool: "todowrite",
        state: "completed",
        refused: false,
        keepsTodos: true,
        call: ended,
      }
      expect(since[1]?.parts).toContainEqual(part)
      expect(since[2]?.parentID).toBe(sent.messageID)
      expect(await driver.opencode.openTodos(sessionID)).toBe(2)
      const tools = driver.heardOf(sessionID).filter((event) => event.type === "tool")
      const shared = { type: "tool", sessionID, callID: "call_todos", tool: "todowrite", messageID }
      expect(tools[0]).toEqual({ ...shared, state: "pending" })
      expect(tools).toContainEqual({ ...shared, state: "running" })
      expect(tools.at(-1)).toEqual({ ...shared, state: "ended", call: ended })
    })

    test("a run between two steps does not count as ended, whatever its messages look like", async () => {
      const args = { pattern: "*" }
      const step = { tools: [{ name: "glob", args }], delay: 50 }
      driver.world.onPrompt("STEPS", step, step, step, step, { text: "all done", delay: 50 })
      const sessionID = await driver.child({ agent: "build" })
      const sent = await driver.send(sessionID, "STEPS", { agent: "build" })
      const gaps = new Set<boolean>()
      const since = await driver.world.eventually(async () => {
        const messages = await driver.opencode.messagesSince(sessionID, sent.messageID)
        if (messages.at(-1)?.finish === "called") gaps.add(classify(messages, "working") === undefined)
        return classify(messages, "working") !== undefined && messages
      })
      expect([...gaps].every(Boolean)).toBe(true)
      expect(answerText(since)).toBe("all done")
      expect(factsOf(since)).toMatchObject({ toolCalls: 4, recentTools: ["glob", "glob", "glob", "glob"] })
    })

    test("a failed model request stores its error in the message, between an error event and two idle events", async () => {
      driver.world.onPrompt("BAD", { status: 400, body: { error: { message: "no such luck" } } })
      const sessionID = await driver.child()
      const since = await driver.answered(await driver.send(sessionID, "BAD"))
      expect(since[1]).toMatchObject({ error: { message: "no such luck" } })
      expect(classify(since, "working")).toMatchObject({
        type: "failed",
        reason: { text: "no such luck" },
        at: expect.any(Number),
      })
      await driver.heard(sessionID, "idle", 2)
      const types = driver.typesOf(sessionID)
      expect(types.indexOf("error")).toBeLessThan(types.indexOf("idle"))
    })

    test("a model request that is retried is reported as retried", async () => {
      driver.world.onPrompt("AGAIN", { status: 500, body: { error: { message: "overloaded" } } })
      const sessionID = await driver.child()
      await driver.send(sessionID, "AGAIN")
      const doing = await driver.world.eventually(async () => {
        const activity = (await driver.opencode.activity()).get(sessionID)
        return activity?.type === "retry" && activity
      })
      expect(doing).toMatchObject({ type: "retry", attempt: expect.any(Number), message: expect.any(String) })
      await driver.world.eventually(() =>
        driver.heardOf(sessionID).some((event) => event.type === "active" && event.activity.type === "retry"),
      )
      await driver.opencode.abort(sessionID)
      await driver.world.eventually(() => driver.isIdle(sessionID))
    })

    test("a run that is stopped is marked as aborted, keeps its text, and reports idle twice", async () => {
      driver.world.onPrompt("STOP", { hang: true, text: "so far" })
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "STOP")
      await driver.heard(sessionID, "text-delta")
      await driver.opencode.abort(sessionID)
      const since = await driver.answered(sent)
      expect(classify(since, "working")).toMatchObject({ type: "cancelled", reason: { code: "aborted" } })
      expect(since[1]?.parts).toEqual([{ type: "text", text: "so far", synthetic: false }])
      await driver.heard(sessionID, "idle", 2)
    })

    test("a tool call without complete arguments is reported as pending, and as ended when the run is stopped", async () => {
      driver.world.onPrompt("HALF", { hang: true, call: { name: "glob", args: '{"pattern": "' } })
      const sessionID = await driver.child({ agent: "build" })
      const sent = await driver.send(sessionID, "HALF", { agent: "build" })
      const states = () => driver.heardOf(sessionID).flatMap((event) => (event.type === "tool" ? [event.state] : []))
      await driver.heard(sessionID, "tool")
      await driver.world.pause()
      expect(new Set(states())).toEqual(new Set(["pending"]))
      const [, open] = await driver.opencode.messagesSince(sessionID, sent.messageID)
      expect(open?.parts).toContainEqual(expect.objectContaining({ type: "tool", tool: "glob", state: "pending" }))
      await driver.opencode.abort(sessionID)
      const since = await driver.answered(sent)
      expect(since[1]?.parts).toContainEqual(expect.objectContaining({ type: "tool", state: "error", final: true }))
      expect(states().at(-1)).toBe("ended")
      driver.world.onPrompt("HALF", { text: "whole" })
      await driver.opencode.prompt({ ...sent, again: true })
      const again = await driver.world.eventually(async () => {
        const messages = await driver.opencode.messagesSince(sessionID, sent.messageID)
        return messages.length > 2 && messages.at(-1)?.finish !== undefined && messages
      })
      expect(answerText(again)).toBe("whole")
    })

    test("a model that answers with nothing is asked again and again", async () => {
      driver.world.onPrompt("EMPTY", { empty: true })
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "EMPTY")
      const since = await driver.world.eventually(async () => {
        const messages = await driver.opencode.messagesSince(sessionID, sent.messageID)
        return emptiesIn(withMessages(NOTHING_OBSERVED, messages)).length >= 3 && messages
      })
      expect(since.find(({ role }) => role === "assistant")?.finish).toBe("unknown")
      await driver.heard(sessionID, "answered", 3)
      await driver.opencode.abort(sessionID)
      await driver.world.eventually(() => driver.isIdle(sessionID))
    })

    test("a run with an unknown finish reason has not ended: OpenCode asks the model again", async () => {
      driver.world.onPrompt("ODD", { text: "hm", finish: "odd" }, { text: "hm", finish: "odd" }, { text: "done" })
      const sessionID = await driver.child()
      const since = await driver.answered(await driver.send(sessionID, "ODD"))
      expect(since.map(({ finish }) => finish)).toEqual([undefined, "unknown", "unknown", "done"])
    })

    test("an answer that the provider's content filter stopped ends with an error", async () => {
      driver.world.onPrompt("FILTER", { text: "so far", finish: "content_filter" })
      const sessionID = await driver.child()
      const since = await driver.answered(await driver.send(sessionID, "FILTER"))
      expect(since[1]).toMatchObject({ finish: "other: content-filter", error: {} })
    })

    test("a request that is refused once is repeated by OpenCode itself and answered in the same message", async () => {
      const refusal = { status: 529, body: { error: { message: "Overloaded" } } }
      driver.world.onPrompt("ONCE", refusal, { text: "done" })
      const sessionID = await driver.child()
      const since = await driver.answered(await driver.send(sessionID, "ONCE"))
      expect(since.map(({ finish }) => finish)).toEqual([undefined, "done"])
      expect(answerText(since)).toBe("done")
      const told = driver.heardOf(sessionID).flatMap((event) => {
        if (event.type === "active" && event.activity.type === "retry") return ["refused"]
        return event.type === "began" || event.type === "answered" ? [event.type] : []
      })
      expect([...new Set(told)]).toEqual(["refused", "began", "answered"])
    })

    test("a conversation too long for its model is compacted by a separate request, and the run continues", async () => {
      const call = { name: "glob", args: { pattern: "*" } }
      // What was said is part of the request that compacts it.
      driver.world.onPrompt("BIG", { tools: [call], usage: { input: CONTEXT + 50_000 } }, { text: "in short" })
      driver.world.onPrompt("Continue if you have next steps", { text: "went on" })
      const sessionID = await driver.child({ agent: "build" })
      const sent = await driver.send(sessionID, "BIG", { agent: "build" })
      const since = await driver.world.eventually(async () => {
        const messages = await driver.opencode.messagesSince(sessionID, sent.messageID)
        return answerText(messages) === "went on" && (await driver.isIdle(sessionID)) && messages
      })
      const told = since.map(({ role, finish, summary }) => `${role} ${finish ?? ""} ${summary}`)
      const [asked, step, compaction, summary, goOn, answer] = told
      expect([asked, step]).toEqual(["user  false", "assistant called false"])
      expect([compaction, summary]).toEqual(["user  false", "assistant done true"])
      expect([goOn, answer, ...told.slice(6)]).toEqual(["user  false", "assistant done false"])
      const [first] = since[4]?.parts ?? []
      const words = expect.objectContaining({ type: "text", synthetic: true, continues: true })
      expect([since[2]?.parts, first]).toEqual([[{ type: "compaction" }], words])
    })

    test("an answer too long for its model is compacted too; the run continues and the answer is unchanged", async () => {
      driver.world.onPrompt("LAST", { text: "the answer", usage: { input: CONTEXT + 50_000 } }, { text: "in short" })
      driver.world.onPrompt("Continue if you have next steps", { text: "nothing left" })
      const sessionID = await driver.child({ agent: "build" })
      const since = await driver.answered(await driver.send(sessionID, "LAST", { agent: "build" }))
      const told = since.map(({ role, finish, summary }) => `${role} ${finish ?? ""} ${summary}`)
      const [compaction, continued] = [
        ["user  false", "assistant done true"],
        ["user  false", "assistant done false"],
      ]
      expect(told).toEqual(["user  false", "assistant done false", ...compaction, ...continued])
      expect([answerText(since), since.at(-1)?.parts[0]]).toMatchObject(["the answer", { text: "nothing left" }])
    })

    test("a compaction by the user ends the turn after the current step; its summary is no answer", async () => {
      const step = { tools: [{ name: "glob", args: { pattern: "*" } }], delay: 300 }
      driver.world.onPrompt("COMPACT", step, { text: "never asked for" })
      const sessionID = await driver.child({ agent: "build" })
      const sent = await driver.send(sessionID, "COMPACT", { agent: "build" })
      await driver.heard(sessionID, "active")
      await driver.world.eventually(
        async () => (await driver.opencode.messagesSince(sessionID, sent.messageID)).length > 1,
      )
      await driver.world.compact(sessionID)
      const since = await driver.world.eventually(async () => {
        const messages = await driver.opencode.messagesSince(sessionID, sent.messageID)
        const isWritten = isCutByCompaction(messages) && messages.at(-1)?.finish !== undefined
        return isWritten && (await driver.isIdle(sessionID)) && messages
      })
      expect(since.map(({ finish }) => finish)).toEqual([undefined, "called", undefined, "done"])
      expect([since[2]?.parts, since[3]?.summary]).toEqual([[{ type: "compaction", byUser: true }], true])
      expect(classify(since, "working")).toBeUndefined()
    })

    test("a shell command of the user asks no model and leaves a run's end and facts as they were", async () => {
      driver.world.onPrompt("SHELL", { text: "the answer" })
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "SHELL")
      const before = await driver.answered(sent)
      await driver.world.shell(sessionID, 1)
      await driver.world.eventually(async () => !(await driver.isIdle(sessionID)))
      await driver.world.eventually(() => driver.isIdle(sessionID))
      const since = await driver.opencode.messagesSince(sessionID, sent.messageID)
      expect(since.slice(0, 2)).toEqual(before)
      const [, , asked, ran, ...more] = since
      expect(asked).toMatchObject({ role: "user", parts: [{ type: "text", synthetic: true, shell: true }] })
      expect(ran).toMatchObject({ role: "assistant", parentID: asked?.id, completedAt: expect.any(Number) })
      expect(ran?.parts).toContainEqual(expect.objectContaining({ type: "tool", tool: "bash", state: "completed" }))
      expect([ran?.finish, ran?.error, more]).toEqual([undefined, undefined, []])
      for (const state of ["working", "idle"] as const) expect(classify(since, state)).toEqual(classify(before, state))
      expect(factsOf(since)).toEqual(factsOf(before))
      expect(withMessages(NOTHING_OBSERVED, since)).toEqual(withMessages(NOTHING_OBSERVED, before))
      expect(driver.typesOf(sessionID)).not.toContain("tool")
      expect(await driver.opencode.isAnsweredElsewhere(sessionID)).toBe(false)
    })

    test("a prompt that comes while the user runs a shell command is answered after that", async () => {
      driver.world.onPrompt("MEANWHILE", { text: "another" })
      const { sessionID, first } = await inShell(driver, 1)
      const sent = await driver.send(sessionID, "MEANWHILE")
      expect(answerText(await driver.answered(sent))).toBe("another")
      const since = await driver.opencode.messagesSince(sessionID, first.messageID)
      expect(since.map(({ role }) => role)).toEqual(["user", "assistant", "user", "assistant", "user", "assistant"])
    })

    test("a stop ends a shell command of the user, and a prompt that waits for it is stored and starts no turn", async () => {
      const { sessionID, first } = await inShell(driver, 60)
      const sent = await driver.send(sessionID, "waits for it")
      await driver.world.eventually(() => driver.opencode.hasMessage(sessionID, sent.messageID, 1))
      await driver.opencode.abort(sessionID)
      await driver.world.eventually(() => driver.isIdle(sessionID))
      await driver.world.pause()
      expect(await driver.isIdle(sessionID)).toBe(true)
      const since = await driver.opencode.messagesSince(sessionID, first.messageID)
      expect(since.map(({ role }) => role)).toEqual(["user", "assistant", "user", "assistant", "user"])
      expect(since[3]?.parts).toContainEqual(expect.objectContaining({ tool: "bash", state: "completed" }))
      expect([since[3]?.finish, since[3]?.error]).toEqual([undefined, undefined])
    })

    test("a run continues after tool calls, whatever finish reason the provider gives", async () => {
      const call = { tools: [{ name: "glob", args: { pattern: "*" } }], text: "Let me look.", finish: "stop" }
      driver.world.onPrompt("STOPS", call, { text: "seen" })
      const sessionID = await driver.child({ agent: "build" })
      const since = await driver.answered(await driver.send(sessionID, "STOPS", { agent: "build" }))
      expect(since.map(({ finish }) => finish)).toEqual([undefined, "called", "done"])
      expect(answerText(since)).toBe("seen")
    })

    test("a run may end with nothing except the model's reasoning", async () => {
      driver.world.onPrompt("THINKS", { text: "", reasoning: "I should stop here" })
      const sessionID = await driver.child()
      const since = await driver.answered(await driver.send(sessionID, "THINKS"))
      expect(since[1]?.parts).toEqual([{ type: "reasoning", text: "I should stop here" }])
      expect(classify(since, "working")).toMatchObject({ type: "completed", thought: "I should stop here" })
    })

    test("stopping a session that does no work has no effect", async () => {
      const sessionID = await driver.child()
      await driver.opencode.abort(sessionID)
      expect(await driver.isIdle(sessionID)).toBe(true)
      expect(await driver.opencode.lastMessage(sessionID)).toBeUndefined()
    })
  })
}
