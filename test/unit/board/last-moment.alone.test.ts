import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import { decide } from "../../../src/features/board/rules/decide.ts"
import { USER } from "../../../src/features/board/service.ts"
import { Store } from "../../../src/features/board/store/store.ts"
import type { BoardTask } from "../../../src/features/board/task.ts"
import { SIGNER } from "../../support/records.ts"

/** What a hand does when nothing but the look and the rename is left of our write, once. */
let userActions: (() => void) | undefined

// A write awaits its draft last: then the whole text lies beside the board's file.
vi.mock("node:fs/promises", async (original) => {
  const real = await original<typeof import("node:fs/promises")>()
  const writeFile = async (...args: Parameters<typeof real.writeFile>) => {
    await real.writeFile(...args)
    if (!/tasks\.json\.\w+\.tmp$/.test(String(args[0]))) return
    const act = userActions
    userActions = undefined
    act?.()
  }
  return { ...real, writeFile, default: { ...real, writeFile } }
})

let root: string
const file = (name: string) => join(root, "tasks", name)
const board = () => JSON.parse(readFileSync(file("tasks.json"), "utf8"))

const open = () =>
  new Store({
    folder: join(root, "tasks"),
    project: root,
    state: join(root, "state"),
    signer: SIGNER,
    processes: { self: { place: "here", pid: process.pid, started: "1" }, isAlive: () => true },
    now: () => Date.parse("2026-03-02T08:00:00Z"),
    warn: () => {},
  })

const facts = { now: "2026-03-02T08:00:00Z", agents: ["build"], isRunning: () => false, ended: () => undefined }
const carryOut = (store: Store, command: Parameters<typeof decide>[1]) =>
  store.change(async (state) => {
    const decided = decide(state, command, facts)
    return { state: decided.state, archived: decided.archived, value: decided.task as BoardTask }
  })
const make = (store: Store, title: string) =>
  carryOut(store, { type: "create", input: { title, owner: "build" }, by: USER })

/** Saves the board with this title, by writing into the file, or by putting another one in its place. */
const saves = (title: string, how: "in place" | "by another file") => () => {
  const given = board()
  const text = JSON.stringify({ ...given, tasks: [{ ...given.tasks[0], title }, ...given.tasks.slice(1)] })
  if (how === "in place") return writeFileSync(file("tasks.json"), text)
  writeFileSync(file("tasks.json~"), text)
  renameSync(file("tasks.json~"), file("tasks.json"))
}

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "superagents-moment-"))
})

afterEach(() => {
  userActions = undefined
  rmSync(root, { recursive: true, force: true })
})

describe("an edit just before a write", () => {
  test.each(["in place", "by another file"] as const)(
    "a user's edit just before the board's own write is kept, and so is the board's change: %s",
    async (how) => {
      const store = open()
      await make(store, "one")
      userActions = saves("by hand", how)
      await make(store, "two")
      expect(userActions, "the hand came in that moment").toBeUndefined()
      expect(board().tasks.map(({ title }: BoardTask) => title)).toEqual(["by hand", "two"])
      const { tasks } = await open().read()
      expect(tasks.map(({ title }) => title)).toEqual(["by hand", "two"])
      expect(readdirSync(join(root, "tasks")).filter((name) => name.endsWith(".tmp"))).toEqual([])
    },
  )

  test("a user's edit is kept while another task moves to history, where it appears only once", async () => {
    const store = open()
    await make(store, "one")
    await make(store, "two")
    userActions = saves("by hand", "in place")
    await carryOut(store, { type: "complete", id: "2", by: USER })
    expect(userActions, "the hand came in that moment").toBeUndefined()
    expect(board().tasks.map(({ title }: BoardTask) => title)).toEqual(["by hand"])
    expect(readFileSync(file("history.jsonl"), "utf8").match(/"title":"two"/g)).toHaveLength(1)
  })
})
