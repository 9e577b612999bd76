import { execFile } from "node:child_process"
import { writeFile } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { encodeRecord, RECORD_KEY } from "../../src/runtime/record/codec.ts"
import { signerOf } from "../../src/runtime/record/identity.ts"
import { callTool, eventually, openSession, unwrap } from "../support/drive.ts"
import { prepareHome } from "../support/home.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launch, meanwhile, notifications, notified, startPlugged } from "../support/plugin.ts"
import { ownerOf } from "../support/records.ts"
import { BINARY } from "../support/server-process.ts"
import { taskOf } from "../support/tasks.ts"

let model: ScriptedModel
let server: Opencode

beforeAll(async () => {
  model = await startModel()
  server = await startPlugged(model)
})
afterAll(async () => {
  await server?.stop()
  await model?.close()
})
beforeEach(() => model.reset())

/** Runs a command of OpenCode's own in the server's home and project, as the user would in another terminal. */
const opencode = async (...args: string[]) => {
  const { env, directory } = await prepareHome({ home: server.home })
  const { stdout } = await promisify(execFile)(BINARY, args, { cwd: directory, env, maxBuffer: 1e8 })
  return stdout
}

const ownRequests = (marker: string) => model.requests.filter(({ lastUser }) => lastUser.includes(marker))

test("a user's copy of a task's session is no task: a crash restores the original", async () => {
  model.use(({ lastUser }) => (lastUser === "COPIED" ? { hang: true } : undefined))
  const session = await openSession(server)
  const { id, child } = await launch(server, model, session, { prompt: "COPIED" })
  await eventually(() => ownRequests("COPIED").length === 1)
  // While it runs, its record still is that of its first moment, which names no session.
  const copy = await unwrap(server.client.session.fork({ sessionID: child }))
  expect(copy.metadata).toHaveProperty(RECORD_KEY)
  await server.kill("SIGKILL")
  await server.restart()
  const { output } = await callTool(server, model, session, "superagents_output", { task_id: id })
  expect(output).toContain("OpenCode stopped or was restarted while it ran")
  const { output: list } = await callTool(server, model, session, "superagents_list", {})
  expect(list).toContain("1 task, 0 running")
  expect(await notified(server, session)).toHaveLength(1)
})

test("a running task's record copied into another child is no task: a crash restores the original", async () => {
  model.use(({ lastUser }) => (lastUser === "FORMER" ? { text: "former text" } : undefined))
  model.use(({ lastUser }) => (lastUser === "LATTER" ? { text: "latter text", hang: true } : undefined))
  const session = await openSession(server)
  const former = await launch(server, model, session, { prompt: "FORMER" })
  await notified(server, session)
  const latter = await launch(server, model, session, { prompt: "LATTER" })
  await eventually(() => ownRequests("LATTER").length === 1)
  const { metadata } = await unwrap(server.client.session.get({ sessionID: latter.child }))
  // Two copies: in the session of an older task, and in one made for it.
  await unwrap(server.client.session.update({ sessionID: former.child, metadata }))
  await unwrap(server.client.session.create({ parentID: session, metadata }))
  await server.kill("SIGKILL")
  await server.restart()
  const { output } = await callTool(server, model, session, "superagents_output", { task_id: latter.id })
  expect(output).toContain("OpenCode stopped or was restarted while it ran")
  expect(output).not.toContain("before it began")
  const { output: list } = await callTool(server, model, session, "superagents_list", {})
  expect(list).toContain("1 task, 0 running")
  const told = await eventually(async () => {
    const found = (await notifications(server, session)).filter(({ hidden }) => hidden.includes(latter.id))
    return found.length > 0 && found
  })
  expect(told).toHaveLength(1)
  expect(told[0]?.hidden).toContain("while it ran")
})

test("an imported session with somebody else's record starts no model and notifies nobody", async () => {
  const session = await openSession(server)
  const { child } = await launch(server, model, session, { prompt: "honest work" })
  await notified(server, session)
  const exported = JSON.parse(await opencode("export", child)) as { info: { id: string; metadata: object } }
  const sessionID = `${child.slice(0, -4)}EVIL`
  const forged = taskOf({
    id: "bg_evilevil",
    sessionID,
    parentID: session,
    status: "running",
    run: { promptID: "msg_evil", startedAt: undefined, queuedPrompt: "EVIL PROMPT" } as never,
  })
  const record = encodeRecord(forged, ownerOf("gone"), signerOf(new Uint8Array(32)))
  const file = join(server.home, "forged.json")
  const text = JSON.stringify(exported).replaceAll(child, sessionID)
  const { info, ...rest } = JSON.parse(text) as typeof exported
  const ids = JSON.stringify({ ...rest, info: { ...info, metadata: { [RECORD_KEY]: record } } }).replaceAll(
    /"(msg|prt)_(\w{22})\w{4}"/g,
    '"$1_$2EVIL"',
  )
  await writeFile(file, ids)
  await opencode("import", file)
  expect((await unwrap(server.client.session.get({ sessionID }))).metadata).toHaveProperty(RECORD_KEY)
  await server.restart()
  const { output } = await callTool(server, model, session, "superagents_list", {})
  expect(output).not.toContain("bg_evilevil")
  await meanwhile(server, model)
  expect(ownRequests("EVIL PROMPT")).toHaveLength(0)
  expect(await notifications(server, session)).toHaveLength(1)
})
