import { execFileSync } from "node:child_process"
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { createOpencodeClient } from "@opencode-ai/sdk/v2"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import {
  boardFile,
  boardFolder,
  byHand,
  call,
  callBoard,
  historyFile,
  idIn,
  keptBoard,
  saidIn,
  stored,
  taskOf,
} from "../support/board.ts"
import { ask, eventually, idle, openSession, unwrap } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { startPlugged } from "../support/plugin.ts"
import { BINARY } from "../support/server-process.ts"

let model: ScriptedModel
let opencode: Opencode
let other: Opencode | undefined

const NEVER = "0 0 30 2 *"

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { board: { schedule: NEVER } })
  await ask(opencode, await openSession(opencode), "warm up")
})
afterAll(async () => {
  await other?.stop()
  await opencode?.stop()
  await model?.close()
})

const runsOf = (id: string) =>
  model.requests.filter((request) => taskOf(request) === id && saidIn(request) === 0).length

test("a linked git worktree shows the board of the main checkout, and its tasks run there", async () => {
  const folder = join(mkdtempSync(join(tmpdir(), "superagents-linked-")), "w")
  execFileSync("git", ["worktree", "add", "--quiet", "--detach", folder], { cwd: opencode.directory, stdio: "ignore" })
  writeFileSync(join(folder, "opencode.json"), readFileSync(join(opencode.directory, "opencode.json")))
  const client = createOpencodeClient({ baseUrl: opencode.url, directory: folder })
  model.use((request) => {
    if (request.sinceUser.length > 0) return undefined
    return request.lastUser === "from the worktree"
      ? call("create_task", { title: "Linked", owner: "general" })
      : undefined
  })
  const { id: session } = await unwrap(client.session.create({ title: "linked" }))
  await client.session.promptAsync({ sessionID: session, parts: [{ type: "text", text: "from the worktree" }] })
  const task = await eventually(() => boardFile(opencode).tasks.find(({ title }) => title === "Linked"), {
    timeout: 30_000,
    message: () => opencode.logs(),
  })
  const thread = await unwrap(opencode.client.session.get({ sessionID: task.threadId }))
  expect(thread.directory).toBe(opencode.directory)
  // The main folder's instance hears of the board being made: without that it looks every 20 s.
  await eventually(() => runsOf(task.id) === 1, { timeout: 10_000 })
  await idle(opencode, task.threadId)
  model.reset()
  await callBoard(opencode, model, await openSession(opencode), "cancel_task", { task_id: task.id })
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
})

test("a copied project waits for a person and uses its own threads, not those named in its file", async () => {
  const folder = mkdtempSync(join(tmpdir(), "superagents-copy-"))
  const client = createOpencodeClient({ baseUrl: opencode.url, directory: folder })
  const theirs = await openSession(opencode)
  const task = { id: "50", title: "Copied", owner: "general", status: "active", threadId: theirs }
  const wake = { at: new Date().toISOString(), cause: "created" }
  const file = join(folder, ".opencode", "tasks", "tasks.json")
  // With what keeps OpenCode from installing into it.
  cpSync(join(opencode.directory, ".opencode", "package-lock.json"), join(folder, ".opencode", "package-lock.json"))
  mkdirSync(join(folder, ".opencode", "node_modules"))
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, JSON.stringify({ tasks: [task], nextId: 51, runtime: { tasks: { 50: { wake } } } }))
  writeFileSync(join(folder, "opencode.json"), readFileSync(join(opencode.directory, "opencode.json")))
  await unwrap(client.session.create({ title: "in the copy" }))
  await eventually(() => opencode.logs().includes("#50 Copied was written or changed outside the board"), {
    timeout: 30_000,
    message: () => opencode.logs(),
  })
  await byHand(opencode, { type: "run", id: "50" }, dirname(file))
  await eventually(() => runsOf("50") === 1, { timeout: 30_000, message: () => opencode.logs() })
  const { threadId } = JSON.parse(readFileSync(file, "utf8")).tasks[0]
  expect((await unwrap(opencode.client.session.get({ sessionID: threadId }))).directory).toBe(folder)
  expect(await unwrap(opencode.client.session.messages({ sessionID: theirs }))).toEqual([])
  await idle(opencode, threadId)
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
})

