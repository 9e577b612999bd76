import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, expect, test } from "vitest"
import { openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launch, notified, startPlugged } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model)
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

test("the content of a file named with @ in a prompt is in the child's first request", async () => {
  mkdirSync(join(opencode.directory, "notes"), { recursive: true })
  writeFileSync(join(opencode.directory, "notes/plan.md"), "the plan says 4711\n")
  const seen: string[] = []
  model.use((request) => {
    if (!request.firstUser.includes("MENTION")) return undefined
    seen.push(JSON.stringify(request))
    return { text: "Read." }
  })
  const sessionID = await openSession(opencode)
  await launch(opencode, model, sessionID, { prompt: "MENTION @notes/plan.md", description: "Read the plan" })
  const [notice] = await notified(opencode, sessionID)
  expect(notice?.visible).toContain("finished")
  expect(seen[0]).toContain("the plan says 4711")
})
