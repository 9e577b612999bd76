import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { ask, callTool, callTools, openSession, unwrap } from "../support/drive.ts"
import { notificationsOf, statuses } from "../support/killing.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { textOf } from "../support/model-request.ts"
import type { Opencode } from "../support/opencode.ts"
import { launch, notified, startPlugged } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model)
  model.use((request) => (request.lastUser.startsWith("HANG") ? { hang: true } : undefined))
  model.use((request) => (request.lastUser === "the word is tulip" ? { text: "I remember tulip" } : undefined))
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

const resume = (session: string, id: string, prompt: string) =>
  callTool(opencode, model, session, "superagents_task", { resume: id, prompt })

describe("a task launched with fork", () => {
  test("a fork knows the conversation before the current call, has its prompt last, and is marked in lists", async () => {
    const session = await openSession(opencode)
    await ask(opencode, session, "the word is tulip")
    const { id, child, output } = await launch(opencode, model, session, { prompt: "WHICH WORD", fork: true })
    expect(output).toMatch(/Inherited: 3 messages, about [\d,]+ tokens/)
    const request = await model.waitFor(({ sessionID }) => sessionID === child)
    const said = request.messages
      .filter(({ role }) => role !== "system")
      .map(({ role, content }) => [role, textOf(content)])
    expect(said[0]).toEqual(["user", "the word is tulip"])
    expect(said[1]).toEqual(["assistant", "I remember tulip"])
    expect(said.at(-1)?.[0]).toBe("user")
    expect(said.at(-1)?.[1]).toContain("WHICH WORD")
    expect(JSON.stringify(request.messages)).not.toContain("tool_calls")
    expect(request.tools).not.toContain("superagents_task")
    await notified(opencode, session)
    const list = await callTool(opencode, model, session, "superagents_list", {})
    expect(list.output).toContain(`${id} (forked) `)
    expect(list.output).toContain("| 120 tokens, $0.0001")
  })

  test("a task launched with fork is restored after a restart like any other", async () => {
    const session = await openSession(opencode)
    await ask(opencode, session, "the word is tulip")
    const { id } = await launch(opencode, model, session, { prompt: "HANG forked", fork: true })
    await model.waitFor(({ lastUser }) => lastUser.startsWith("HANG forked"))
    await opencode.kill("SIGKILL")
    await opencode.restart()
    expect((await statuses(opencode, model, session)).get(id)).toBe("error")
    await notified(opencode, session)
    expect(await notificationsOf(opencode, session, [id])).toEqual([1])
  })

  test("a fork whose parent is deleted is deleted too, and nobody is notified", async () => {
    const session = await openSession(opencode)
    await ask(opencode, session, "the word is tulip")
    const { child } = await launch(opencode, model, session, { prompt: "HANG with the parent", fork: true })
    const request = await model.waitFor(({ lastUser }) => lastUser.startsWith("HANG with the parent"))
    await unwrap(opencode.client.session.delete({ sessionID: session }))
    await opencode.events.waitFor((event) => event.type === "session.deleted" && event.properties.info.id === child)
    if (!request.aborted.aborted)
      await new Promise((resolve) => request.aborted.addEventListener("abort", resolve, { once: true }))
  })
})

describe("a completed task", () => {
  test("a completed task can be resumed twice: it remembers, counts the runs, and notifies once each time", async () => {
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "first question" })
    await notified(opencode, session)
    for (const count of [1, 2]) {
      model.use((request) => (request.lastUser === `follow-up ${count}` ? { text: `answer ${count}` } : undefined))
      const resumed = await resume(session, id, `follow-up ${count}`)
      expect(resumed.output).toContain(`Resume #${count} of task ${id}`)
      const all = await notified(opencode, session, count + 1)
      expect(all[count]?.visible).toMatch(
        new RegExp(`^✓ \\*\\*Resume #${count} completed in [\\d.]+m?s\\.\\*\\*\\nTask Progress: 1/1$`),
      )
      const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: id })
      expect(output).toContain(`\nanswer ${count}\n`)
      expect(output).not.toContain(`answer ${count - 1}\n`)
    }
    const last = model.requests.findLast(({ sessionID }) => sessionID === child)
    expect(last?.userTexts).toEqual(["first question", "follow-up 1", "follow-up 2"])
    const { output } = await callTool(opencode, model, session, "superagents_list", {})
    expect(output).toContain(`${id} (resumed) `)
  })

  test("of two simultaneous resumes of one task only one succeeds, and a task being resumed cannot be resumed", async () => {
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "asked by two" })
    await notified(opencode, session)
    const call = { name: "superagents_task", args: { resume: id, prompt: "HANG resumed" } }
    const outcomes = await callTools(opencode, model, session, [call, call])
    expect(outcomes.map(({ status }) => status).sort()).toEqual(["completed", "error"])
    const again = await resume(session, id, "once more")
    expect(again.error).toContain("is currently being resumed")
    const listed = await callTool(opencode, model, session, "superagents_list", { status: "resumed" })
    expect(listed.output).toContain(id)
    await callTool(opencode, model, session, "superagents_cancel", { all: true })
  })

  test("the output tool can block on a resumed task, and the wait does not wake the parent again", async () => {
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "to be waited for" })
    await notified(opencode, session)
    model.use((request) => (request.lastUser === "slowly" ? { text: "here it is", delay: 1500 } : undefined))
    await resume(session, id, "slowly")
    const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: id, block: true })
    expect(output).toContain("here it is")
  })
})

describe("a refused resume", () => {
  test("a resume is refused for a running or failed task, another session's, and one without a session", async () => {
    const session = await openSession(opencode)
    const running = await launch(opencode, model, session, { prompt: "HANG on" })
    expect((await resume(session, running.id, "more")).error).toContain("Only completed tasks can be resumed")
    await callTool(opencode, model, session, "superagents_cancel", { task_id: running.id })
    expect((await resume(session, running.id, "more")).error).toContain(`task ${running.id} is cancelled`)

    const done = await launch(opencode, model, session, { prompt: "done soon" })
    await notified(opencode, session, 2)
    const other = await openSession(opencode)
    expect((await resume(other, done.id, "more")).error).toContain(`No task "${done.id}"`)
    await unwrap(opencode.client.session.delete({ sessionID: done.child }))
    const gone = await resume(session, done.id, "more")
    expect(gone.error).toContain("no longer exists")
    expect(gone.error).toContain("Start a new superagents_task")
  })
})
