import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { createSignal } from "solid-js"
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { NO_USAGE, type Task } from "../../../src/core/task.ts"
import type { BoardOptions } from "../../../src/features/board/options.ts"
import { textDigest } from "../../../src/features/board/rules/verify.ts"
import { scheduleOf } from "../../../src/features/board/schedule.ts"
import { type BoardState, EMPTY } from "../../../src/features/board/state.ts"
import { Store } from "../../../src/features/board/store/store.ts"
import type { BoardTask } from "../../../src/features/board/task.ts"
import { type BoardSource, createBoardSource, purseIn } from "../../../src/features/terminal/board/source.ts"
import { clockTime, HOUR_MS } from "../../../src/lib/format.ts"
import { stateFolder } from "../../../src/lib/repository.ts"
import { encodeRecord, RECORD_KEY } from "../../../src/runtime/record/codec.ts"
import { keepBoard } from "../../support/board-rig.ts"
import { boardTaskOf } from "../../support/board-state.ts"
import { eventually } from "../../support/eventually.ts"
import { ownerOf, SIGNER } from "../../support/records.ts"
import { taskOf } from "../../support/tasks.ts"

// In Node the package's own choice is its server build, in which effects never run.
vi.mock("solid-js", () => vi.importActual("solid-js/dist/solid.js"))
let folder: string
let source: BoardSource
let needed: string[]
/** Sessions as events told them, and as OpenCode has them; what is open in them; who hears events. */
const sessions = new Map<string, unknown>()
const stored: unknown[] = []
const permissions: unknown[] = []
const questions: unknown[] = []
const listeners = new Set<unknown>()
const toasts: string[] = []
const prompted = vi.fn(async (_prompt: object): Promise<object> => ({ data: {} }))
const listed = vi.fn(async () => ({ data: stored }))
const agents = vi.fn(async () => ({ data: [{ name: "build" }, { name: "title", hidden: true }] }) as object)
const watchers = new Set<unknown>()
/** What OpenCode says that each session costs, and the sessions below it. */
const costs: Record<string, { cost?: number; below?: readonly string[] }> = {}
const rowOf = (id: string) => ({ id, cost: costs[id]?.cost })
const got = async ({ sessionID }: { sessionID: string }) =>
  sessionID in costs ? { data: rowOf(sessionID) } : { error: { name: "NotFoundError" } }
const children = async ({ sessionID }: { sessionID: string }) => ({ data: (costs[sessionID]?.below ?? []).map(rowOf) })
/** Has the source told of a change in the folder. */
let heard = () => {}

const OPTIONS: BoardOptions = { dir: ".opencode/tasks", agents: null, schedule: "0 0 1 1 *", maxConcurrentRuns: 3 }

const api = () =>
  ({
    state: {
      path: { worktree: "/", directory: folder },
      session: { get: (id: string) => sessions.get(id), permission: () => permissions, question: () => questions },
    },
    client: {
      session: { list: listed, promptAsync: prompted, get: got, children },
      app: { agents },
    },
    ui: { toast: ({ message }: { message: string }) => void toasts.push(message) },
    event: {
      on: (_type: string, listener: unknown) => {
        listeners.add(listener)
        return () => listeners.delete(listener)
      },
    },
  }) as unknown as TuiPluginApi

/** The row of the task's thread. */
const threadOf = (task: Partial<Task>, updated: number) => {
  const record = encodeRecord(taskOf({ sessionID: "ses_t", parentID: "", ...task }), ownerOf("ours"), SIGNER)
  return { id: "ses_t", time: { updated }, metadata: { [RECORD_KEY]: record } }
}

const stateText = () => {
  const [task] = source.tasks()
  return task && source.state(task).text
}

