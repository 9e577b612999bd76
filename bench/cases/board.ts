import { mkdirSync, utimesSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { performance } from "node:perf_hooks"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { USER } from "../../src/features/board/service.ts"
import { BoardRig } from "../../test/support/board-rig.ts"
import type { Case } from "../support/case.ts"
import { under } from "../support/rows.ts"

const TIME = "2026-03-02T08:00:00.000Z"
const CHANGES = 30

/** A full board: how long a list holds OpenCode's thread, how long a change takes, and what memory it keeps. */
export const boardCase: Case = async ({ runs, short, progress }) => {
  const [active, archived] = short ? [100, 2000] : [1000, 100_000]
  const found = { first: [] as number[], list: [] as number[], change: [] as number[], memory: [] as number[] }
  for (let run = 1; run <= (short ? 1 : runs); run++) {
    progress(`board: run ${run}, ${active} active, ${archived} of history`)
    const rig = new BoardRig()
    try {
      fill(join(rig.folder, ".opencode", "tasks"), active, archived)
      found.first.push(await heldBy(() => rig.board.list()))
      for (let time = 0; time < 10; time++) {
        touch(rig.folder)
        found.list.push(await heldBy(() => rig.board.list()))
      }
      const before = heapMB()
      for (let time = 0; time < CHANGES; time++) {
        const begin = performance.now()
        await rig.board.update(String(archived + 1), { description: `change ${time}` }, USER)
        found.change.push(performance.now() - begin)
      }
      found.memory.push(heapMB() - before)
    } finally {
      await rig.close()
    }
  }
  const size = `${active.toLocaleString("en-US")} active, ${archived.toLocaleString("en-US")} of history`
  const row = { case: "board", native: [] }
  return [
    { ...row, figure: `longest block, first list (${size})`, unit: "ms", plugin: found.first, goal: under(20, "ms") },
    {
      ...row,
      figure: "longest block, list after a change of the file",
      unit: "ms",
      plugin: found.list,
      goal: under(20, "ms"),
    },
    { ...row, figure: "a change, flushed to the disk", unit: "ms", plugin: found.change },
    { ...row, figure: `memory kept after ${CHANGES} changes`, unit: "MB", plugin: found.memory, goal: under(5, "MB") },
  ]
}

function fill(folder: string, active: number, archived: number): void {
  mkdirSync(folder, { recursive: true })
  const task = (id: number, more: object) => ({
    id: String(id),
    title: `Task number ${id}`,
    description: "What is to be done, in a few sentences. ".repeat(5),
    owner: "build",
    createdBy: "user",
    status: "active",
    steps: ["one", "two", "three"].map((title) => ({ title, done: false })),
    resources: [],
    createdAt: TIME,
    updatedAt: TIME,
    ...more,
  })
  const ended = { status: "done", archivedAt: TIME, archivedBy: "user" }
  const lines = Array.from({ length: archived }, (_, index) => `${JSON.stringify(task(index + 1, ended))}\n`)
  writeFileSync(join(folder, "history.jsonl"), lines.join(""))
  const tasks = Array.from({ length: active }, (_, index) => task(archived + index + 1, {}))
  writeFileSync(join(folder, "tasks.json"), JSON.stringify({ tasks, nextId: archived + active + 1 }))
}

/** As a hand would: the file is written anew, with the same in it. */
function touch(project: string): void {
  const now = new Date()
  const file = join(project, ".opencode", "tasks", "tasks.json")
  utimesSync(file, now, now)
}

/** The longest time for which the thread did nothing else, in ms. */
async function heldBy(work: () => Promise<unknown>): Promise<number> {
  let longest = 0
  let last = performance.now()
  let goesOn = true
  const look = () => {
    const now = performance.now()
    longest = Math.max(longest, now - last)
    last = now
    if (goesOn) setImmediate(look)
  }
  setImmediate(look)
  await work()
  look()
  goesOn = false
  return longest
}

function heapMB(): number {
  setFlagsFromString("--expose-gc")
  runInNewContext("gc")()
  return process.memoryUsage().heapUsed / 1_048_576
}
