import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { boardFolder, call, callBoard, idIn, saidIn, stored, taskOf } from "../support/board.ts"
import { ask, eventually, idle, openSession } from "../support/drive.ts"
import type { Host } from "../support/host.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { PACKAGE, startPlugged } from "../support/plugin.ts"
import { startTui, type Tui } from "../support/tui.ts"

/** Where a person comes in: permissions that nobody answers, and the board in the terminal. */

const PERMISSION_TIMEOUT_MS = 3000
const DIALOG_MS = 300
/** What a terminal says when its window is no longer the one in front. */
const FOCUS_LOST = "\u001B[O"

let model: ScriptedModel
let host: Host
let tui: Tui | undefined

beforeAll(async () => {
  model = await startModel()
  const options = { board: { schedule: "0 0 1 1 *" }, permissionTimeout: PERMISSION_TIMEOUT_MS }
  host = await startPlugged(model, options, { permission: { "*": "allow", bash: { "*": "ask" } } })
  await ask(host, await openSession(host), "warm up")
})
afterAll(async () => {
  await tui?.stop()
  await host?.stop()
  await model?.close()
})
beforeEach(() => model.reset())

test("a permission that nobody gives is refused in time, and the task says what was asked until somebody writes", async () => {
  model.use((request) => {
    if (!taskOf(request) || saidIn(request) > 0) return undefined
    return request.lastUser.includes("Work on the task")
      ? { tools: [{ name: "bash", args: { command: "rm -r dist", description: "Clean" } }] }
      : { text: "Thank you." }
  })
  const session = await openSession(host)
  const id = idIn(await callBoard(host, model, session, "create_task", { title: "Clean", owner: "general" }))
  const shown = () => callBoard(host, model, session, "get_task", { task_id: id })
  await eventually(async () => /running|in its thread: bash: rm -r dist/.test(await shown()), { timeout: 20_000 })
  const { threadId } = stored(host, id)
  await model
    .waitFor((request) => request.sessionID === threadId && saidIn(request) > 0, { timeout: 30_000 })
    .catch(() => {})
  await idle(host, threadId, { timeout: 30_000 })
  await eventually(async () => (await shown()).includes("in its thread: bash: rm -r dist"), {
    timeout: 20_000,
    message: () => host.logs(),
  })
  await ask(host, threadId, "You may not, leave it")
  expect(await shown()).not.toContain("waits for the user")
  await callBoard(host, model, session, "cancel_task", { task_id: id })
})

test("the terminal shows active tasks in the sidebar, /board opens their threads, and the desktop hears who is needed", {
  timeout: 180_000,
}, async () => {
  const session = await openSession(host, { title: "A session of the terminal" })
  const made = await callBoard(host, model, session, "create_task", {
    title: "Migrate the loader",
    steps: ["a", "b", "c"].map((title, index) => ({ title, done: index < 2 })),
  })
  tui = await startTui({
    host,
    sessionID: session,
    plugin: [[PACKAGE, { osNotifications: true }]],
    config: { attention: { enabled: true } },
  })
  await tui.waitFor(/Board\s+1 active/, { timeout: 60_000 })
  await tui.waitFor(new RegExp(`#${idIn(made)} Migrate the loader 2/3`))
  await tui.type("/board")
  await tui.waitFor("/board")
  await tui.keys("Enter")
  await tui.waitFor(/Board\s+esc/)
  const other = await callBoard(host, model, session, "create_task", { title: "Made meanwhile" })
  // The sidebar says nothing of the next run.
  await tui.waitFor(/Made meanwhile next run/, { timeout: 30_000 })
  await callBoard(host, model, session, "complete_task", { task_id: idIn(other) })
  await tui.waitFor((text) => !text.includes("Made meanwhile next run"), { timeout: 30_000 })
  await sleep(DIALOG_MS)
  await tui.keys("Enter")
  await tui.waitFor(`#${idIn(made)} Migrate the loader`)
  const shown = tui
  shown.type(FOCUS_LOST)
  await callBoard(host, model, stored(host, idIn(made)).threadId, "notify_user", { message: "Which licence?" })
  const desktop = [`#${idIn(made)} Migrate the loader`, "Which licence?"]
  await eventually(() => desktop.every((text) => shown.notifications().includes(text)), {
    message: () => `the desktop is told: ${shown.notifications()}`,
  })
  model.use((request) => (taskOf(request) ? call("complete_task", { task_id: idIn(made) }) : undefined))
  await callBoard(host, model, session, "complete_task", { task_id: idIn(made) })
  await tui.waitFor((text) => !text.includes("1 active"), { timeout: 30_000 })
})

test("/board has its cursor on one task, of those that have no thread, too", async () => {
  const ids = ["101", "102", "103"]
  const tasks = ids.map((id) => ({ id, title: `Written by hand ${id}`, owner: "build", status: "draft" }))
  mkdirSync(boardFolder(host), { recursive: true })
  writeFileSync(join(boardFolder(host), "tasks.json"), JSON.stringify({ tasks, nextId: 104 }))
  const session = await openSession(host, { title: "Another session" })
  await tui?.stop()
  tui = await startTui({ host, sessionID: session, plugin: [PACKAGE] })
  await tui.type("/board")
  await tui.waitFor(/\/board\s+See the project/)
  await tui.keys("Enter")
  await tui.waitFor("Written by hand 103")
  await sleep(DIALOG_MS)
  const rows = tui.cells().flatMap((cells) => {
    const at = cells
      .map(({ text }) => text || " ")
      .join("")
      .indexOf("Written by hand")
    return at < 0 ? [] : [cells[at]?.background]
  })
  expect(rows).toHaveLength(3)
  expect(rows.filter((colour) => colour === rows[0])).toHaveLength(1)
  await tui.keys("Down", "Down", "Enter")
  await tui.waitFor("Its thread is made when the task is first worked on.")
})
