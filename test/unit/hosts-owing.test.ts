import { mkdtempSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { debtsIn } from "../../src/place/host/debts.ts"
import { Owing } from "../../src/place/host/owing.ts"
import { type Stub, stubOf } from "../../src/place/host/stub.ts"
import { taskOf } from "../support/tasks.ts"

/** What is owed on hosts: done when they answer, over restarts, once. */

let folder: string
let known: Map<string, Stub>
let fails: boolean
let paid: string[]
let wanted: string[]
let logged: string[]

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-owing-"))
  fails = false
  process()
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

/** Another process begins. */
const process = () => {
  known = new Map()
  paid = []
  wanted = []
  logged = []
}

const owing = () =>
  new Owing({
    debts: debtsIn(folder, "/here"),
    known: (taskID) => known.get(taskID),
    has: (host) => host === "big",
    add: (stub) => void known.set(stub.taskID, stub),
    drop: ({ taskID }) => void known.delete(taskID),
    wanted: ({ taskID }) => void wanted.push(taskID),
    pay: async ({ taskID, home }) => {
      if (fails) throw new Error("cut")
      paid.push(`${taskID} ${home}`)
    },
    log: (text) => void logged.push(text),
  })

const stub = (id: string, home?: string, kind = "big"): Stub => {
  const made = stubOf(taskOf({ id, place: { kind, folder: "/here", merge: false } }), home === undefined) as Stub
  const given = { ...made, ...(home && { home }) }
  known.set(id, given)
  return given
}

test("is done when its host answers; a task whose work is here is known as before, a cleared one is not", async () => {
  const all = owing()
  await all.owe(stub("bg_a"))
  await all.owe(stub("bg_b", "c0ffee"))
  expect([wanted, readdirSync(folder).toSorted()]).toEqual([
    ["bg_a", "bg_b"],
    ["bg_a.json", "bg_b.json"],
  ])
  await all.settle("other")
  expect(paid).toEqual([])
  await all.settle("big")
  await all.settle("big")
  expect(paid).toEqual(["bg_a undefined", "bg_b c0ffee"])
  expect([[...known.keys()], known.get("bg_b")?.home, readdirSync(folder)]).toEqual([["bg_b"], undefined, []])
})

test("is tried again where it failed, and is not done any more once it is forgiven", async () => {
  const all = owing()
  const [a, b] = [stub("bg_a", "c0ffee"), stub("bg_b")]
  await all.owe(a)
  await all.owe(b)
  fails = true
  await all.settle("big")
  expect(logged).toEqual([
    "the folder that a task left on big could not be taken away: cut",
    "the work that a task left on big could not be taken away: cut",
  ])
  fails = false
  const settling = all.settle("big")
  await all.forgive(b)
  await settling
  expect(paid).toEqual(["bg_a c0ffee"])
  expect(readdirSync(folder)).toEqual([])
})

test("is not done any more where another process has done it", async () => {
  const [first, second] = [owing(), owing()]
  await first.owe(stub("bg_a", "c0ffee"))
  known.clear()
  await second.takeUp()
  await first.settle("big")
  await second.settle("big")
  expect(paid).toEqual(["bg_a c0ffee"])
  expect(known.get("bg_a")?.home).toBeUndefined()
})

test("is taken up by the next process, whether it knows the task already or not", async () => {
  const before = owing()
  for (const each of [
    stub("bg_a"),
    stub("bg_b", "c0ffee"),
    stub("bg_c", "decaf"),
    stub("bg_d"),
    stub("bg_e", "1", "gone"),
  ])
    await before.owe(each)
  process()
  stub("bg_c", "")
  stub("bg_d")
  const after = owing()
  await after.takeUp()
  expect(wanted.toSorted()).toEqual(["bg_a", "bg_b", "bg_c"])
  // Of one whose work is here nothing is read there, and nothing is stopped.
  expect(known.get("bg_a")).toMatchObject({ live: true, asked: true, owesAbort: true })
  expect(known.get("bg_b")).toMatchObject({ live: false, asked: false, owesAbort: false, home: "c0ffee" })
  await after.settle("big")
  expect(paid.toSorted()).toEqual(["bg_a undefined", "bg_b c0ffee", "bg_c decaf"])
})
