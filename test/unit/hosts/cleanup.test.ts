import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { Cleanup, type CleanupHosts } from "../../../src/features/hosts/cleanup.ts"
import { type RemoteSession, remoteSessionOf } from "../../../src/features/hosts/remote-session.ts"
import { type ClockView, FakeClock } from "../../support/fake-clock.ts"
import { taskOf } from "../../support/tasks.ts"

/** What is owed on hosts: done when they answer, over restarts, once. */

let folder: string
let known: Map<string, RemoteSession>
let fails: boolean
let paid: string[]
let wanted: string[]
let logged: string[]
let clock: FakeClock
let timers: ClockView
let isReached: boolean
/** Tasks for which their host is kept no longer. */
let released: string[]
let pays: number

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-owing-"))
  fails = false
  isReached = false
  clock = new FakeClock()
  timers = clock.view()
  process()
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

/** Another process begins. */
const process = () => {
  known = new Map()
  paid = []
  wanted = []
  logged = []
  released = []
  pays = 0
}

test("a crash while the cleanup queue writes a record loses neither the old nor the new one", async () => {
  const queued = remote("bg_a")
  await cleanup().schedule(queued)
  const [name = ""] = readdirSync(folder)
  const before = openSync(join(folder, name), "r")
  await cleanup().schedule({ ...queued, home: "0".repeat(40) })
  // Whoever writes in place empties this.
  expect(JSON.parse(readFileSync(before, "utf8")).home).toBeUndefined()
  closeSync(before)
  // As a crash leaves it while the next is written.
  writeFileSync(join(folder, `${name}.new`), '{"taskID":')
  process()
  await cleanup().takeUp()
  expect([...known.values()]).toMatchObject([{ taskID: "bg_a", home: "0".repeat(40) }])
})

test("a host's cleanups include those that another process has stored since", async () => {
  const here = cleanup()
  await here.takeUp()
  await cleanup().schedule(remote("bg_a", "1".repeat(40)))
  known.clear()
  isReached = true
  await here.settle("big")
  expect(paid).toEqual([`bg_a ${"1".repeat(40)}`])
  expect(readdirSync(folder)).toEqual([])
})

const cleanup = () => {
  const link = {
    use: (taskID: string) => void wanted.push(taskID),
    release: (taskID: string) => void released.push(taskID),
    get contact() {
      return isReached ? {} : undefined
    },
  }
  const hosts: CleanupHosts = {
    remoteSessionOf: (taskID) => known.get(taskID),
    has: (host) => host === "big",
    add: (remote) => void known.set(remote.taskID, remote),
    drop: ({ taskID }) => void known.delete(taskID),
    machine: () => ({ link }),
    performCleanup: async ({ taskID, home }) => {
      pays++
      if (fails) throw new Error("cut")
      paid.push(`${taskID} ${home}`)
    },
    log: (text) => void logged.push(text),
  }
  return new Cleanup(hosts, { folder, parentFolder: "/here", clock: timers })
}

const remote = (id: string, home?: string, kind = "big"): RemoteSession => {
  const made = remoteSessionOf(
    taskOf({ id, place: { kind, folder: "/here", merge: false } }),
    home === undefined,
  ) as RemoteSession
  const given = { ...made, ...(home && { home }) }
  known.set(id, given)
  return given
}

test("a queued cleanup is done once, when its host answers", async () => {
  const all = cleanup()
  await all.schedule(remote("bg_a"))
  await all.schedule(remote("bg_b", "c0ffee"))
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

test("a queued cleanup that failed is tried again, unless it was withdrawn", async () => {
  const all = cleanup()
  const [a, b] = [remote("bg_a", "c0ffee"), remote("bg_b")]
  await all.schedule(a)
  await all.schedule(b)
  fails = true
  await all.settle("big")
  expect(logged).toEqual([
    "the folder that a task left on big could not be taken away: cut",
    "the work that a task left on big could not be taken away: cut",
  ])
  fails = false
  const settling = all.settle("big")
  await all.cancel(b)
  await settling
  expect(paid).toEqual(["bg_a c0ffee"])
  expect(readdirSync(folder)).toEqual([])
})

test("a queued cleanup is not repeated when another process has done it", async () => {
  const [first, second] = [cleanup(), cleanup()]
  await first.schedule(remote("bg_a", "c0ffee"))
  known.clear()
  await second.takeUp()
  await first.settle("big")
  await second.settle("big")
  expect(paid).toEqual(["bg_a c0ffee"])
  expect(known.get("bg_a")?.home).toBeUndefined()
})

test("a queued cleanup is taken over by the next process, whether it knows the task or not", async () => {
  const before = cleanup()
  for (const each of [
    remote("bg_a"),
    remote("bg_b", "c0ffee"),
    remote("bg_c", "decaf"),
    remote("bg_d"),
    remote("bg_e", "1", "gone"),
  ])
    await before.schedule(each)
  process()
  remote("bg_c", "")
  remote("bg_d")
  const after = cleanup()
  await after.takeUp()
  expect(wanted.toSorted()).toEqual(["bg_a", "bg_b", "bg_c"])
  // Of one whose work is here nothing is read there, and nothing is stopped.
  expect(known.get("bg_a")).toMatchObject({ live: true, promptSent: true, abortPending: true })
  expect(known.get("bg_b")).toMatchObject({ live: false, promptSent: false, abortPending: false, home: "c0ffee" })
  await after.settle("big")
  expect(paid.toSorted()).toEqual(["bg_a undefined", "bg_b c0ffee", "bg_c decaf"])
})

test("a cleanup that fails despite contact is tried again after growing pauses, then at the next contact", async () => {
  const all = cleanup()
  isReached = true
  fails = true
  await all.schedule(remote("bg_a", "c0ffee"))
  await all.schedule(remote("bg_b", "c0ffee"))
  expect(timers.pending).toBe(1)
  const at: number[] = []
  const begin = clock.now()
  while (timers.pending > 0) {
    const before = pays
    await clock.advance(1000)
    if (pays > before) at.push((clock.now() - begin) / 1000)
  }
  expect(at).toEqual([5, 20, 65, 200, 605])
  // A folder that cannot be removed keeps no connection for ever.
  expect(released).toEqual(["bg_a", "bg_b"])
  fails = false
  await all.settle("big")
  expect(paid).toEqual(["bg_a c0ffee", "bg_b c0ffee"])
  expect(timers.pending).toBe(0)
})

test("a cleanup that succeeds at the second try leaves no timer and releases its host", async () => {
  const all = cleanup()
  isReached = true
  await all.schedule(remote("bg_a", "c0ffee"))
  await clock.advance(5000)
  expect([paid, released, timers.pending]).toEqual([["bg_a c0ffee"], ["bg_a"], 0])
})

test("a cleanup is not tried without contact, and its pauses start over with new contact", async () => {
  const all = cleanup()
  isReached = true
  fails = true
  await all.schedule(remote("bg_a", "c0ffee"))
  await clock.advance(20_000)
  isReached = false
  await clock.advance(1_000_000)
  expect([pays, timers.pending, released]).toEqual([2, 0, []])
  isReached = true
  await all.settle("big")
  expect(pays).toBe(3)
  await clock.advance(5000)
  expect(pays).toBe(4)
  all.close()
  expect(timers.pending).toBe(0)
})

test("a later run of the task keeps its host although an earlier cleanup ends", async () => {
  const all = cleanup()
  const a = remote("bg_a", "c0ffee")
  await all.schedule(a)
  const settling = all.settle("big")
  await all.cancel(a)
  await settling
  expect(released).toEqual([])
})