test("a board file broken by an edit stays untouched and is reported until it is repaired", async () => {
  const session = await openSession(opencode)
  const file = join(boardFolder(opencode), "tasks.json")
  const good = readFileSync(file, "utf8")
  for (const [bad, why] of [
    ["{ broken", "it "],
    ['{"version": 9, "tasks": []}', "version: a newer version wrote the file"],
  ] as const) {
    writeFileSync(file, bad)
    for (const [name, args] of [
      ["list_tasks", {}],
      ["create_task", { title: "x" }],
    ] as const)
      await expect(callBoard(opencode, model, session, name, args)).rejects.toThrow(`${file}: ${why}`)
    expect(readFileSync(file, "utf8")).toBe(bad)
  }
  writeFileSync(file, good.replace('"tasks": [', '"colour": "green", "tasks": ['))
  const id = idIn(await callBoard(opencode, model, session, "create_task", { title: "After", status: "draft" }))
  expect(boardFile(opencode)).toMatchObject({ colour: "green" })
  await callBoard(opencode, model, session, "cancel_task", { task_id: id })
  expect(historyFile(opencode).at(-1)).toMatchObject({ id, status: "canceled" })
})

describe("a second process on the same project", () => {
  test("a process is notified, within OpenCode's own engine, of a board file that replaces another", () => {
    const folder = mkdtempSync(join(tmpdir(), "superagents-watch-"))
    writeFileSync(join(folder, "tasks.json"), "")
    const source = fileURLToPath(new URL("../../src/features/board/store/store.ts", import.meta.url))
    // Several times: whether the engine tells of the replacement itself depends on how soon it comes.
    const script = `import { readFileSync } from "node:fs"
import { open, rename } from "node:fs/promises"
import { watchNearest } from ${JSON.stringify(source)}
process.chdir(${JSON.stringify(folder)})
setTimeout(() => process.exit(), 10_000)
let heard = () => {}
watchNearest(".", () => heard())
for (let round = 1; round <= 20; round++) {
  const news = new Promise((resolve) => {
    heard = () => readFileSync("tasks.json", "utf8") === String(round) && resolve()
  })
  const file = await open("tasks.json.tmp", "w")
  await file.writeFile(String(round))
  await file.sync()
  await file.close()
  await rename("tasks.json.tmp", "tasks.json")
  await news
}
process.stdout.write("heard", () => process.exit())`
    const env = { PATH: process.env.PATH, HOME: opencode.home, BUN_BE_BUN: "1" }
    expect(execFileSync(BINARY, ["-e", script], { env, encoding: "utf8" })).toBe("heard")
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  })

  test("a second process shares the board, starts nothing twice, and takes over within a minute after a death", {
    timeout: 180_000,
  }, async () => {
    other = await startOpencode({ home: opencode.home })
    const theirs = other
    const session = await openSession(theirs)
    const id = idIn(await callBoard(theirs, model, session, "create_task", { title: "Shared", owner: "general" }))
    // The one that runs tasks hears of it: without that it looks every 20 s.
    await eventually(() => runsOf(id) === 1, { timeout: 10_000 })
    await eventually(() => keptBoard(opencode).pulses[id]?.ran, { timeout: 30_000 })
    expect(runsOf(id)).toBe(1)
    model.use((request) => (taskOf(request) === id ? { text: "on it" } : undefined))
    await opencode.kill("SIGKILL")
    const died = performance.now()
    const next = idIn(await callBoard(theirs, model, session, "create_task", { title: "Left", owner: "general" }))
    await eventually(() => runsOf(next) === 1, { timeout: 70_000, message: () => theirs.logs() })
    expect(performance.now() - died).toBeLessThan(60_000)
    await idle(theirs, stored(opencode, next).threadId)
    expect(runsOf(next)).toBe(1)
  })
})