/** The board as this installation writes it. */
const write = (more: Partial<BoardTask>, pulses: BoardState["pulses"] = {}, quiet?: BoardState["quiet"]) => {
  const tasks = [boardTaskOf("5", "", { title: "Migrate", threadId: "ses_t", ...more })]
  keepBoard(stateFolder(), join(folder, ".opencode", "tasks"), { ...EMPTY, tasks, nextId: 6, pulses, quiet })
}

const open = (options: BoardOptions | undefined | (() => BoardOptions | undefined) = OPTIONS, enabled = true) => {
  const board = typeof options === "function" ? options : () => options
  const server = () => ({ enabled, board: board() })
  source = createBoardSource(api(), server, (title, what) => needed.push(`${title} ${what}`))
  return source.look()
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-sidebar-"))
  vi.stubEnv("XDG_STATE_HOME", join(folder, "state"))
  vi.stubEnv("XDG_DATA_HOME", join(folder, "data"))
  const keys = join(folder, "data", "opencode", "superagents")
  mkdirSync(keys, { recursive: true, mode: 0o700 })
  writeFileSync(join(keys, "record.key"), "07".repeat(32), { mode: 0o600 })
  const real = Store.prototype.watch
  vi.spyOn(Store.prototype, "watch").mockImplementation(function watch(this: Store, changed) {
    const watching = real.call(this, changed)
    heard = changed
    const counted = {
      close() {
        watchers.delete(counted)
        watching?.close()
      },
    }
    watchers.add(counted)
    return counted
  })
  needed = []
  sessions.clear()
  for (const list of [stored, permissions, questions, toasts]) list.length = 0
})
afterEach(() => {
  source.dispose()
  agents.mockReset()
  vi.unstubAllEnvs()
  vi.restoreAllMocks()
  rmSync(folder, { recursive: true, force: true })
})

test("the terminal reads the board's file and shows each task's state", async () => {
  write({})
  await open()
  const [task] = source.tasks()
  expect(task).toMatchObject({ id: "5", title: "Migrate" })
  expect(task && source.state(task).text).toMatch(/^next run .+ 00:00$/)
})

test("the terminal shows the rounds of the schedule option when a task has no schedule", async () => {
  write({})
  await open({ ...OPTIONS, schedule: "every hour" })
  const [task] = source.tasks()
  expect(task && source.state(task).text).toMatch(/^next run (.+ )?\d\d:00$/)
})

test("the terminal shows the first round after the time in which a purse turned rounds off", async () => {
  const until = Date.now() + 10 * HOUR_MS
  write({}, {}, { until: new Date(until).toISOString(), spent: false })
  await open({ ...OPTIONS, schedule: "0 * * * *" })
  const round = scheduleOf("0 * * * *").next(until) ?? 0
  expect(stateText()).toMatch(new RegExp(`^next run (.+ )?${clockTime(round)}$`))
})

test("a task of an agent that does not exist rests, and none does while OpenCode does not tell its agents", async () => {
  const tasks = ["build", "title", "gone", "plan"].map((owner, index) =>
    boardTaskOf(`${index + 1}`, "", { owner, title: owner }),
  )
  keepBoard(stateFolder(), join(folder, ".opencode", "tasks"), { ...EMPTY, tasks, nextId: 9 })
  const rests = () => source.tasks().map((task) => source.state(task).text.replace(/^next run .*/, "next run"))
  agents.mockRejectedValueOnce(new Error("no answer"))
  await open()
  expect(rests()).toEqual(["next run", "next run", "next run", "next run"])
  await source.look()
  const none = (name: string) => `rests: no agent "${name}"`
  expect(rests()).toEqual(["next run", none("title"), none("gone"), none("plan")])
  agents.mockResolvedValue({ data: [{ name: "build" }, { name: "gone" }] })
  source.dispose()
  await open({ ...OPTIONS, agents: ["gone"] })
  expect(rests()).toEqual([none("build"), none("title"), "next run", none("plan")])
})

