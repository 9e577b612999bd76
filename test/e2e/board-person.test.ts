import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { countedOn } from "../../bench/support/call-log.ts"
import {
  archived,
  boardFile,
  boardFolder,
  call,
  callBoard,
  idIn,
  keptBoard,
  saidIn,
  stored,
  taskOf,
} from "../support/board.ts"
import { ask, eventually, idle, openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { PACKAGE, startPlugged } from "../support/plugin.ts"
import { startTui, type Tui } from "../support/tui.ts"

/** Where a person comes in: permissions that nobody answers, and the board in the terminal. */

const OPTIONS = { board: { schedule: "0 0 1 1 *" }, permissionTimeout: 3000 }
const DIALOG_MS = 300
/** Two looks at OpenCode that follow one another so soon, in ms, come back to back. */
const HASTY_MS = 700
/** What a terminal says when its window is no longer the one in front. */
const FOCUS_LOST = "\u001B[O"

let model: ScriptedModel
let opencode: Opencode
let tui: Tui | undefined

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, OPTIONS, { permission: { "*": "allow", bash: { "*": "ask" } } })
  await ask(opencode, await openSession(opencode), "warm up")
})
afterAll(async () => {
  await tui?.stop()
  await opencode?.stop()
  await model?.close()
})
beforeEach(() => model.reset())

test("a permission that nobody answers is refused in time, and the board task shows it until somebody writes", async () => {
  model.use((request) => {
    if (!taskOf(request) || saidIn(request) > 0) return undefined
    return request.lastUser.includes("Work on the task")
      ? { tools: [{ name: "bash", args: { command: "rm -r dist", description: "Clean" } }] }
      : { text: "Thank you." }
  })
  const session = await openSession(opencode)
  const id = idIn(await callBoard(opencode, model, session, "create_task", { title: "Clean", owner: "general" }))
  const shown = () => callBoard(opencode, model, session, "get_task", { task_id: id })
  await eventually(async () => /running|in its thread: bash: rm -r dist/.test(await shown()), { timeout: 20_000 })
  const { threadId } = stored(opencode, id)
  await model
    .waitFor((request) => request.sessionID === threadId && saidIn(request) > 0, { timeout: 30_000 })
    .catch(() => {})
  await idle(opencode, threadId, { timeout: 30_000 })
  await eventually(async () => (await shown()).includes("in its thread: bash: rm -r dist"), {
    timeout: 20_000,
    message: () => opencode.logs(),
  })
  await ask(opencode, threadId, "You may not, leave it")
  expect(await shown()).not.toContain("waits for the user")
  await callBoard(opencode, model, session, "cancel_task", { task_id: id })
})

/** The same OpenCode with the plugin's calls to it written down. The terminal would not find the plugin's options there. */
async function countedHost() {
  const { log, wrapped, plugin } = countedOn(`file://${PACKAGE}/dist/server.js`, OPTIONS)
  const opencode = await startPlugged(model, wrapped, { plugin })
  return { opencode, calls: log, [Symbol.asyncDispose]: () => opencode.stop() }
}

test("OpenCode is polled only now and then during a person's own turn in a thread whose model refuses", async () => {
  await using counted = await countedHost()
  const { opencode, calls } = counted
  let isShut = false
  const refused: number[] = []
  model.use((request) => {
    if (!taskOf(request)) return undefined
    if (isShut) {
      refused.push(Date.now())
      return { status: 429, body: { error: { message: "Rate limit reached." } } }
    }
    return saidIn(request) > 0 ? { text: "Thank you." } : { text: "Waiting." }
  })
  const session = await openSession(opencode)
  const id = idIn(await callBoard(opencode, model, session, "create_task", { title: "Refused", owner: "general" }))
  await eventually(() => stored(opencode, id).threadId !== undefined, { timeout: 20_000 })
  const { threadId } = stored(opencode, id)
  await idle(opencode, threadId, { timeout: 30_000 })
  isShut = true
  const since = Date.now()
  await opencode.client.session.promptAsync({ sessionID: threadId, parts: [{ type: "text", text: "And now?" }] })
  await eventually(() => refused.length >= 4, { timeout: 90_000, message: () => opencode.logs() })
  const looks = (await calls.read()).filter(({ at, route }) => at >= since && route === "GET /session/status")
  const hasty = looks.filter(({ at }, nth) => at - (looks[nth - 1]?.at ?? 0) < HASTY_MS)
  isShut = false
  await opencode.client.session.abort({ sessionID: threadId })
  await callBoard(opencode, model, session, "cancel_task", { task_id: id })
  expect(looks.length).toBeGreaterThan(0)
  expect(hasty.length).toBeLessThan(5)
})

