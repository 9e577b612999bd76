import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { callTool, openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launch, notified, startPlugged } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, {}, { config: { snapshot: true } })
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

describe("the output of an ended task", () => {
  test("the output of an ended task names the files that the task changed", async () => {
    model.use((request) => {
      if (!request.lastUser.startsWith("WRITE")) return undefined
      const filePath = `${opencode.directory}/made-by-the-child.txt`
      return request.sinceUser.length === 0
        ? { tools: [{ name: "write", args: { filePath, content: "hello\n" } }] }
        : { text: "written" }
    })
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "WRITE a file" })
    await notified(opencode, session)
    const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: id })
    expect(output).toContain("Files changed: made-by-the-child.txt")
  })

  test("the output of an ended task leaves out changes that somebody else made in the folder meanwhile", async () => {
    model.use((request) => {
      if (!request.lastUser.startsWith("READ")) return undefined
      // Another is at work beside it.
      writeFileSync(join(opencode.directory, "NOTES.md"), `note ${request.sinceUser.length}\n`)
      const filePath = join(opencode.directory, "opencode.json")
      return request.sinceUser.length === 0 ? { tools: [{ name: "read", args: { filePath } }] } : { text: "read" }
    })
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "READ a file" })
    await notified(opencode, session)
    const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: id })
    expect(output).not.toContain("Files changed")
    expect(output).toContain("Changed in the folder meanwhile, perhaps by others: NOTES.md")
  })
})
