import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { afterEach, beforeEach, expect, test } from "vitest"
import { type BoardSource, createBoardSource } from "../../src/sidebar/board-source.ts"

let folder: string
let source: BoardSource
let needed: string[]
const sessions = new Map<string, unknown>()

const OPTIONS = { dir: ".opencode/tasks", agents: null, schedule: "0 0 1 1 *", maxConcurrentRuns: 3 }

const api = () =>
  ({
    state: {
      path: { worktree: "/", directory: folder },
      session: { get: (id: string) => sessions.get(id), permission: () => [] },
    },
    event: { on: () => () => {} },
  }) as unknown as TuiPluginApi

const write = (more: object, runtime: object = {}) => {
  const tasks = [{ id: "5", title: "Migrate", owner: "build", status: "active", threadId: "ses_t", ...more }]
  mkdirSync(join(folder, ".opencode", "tasks"), { recursive: true })
  writeFileSync(join(folder, ".opencode", "tasks", "tasks.json"), JSON.stringify({ tasks, nextId: 6, runtime }))
}

const open = (options: typeof OPTIONS | undefined = OPTIONS) => {
  source = createBoardSource(
    api(),
    () => options,
    ({ id }, what) => needed.push(`#${id} ${what}`),
  )
  return source.look()
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-sidebar-"))
  needed = []
})
afterEach(() => {
  source.dispose()
  rmSync(folder, { recursive: true, force: true })
})

test("the terminal reads the board's file, with each task's state", async () => {
  write({})
  await open()
  const [task] = source.tasks()
  expect(task).toMatchObject({ id: "5", title: "Migrate" })
  expect(task && source.state(task).text).toMatch(/^next run .+ 00:00$/)
})

test("it tells of the rounds that there are where the schedule is none", async () => {
  write({})
  await open({ ...OPTIONS, schedule: "every hour" })
  const [task] = source.tasks()
  expect(task && source.state(task).text).toMatch(/^next run (.+ )?\d\d:00$/)
})

test("it shows nothing where the board is off, is not there yet or is being mended, and keeps what it had", async () => {
  await open(undefined)
  expect(source.tasks()).toEqual([])
  source.dispose()
  await open()
  expect(source.tasks()).toEqual([])
  write({})
  await source.look()
  writeFileSync(join(folder, ".opencode", "tasks", "tasks.json"), "{ half")
  await source.look()
  expect(source.tasks()).toHaveLength(1)
})

test("it tells when a task comes to need somebody, once, and not of what was so before", async () => {
  write({}, { tasks: { 5: { needs: "old" } } })
  await open()
  expect(needed).toEqual([])
  write({}, { tasks: { 5: { needs: "Which license?" } } })
  await source.look()
  await source.look()
  expect(needed).toEqual(["#5 Which license?"])
})