test("a board that is off or missing shows no tasks, and a broken file keeps the last ones", async () => {
  await open(() => undefined)
  expect(source.tasks()).toEqual([])
  source.dispose()
  write({})
  await open(OPTIONS, false)
  expect(source.tasks()).toEqual([])
  expect(source.isOn()).toBe(false)
  source.dispose()
  rmSync(join(folder, ".opencode"), { recursive: true })
  await open()
  expect(source.tasks()).toEqual([])
  write({})
  await source.look()
  writeFileSync(join(folder, ".opencode", "tasks", "tasks.json"), "{ half")
  await source.look()
  expect(source.tasks()).toHaveLength(1)
})

test("the terminal says why the board's file cannot be read until it can be read again", async () => {
  write({})
  await open()
  expect(await source.problem()).toBeUndefined()
  writeFileSync(join(folder, ".opencode", "tasks", "tasks.json"), "<<<<<<< HEAD")
  await source.look()
  expect(await source.problem()).toMatch(/^The board cannot be read: .*tasks\.json: /)
  write({})
  await source.look()
  expect(await source.problem()).toBeUndefined()
})

test("the terminal reports once when a task begins to need somebody, not for earlier needs", async () => {
  write({}, { 5: { needs: "old" } })
  await open()
  expect(needed).toEqual([])
  write({}, { 5: { needs: "Which license?" } })
  await source.look()
  await source.look()
  expect(needed).toEqual(["#5 Migrate Which license?"])
})

test("a deleted board disappears from the terminal and returns when its file returns", async () => {
  write({})
  await open()
  expect(source.tasks()).toHaveLength(1)
  rmSync(join(folder, ".opencode"), { recursive: true })
  await source.look()
  expect(source.tasks()).toEqual([])
  write({})
  await source.look()
  expect(source.tasks()).toHaveLength(1)
  expect(watchers.size).toBe(1)
})

test("a new board is noticed, also after its folders were deleted at any level", async () => {
  await open()
  for (const first of [".opencode", ".opencode/tasks", ".opencode/tasks/tasks.json"]) {
    write({})
    await vi.waitFor(() => expect(source.tasks()).toHaveLength(1), 20_000)
    rmSync(join(folder, first), { recursive: true })
    await vi.waitFor(() => expect(source.tasks()).toHaveLength(0), 20_000)
    expect(watchers.size).toBe(1)
  }
})

test("a board file that is too large is not read, and the previous tasks stay shown", { timeout: 20_000 }, async () => {
  write({})
  await open()
  write({ description: "x".repeat(20 * 1024 * 1024), title: "huge" })
  await source.look()
  expect(source.tasks()).toMatchObject([{ title: "Migrate" }])
})

test("the board asks for other processes' runs at intervals and after file changes, not for each event", async () => {
  write({})
  await open()
  listed.mockClear()
  heard()
  await source.look()
  expect(listed).toHaveBeenCalledTimes(1)
  write({ title: "Migrate it" })
  heard()
  await vi.waitFor(() => expect(source.tasks()[0]?.title).toBe("Migrate it"))
  await vi.waitFor(() => expect(listed.mock.calls.length).toBeGreaterThan(1))
})

test("a board task shows the question or permission that its run waits for", async () => {
  write({})
  sessions.set("ses_t", threadOf({}, 1))
  await open()
  expect(stateText()).toBe("running")
  questions.push({ questions: [{ question: "Which licence?" }] })
  expect(stateText()).toBe("needs you: Which licence?")
  permissions.push({ permission: "bash", patterns: ["rm -r dist"] })
  expect(stateText()).toBe("needs you: bash: rm -r dist")
})

test("the terminal notices a run in another process and its end without any event", async () => {
  write({})
  stored.push(threadOf({}, 2))
  await open()
  expect(stateText()).toBe("running")
  stored[0] = threadOf({ status: "completed" }, 3)
  await source.look()
  expect(stateText()).toMatch(/^next run/)
  sessions.set("ses_t", threadOf({}, 4))
  expect(stateText()).toBe("running")
})

