import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, expect, test } from "vitest"
import { callTool, eventually, openSession, say, unwrap } from "../support/drive.ts"
import type { Moment } from "../support/fixtures/dying-plugin.ts"
import { decodeRecord } from "../support/groups.ts"
import { fates } from "../support/killing.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { PACKAGE, startPlugged } from "../support/plugin.ts"
import { isRunning } from "../support/process-id.ts"

/** OpenCode dies at named moments of the plugin's own work; what is left must be one end, told once. */

const DYING = fileURLToPath(new URL("../support/fixtures/dying-plugin.ts", import.meta.url))
const PROMPT = { method: "POST", path: "/prompt_async$" }
const RECORD = { method: "PATCH", path: "/session/[^/]+$" }

let model: ScriptedModel
let opencode: Opencode
let folder: string

beforeAll(async () => {
  model = await startModel()
  folder = mkdtempSync(join(tmpdir(), "superagents-moments-"))
  const options = { entry: `file://${PACKAGE}/dist/server.js`, orders: join(folder, "orders") }
  opencode = await startPlugged(model, options, { plugin: DYING })
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
  rmSync(folder, { recursive: true, force: true })
})

/** A parent hands a job over, OpenCode dies at this moment and comes back: what became of the job. */
async function lifeThatDies(moment: Moment) {
  const finish = "event" in moment ? moment.finish.replace("-", "_") : undefined
  model.reset()
  model.use(({ lastUser, sinceUser }) => {
    if (sinceUser.length > 0) return undefined
    const args = { description: "the job", prompt: "THE JOB", agent: "general" }
    if (lastUser === "hand it over") return { tools: [{ name: "superagents_task", args }] }
    if (lastUser !== "THE JOB" || finish === undefined) return undefined
    return { text: "Let me look at it", tools: [{ name: "glob", args: { pattern: "*" } }], finish }
  })
  const { pid } = opencode
  const session = await openSession(opencode)
  writeFileSync(join(folder, "orders"), JSON.stringify(moment))
  await say(opencode, session, "hand it over").catch(() => {})
  await eventually(() => !isRunning(pid), { timeout: 90_000, message: () => `OpenCode dies ${opencode.logs()}` })
  await opencode.restart()
  const tasks = async () =>
    (await unwrap(opencode.client.session.children({ sessionID: session }))).flatMap(
      (child) => decodeRecord(child)?.task ?? [],
    )
  const ids = (await tasks()).map(({ id }) => id)
  const told = ids.length > 0 ? await fates(opencode, model, session, ids) : []
  // What is still to be written of it would be taken for the next life's.
  await eventually(async () => (await tasks()).every(({ delivery }) => delivery.state === "confirmed"), {
    timeout: 60_000,
  })
  return { session, ids, told }
}

/** The child has done one step of two when its OpenCode dies: its plan is half done. */
const ROUNDS = Number(process.env.SUPERAGENTS_GAP_ROUNDS ?? 2)

test.each([
  ["tool-calls", ROUNDS],
  ["stop", 1],
])(
  "OpenCode's death after a step of the child with calls and finish reason %s interrupts the task once, in each of %i rounds",
  {
    timeout: 60_000 + ROUNDS * 60_000,
  },
  async (finish, rounds) => {
    for (let round = 0; round < rounds; round++) {
      const { session, ids, told } = await lifeThatDies({ event: "message.updated", finish })
      expect(told).toEqual([{ id: ids[0], status: "error", notifications: 1 }])
      const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: ids[0] })
      expect(output).toContain("OpenCode stopped or was restarted while it ran: it was interrupted.")
    }
  },
)

test.each<[string, Moment, status: string]>([
  ["before the child's session is made", { method: "POST", path: "/session$", nth: 1, when: "before" }, "none"],
  ["before the prompt is accepted", { ...PROMPT, nth: 1, when: "before" }, "error"],
  ["when the prompt was just accepted", { ...PROMPT, nth: 1, when: "after" }, "error"],
  ["between the child's end and the notification", { ...PROMPT, nth: 2, when: "before" }, "completed"],
  ["when the notification was just accepted", { ...PROMPT, nth: 2, when: "after" }, "completed"],
  ["between the notification and the record of the end", { ...RECORD, nth: 1, when: "before" }, "completed"],
  ["after the record of the end", { ...RECORD, nth: 1, when: "after" }, "completed"],
])(
  "a task gets at most one end and one notification if OpenCode dies %s",
  { timeout: 180_000 },
  async (_name, moment, status) => {
    const { session, ids, told } = await lifeThatDies(moment)
    if (status === "none") return expect(ids).toEqual([])
    expect(ids).toHaveLength(1)
    expect(told, session).toEqual([{ id: ids[0], status, notifications: 1 }])
  },
)
