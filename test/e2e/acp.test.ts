import { afterAll, beforeAll, expect, test } from "vitest"
import { type Editor, startEditor } from "../support/acp.ts"
import { eventually } from "../support/eventually.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { isNotification, PACKAGE } from "../support/plugin.ts"

let model: ScriptedModel
let editor: Editor

beforeAll(async () => {
  model = await startModel()
  editor = await startEditor({ model, plugin: [PACKAGE] })
})

afterAll(async () => {
  await editor?.stop()
  await model?.close()
})

test("the tools work over ACP, and a woken parent's text reaches the editor after its prompt has ended", async () => {
  model.use((request) => {
    if (request.firstUser === "Look around") return { text: "All is quiet.", delay: 1500 }
    if (isNotification(request.lastUser)) {
      const [id] = /bg_[a-z0-9]{8}/.exec(JSON.stringify(request.messages)) ?? []
      if (request.sinceUser.length > 0) return { text: `It said: ${request.toolResults.at(-1)?.content}` }
      return { tools: [{ name: "superagents_output", args: { task_id: id } }] }
    }
    if (request.lastUser !== "Please launch") return undefined
    const args = { description: "Look around", prompt: "Look around", agent: "general" }
    return request.sinceUser.length === 0 ? { tools: [{ name: "superagents_task", args }] } : { text: "Launched." }
  })
  const sessionID = await editor.open()
  expect(await editor.prompt(sessionID, "Please launch")).toBe("end_turn")
  expect(editor.said()).toContain("Launched.")
  expect(editor.said()).not.toContain("All is quiet.")
  const calls = () => editor.updates.flatMap((each) => (each.sessionUpdate === "tool_call_update" ? [each] : []))
  expect(calls().at(-1)).toMatchObject({ status: "completed" })
  await eventually(() => editor.said().includes("All is quiet."), {
    timeout: 30_000,
    message: () => `${JSON.stringify(editor.updates, null, 1)}\n${editor.logs()}`,
  })
  expect(editor.said()).toMatch(/^Launched\.It said: Task: bg_/)
  // The notification itself is a message of the user's side, which editors write and do not read.
  expect(editor.updates.map(({ sessionUpdate }) => sessionUpdate)).not.toContain("user_message_chunk")
})