test("many changes at once are read together, and the last one is shown", async () => {
  write({})
  await open()
  listed.mockClear()
  const looks = [1, 2, 3, 4, 5, 6].map((count) => {
    write({ title: `Change ${count}` })
    return source.look()
  })
  await Promise.all(looks)
  expect(source.tasks()[0]?.title).toBe("Change 6")
  expect(listed.mock.calls.length).toBeLessThanOrEqual(2)
})

test("the board view uses no timers or watchers before a board exists and after it is closed", async () => {
  const every = vi.spyOn(globalThis, "setInterval")
  const end = vi.spyOn(globalThis, "clearInterval")
  const [options, setOptions] = createSignal<BoardOptions>()
  write({})
  void open(options)
  expect([every.mock.calls.length, listeners.size, watchers.size]).toEqual([0, 0, 0])
  setOptions(OPTIONS)
  await eventually(() => source.tasks().length === 1)
  expect([every.mock.calls.length, listeners.size, watchers.size]).toEqual([1, 1, 1])
  const looking = source.look()
  source.dispose()
  await looking
  expect([end.mock.calls.length, listeners.size, watchers.size, source.tasks()]).toEqual([1, 0, 0, []])
  const other = open()
  source.dispose()
  await other
  expect([watchers.size, listeners.size]).toEqual([0, 0])
  vi.restoreAllMocks()
})

test("a user's run or cancel in the terminal is written to the board's files", async () => {
  write({})
  await open()
  const by = { kind: "user" } as const
  expect(await source.act({ type: "run", id: "5" })).toBe(true)
  await vi.waitFor(() => expect(stateText()).toBe("queued"))
  expect(await source.act({ type: "cancel", id: "5", by })).toBe(true)
  await vi.waitFor(() => expect(source.tasks()).toEqual([]))
  expect(readFileSync(join(folder, ".opencode/tasks/history.jsonl"), "utf8")).toContain('"status":"canceled"')
  expect(await source.act({ type: "complete", id: "5", by })).toBeUndefined()
  expect(toasts).toEqual([
    "Task #5 is cancelled and stands in history, which does not change. Make a new task instead.",
  ])
})

test("a board task that a user's edit changed waits until its user starts it", async () => {
  write({ owner: "title" })
  await open()
  expect(await source.act({ type: "run", id: "5" })).toBeUndefined()
  expect(toasts.join()).toContain('"title", is no agent that may own tasks')
  const file = join(folder, ".opencode/tasks/tasks.json")
  writeFileSync(file, readFileSync(file, "utf8").replace('"owner": "title"', '"owner": "build"'))
  await source.look()
  const [task] = source.tasks()
  expect(stateText()).toBe("waiting for a person: changed outside; look at it and start it")
  expect(task && source.isUnverified(task)).toBe(true)
  const seen = task && [textDigest(task)]
  writeFileSync(file, readFileSync(file, "utf8").replace('"title": "Migrate"', '"title": "Delete it all"'))
  toasts.length = 0
  expect(await source.act({ type: "run", id: "5", seen })).toBeUndefined()
  expect(toasts).toEqual(["Task #5 has changed since you saw it. Look at it again."])
  await source.look()
  expect(await source.act({ type: "run", id: "5", seen: source.tasks().map(textDigest) })).toBe(true)
  await vi.waitFor(() => expect(stateText()).toBe("queued"))
})

test("the tasks of a deleted board file can be restored, and nothing happens with the board off", async () => {
  write({})
  await open()
  rmSync(join(folder, ".opencode"), { recursive: true })
  await source.look()
  expect(source.lost().map(({ id }) => id)).toEqual(["5"])
  expect(await source.restore()).toBe(true)
  await vi.waitFor(() => expect(source.tasks().map(({ id }) => id)).toEqual(["5"]))
  source.dispose()
  await open(() => undefined)
  expect(await source.act({ type: "accept" })).toBe(false)
})