test("the terminal lists active tasks in the sidebar, /board opens their threads, and the desktop notifies the person", {
  timeout: 180_000,
}, async () => {
  const session = await openSession(opencode, { title: "A session of the terminal" })
  const made = await callBoard(opencode, model, session, "create_task", {
    title: "Migrate the loader",
    steps: ["a", "b", "c"].map((title, index) => ({ title, done: index < 2 })),
  })
  tui = await startTui({
    opencode,
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
  const other = await callBoard(opencode, model, session, "create_task", { title: "Made meanwhile" })
  // The sidebar says nothing of the next run.
  await tui.waitFor(/Made meanwhile next run/, { timeout: 30_000 })
  await callBoard(opencode, model, session, "complete_task", { task_id: idIn(other) })
  await tui.waitFor((text) => !text.includes("Made meanwhile next run"), { timeout: 30_000 })
  await sleep(DIALOG_MS)
  await tui.keys("Enter")
  await tui.waitFor("Open its thread")
  await sleep(DIALOG_MS)
  await tui.keys("Enter")
  await tui.waitFor((text) => !text.includes("Open its thread") && text.includes("Migrate the loader"))
  const shown = tui
  shown.type(FOCUS_LOST)
  await callBoard(opencode, model, stored(opencode, idIn(made)).threadId, "notify_user", { message: "Which licence?" })
  const desktop = [`#${idIn(made)} Migrate the loader`, "Which licence?"]
  await eventually(() => desktop.every((text) => shown.notifications().includes(text)), {
    message: () => `the desktop is told: ${shown.notifications()}`,
  })
  model.use((request) => (taskOf(request) ? call("complete_task", { task_id: idIn(made) }) : undefined))
  await callBoard(opencode, model, session, "complete_task", { task_id: idIn(made) })
  await tui.waitFor((text) => !text.includes("1 active"), { timeout: 30_000 })
})

/** Opens `/board`, and the task of this title in it. */
async function openTask(shown: Tui, title: string): Promise<void> {
  await shown.type("/board")
  await shown.waitFor(/\/board\s+See the project/)
  await shown.keys("Enter")
  await shown.waitFor(/Board\s+esc/)
  await pick(shown, title)
}

/** Picks a row of the list that is open by what it says. */
async function pick(shown: Tui, row: string): Promise<void> {
  await sleep(DIALOG_MS)
  await shown.type(row)
  await sleep(DIALOG_MS)
  await shown.keys("Enter")
}

test("/board answers, completes and cancels tasks, starts what a user's edit added, and restores deleted ones", {
  timeout: 240_000,
}, async () => {
  const session = await openSession(opencode, { title: "A third session" })
  await tui?.stop()
  tui = await startTui({ opencode, sessionID: session, plugin: [PACKAGE] })
  model.use((request) => {
    if (!taskOf(request) || saidIn(request) > 0) return undefined
    if (!request.lastUser.includes("Work on the task")) return { text: "I see." }
    return { tools: [{ name: "tasks_notify_user", args: { message: "Which licence?" } }] }
  })
  const asked = idIn(await callBoard(opencode, model, session, "create_task", { title: "Choose it", owner: "general" }))
  const { threadId } = stored(opencode, asked)
  await eventually(() => keptBoard(opencode).pulses[asked]?.needs === "Which licence?", { timeout: 30_000 })
  await idle(opencode, threadId)
  // The terminal reads the board when it hears of something: its list says when it knows.
  await tui.waitFor(/Choose it\s+needs you/, { timeout: 30_000 })
  await openTask(tui, "Choose it")
  await tui.waitFor(/Answer\s+Which licence\?/)
  await sleep(DIALOG_MS)
  await tui.keys("Enter")
  await tui.waitFor("Say to:")
  await tui.type("MIT, please")
  await tui.keys("Enter")
  await model.waitFor((request) => request.sessionID === threadId && request.lastUser === "MIT, please", {
    timeout: 30_000,
  })
  await eventually(() => keptBoard(opencode).pulses[asked]?.needs === undefined, { timeout: 30_000 })
  await idle(opencode, threadId)
  await openTask(tui, "Choose it")
  await tui.waitFor("Complete it")
  await pick(tui, "Complete it")
  expect(await archived(opencode, asked)).toMatchObject({ status: "done", archivedBy: "user" })

  const file = join(boardFolder(opencode), "tasks.json")
  const board = boardFile(opencode)
  const planted = { id: "201", title: "From outside", owner: "general", status: "active" }
  const plant = (description: string) =>
    writeFileSync(file, JSON.stringify({ ...board, tasks: [...board.tasks, { ...planted, description }] }))
  plant("Read the fine print.")
  await tui.waitFor(/From outside\s+waiting for a per/, { timeout: 30_000 })
  await openTask(tui, "From outside")
  await tui.waitFor("Look at it")
  await sleep(DIALOG_MS)
  await tui.keys("Enter")
  await tui.waitFor("Read the fine print.")
  await tui.keys("Escape")
  await tui.waitFor((text) => !text.includes("Read the fine print."))
  await openTask(tui, "From outside")
  await tui.waitFor("Start it as it stands there")
  plant("Delete the fine print.")
  await pick(tui, "Start it")
  await tui.waitFor("has changed since you saw it")
  expect(model.requests.filter((request) => taskOf(request) === "201")).toEqual([])
  await openTask(tui, "From outside")
  await tui.waitFor("Start it as it stands there")
  await pick(tui, "Start it")
  await model.waitFor((request) => taskOf(request) === "201", { timeout: 30_000 })
  await idle(opencode, stored(opencode, "201").threadId)

  rmSync(file)
  await tui.type("/board")
  await tui.waitFor(/\/board\s+See the project/)
  await tui.keys("Enter")
  await tui.waitFor("Bring back")
  await pick(tui, "Bring back")
  await eventually(() => existsSync(file) && boardFile(opencode).tasks.some(({ id }) => id === "201"), {
    timeout: 30_000,
  })
  await openTask(tui, "From outside")
  await tui.waitFor("Cancel it")
  await pick(tui, "Cancel it")
  expect(await archived(opencode, "201")).toMatchObject({ status: "canceled", archivedBy: "user" })
})

test("/board moves its cursor to one task, including tasks without a thread", async () => {
  const ids = ["101", "102", "103"]
  const tasks = ids.map((id) => ({ id, title: `Written by hand ${id}`, owner: "build", status: "draft" }))
  mkdirSync(boardFolder(opencode), { recursive: true })
  writeFileSync(join(boardFolder(opencode), "tasks.json"), JSON.stringify({ tasks, nextId: 104 }))
  const session = await openSession(opencode, { title: "Another session" })
  await tui?.stop()
  tui = await startTui({ opencode, sessionID: session, plugin: [PACKAGE] })
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
  // Of a draft that a hand has written: what it says, and what can be done with it.
  await tui.waitFor(/Look at it[\s\S]*Make it active[\s\S]*Cancel it/)
})