test("a user's reply in the terminal is posted to the task's thread and reaches its owner", async () => {
  write({}, { 5: { needs: "Which licence?" } })
  await open()
  const [task] = source.tasks()
  expect(task && (await source.say(task, "MIT"))).toBe(true)
  const parts = [{ type: "text", text: "MIT" }]
  expect(prompted).toHaveBeenCalledWith({ sessionID: "ses_t", agent: "build", parts })
  prompted.mockResolvedValueOnce({ error: { name: "NotFoundError", data: { message: "no such session" } } })
  expect(task && (await source.say(task, "MIT"))).toBeUndefined()
  expect(toasts).toEqual(["no such session"])
})

test("no message goes to a task that its file has changed, that is a draft, has no thread or has ended", async () => {
  write({})
  await open()
  const [verified] = source.tasks()
  expect(verified && source.hears(verified)).toBe(true)
  const file = join(folder, ".opencode/tasks/tasks.json")
  const edited = readFileSync(file, "utf8").replace('"owner": "build"', '"owner": "other"')
  for (const change of [
    () => writeFileSync(file, edited),
    () => write({ status: "draft" }),
    () => write({ threadId: undefined }),
    () => rmSync(file),
  ]) {
    write({})
    change()
    await source.look()
    prompted.mockClear()
    toasts.length = 0
    for (const task of [verified, ...source.tasks()]) {
      expect(task && source.hears(task)).toBe(false)
      expect(task && (await source.say(task, "x"))).toBeUndefined()
    }
    expect(prompted).not.toHaveBeenCalled()
    expect(new Set(toasts)).toEqual(
      new Set([
        "Task #5 takes no message now: it has ended, is a draft, has no thread or was changed outside the board.",
      ]),
    )
  }
})

test("a user can open and close a purse, and its spending is what OpenCode counts", async () => {
  write({})
  await open()
  expect(await source.purseSpent()).toBeUndefined()
  const by = { kind: "user" } as const
  expect(await source.act({ type: "open purse", max: 5, until: "tomorrow", by })).toBeUndefined()
  expect(toasts.join()).toContain("`until` must be a time of day")
  expect(await source.act({ type: "open purse", max: 5, until: "07:00", by })).toBe(true)
  await vi.waitFor(() => expect(source.purse()).toMatchObject({ max: 5 }))
  const before = { ...NO_USAGE, cost: 0.25 }
  await source.act({ type: "pay", id: "5", threadId: "ses_t", before })
  await vi.waitFor(() => expect(source.purse()?.threads).toHaveProperty("ses_t"))
  expect(await source.purseSpent()).toBeUndefined()
  Object.assign(costs, { ses_t: { cost: 1, below: ["ses_a"] }, ses_a: { cost: 0.5, below: ["ses_b"] }, ses_b: {} })
  expect(await source.purseSpent()).toBeCloseTo(1.25)
  expect(await source.act({ type: "close purse", by })).toBe(true)
  await vi.waitFor(() => expect(source.purse()).toMatchObject({ closed: true }))
})

test.each([
  ["5 until 07:00", { max: 5, until: "07:00" }],
  [" $1.50  07:00 ", { max: 1.5, until: "07:00" }],
  ["five until tomorrow", undefined],
  ["-1 until 07:00", undefined],
  ["5", undefined],
])("the text %j is read as the purse %j", (text, purse) => expect(purseIn(text)).toEqual(purse))

test("a parked run says until when it is parked", async () => {
  const until = Date.now() + 60 * 60_000
  const parked = { at: 1, until, model: "mock/one", why: "its limit" }
  sessions.set("ses_t", threadOf({ run: taskOf({ run: { parked } }).run }, 1))
  write({})
  await open()
  expect(stateText()).toMatch(/^parked until .*\d\d:\d\d$/)
})
