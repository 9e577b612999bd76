import { beforeEach, expect, test } from "vitest"
import { type ArchiveResult, type Place, PlaceError } from "../../../src/runtime/places/place.ts"
import { Rig } from "../../support/rig.ts"

/** A merge of what a place that cannot be reached now still has: it is waited for, and nothing is done twice. */

const CHANGED: ArchiveResult = { files: ["a"], added: 1, removed: 0, submodules: [], unsaved: [] }
const CUT = () => new PlaceError("The way is cut.", "host")

let rig: Rig
let places: Place
let putAways: (() => Promise<ArchiveResult>)[]
let reaches: { resolve: () => void; reject: (error: Error) => void; signal?: AbortSignal }[]
let calls: string[]

beforeEach(() => {
  putAways = []
  reaches = []
  calls = []
  places = {
    capture: async () => {},
    enter: async () => ({ directory: "/place", preface: "" }),
    reach: (_taskID: string, signal?: AbortSignal) =>
      new Promise<void>((resolve, reject) => void reaches.push({ resolve, reject, signal })),
    archive: () => {
      calls.push("put away")
      return (putAways.shift() ?? (async () => CHANGED))()
    },
    merge: async () => {
      calls.push("merge")
      return { kind: "merged", files: ["a"], submodules: [] }
    },
    show: async () => ({ ...CHANGED, diff: "", cut: false, command: "" }),
  } as never as Place
  rig = new Rig({ worktrees: async () => places })
})

const fails = async (): Promise<ArchiveResult> => {
  throw CUT()
}

/** A task whose work was not fetched at its end. */
const left = async () => {
  putAways = [fails]
  const { id } = await rig.launch({ place: "worktree" })
  await rig.ended(id)
  expect(rig.task(id).outcome?.work).toBeUndefined()
  expect(reaches).toEqual([])
  calls.length = 0
  return id
}

const later = () => {
  let go = () => {}
  const work = new Promise<ArchiveResult>((resolve) => {
    go = () => resolve(CHANGED)
  })
  return { go: () => go(), work: () => work }
}

test("a merge waits until its place can be reached, even when the connection fails again", async () => {
  const id = await left()
  putAways = [fails]
  const merging = rig.manager.merge(id, rig.caller)
  await rig.settle()
  expect(calls).toEqual([])
  reaches[0]?.resolve()
  await rig.settle()
  expect([calls, reaches.length]).toEqual([["put away"], 2])
  reaches[1]?.resolve()
  expect((await merging).task.outcome?.work?.merge?.kind).toBe("merged")
  expect(calls).toEqual(["put away", "put away", "merge"])
})

test("a merge says why when its place is not reached in time or is lost repeatedly", async () => {
  const id = await left()
  const merging = rig.manager.merge(id, rig.caller)
  await rig.settle()
  reaches[0]?.reject(CUT())
  await expect(merging).rejects.toThrow(
    `Task ${id} was not merged: The way is cut. superagents_task(merge="${id}") merges it then.`,
  )
  expect(calls).toEqual([])
  putAways = [fails, fails, fails]
  const again = rig.manager.merge(id, rig.caller)
  again.catch(() => {})
  for (const nth of [1, 2, 3]) {
    await rig.settle()
    reaches[nth]?.resolve()
  }
  await expect(again).rejects.toThrow(
    `Task ${id} was not merged: The way is cut. superagents_task(merge="${id}") merges it then.`,
  )
  expect(reaches).toHaveLength(4)
})

test("a merge reports an error in its place and does not retry it", async () => {
  const id = await left()
  putAways = [() => Promise.reject(new Error("its disk is full"))]
  const merging = rig.manager.merge(id, rig.caller)
  await rig.settle()
  reaches[0]?.resolve()
  await expect(merging).rejects.toThrow("its disk is full")
  expect(calls).toEqual(["put away"])
})

test("a merge waits for its place only as long as its caller's turn lasts", async () => {
  const id = await left()
  const turn = new AbortController()
  void rig.manager.merge(id, { ...rig.caller, abort: turn.signal }).catch(() => {})
  await rig.settle()
  expect(reaches[0]?.signal).toBe(turn.signal)
})

test("a merge during an automatic fetch happens once and stays recorded", async () => {
  const id = await left()
  const [own, other] = [later(), later()]
  putAways = [other.work, own.work]
  const merging = rig.manager.merge(id, rig.caller)
  await rig.settle()
  const owed = rig.manager.parts.archive.settleOwed("worktree")
  await rig.settle()
  reaches[0]?.resolve()
  await rig.settle()
  own.go()
  expect((await merging).task.outcome?.work?.merge?.kind).toBe("merged")
  other.go()
  await owed
  expect(rig.task(id).outcome?.work?.merge?.kind).toBe("merged")
})

test("a merge archives nothing when the task has been resumed meanwhile", async () => {
  const id = await left()
  const merging = rig.manager.merge(id, rig.caller)
  merging.catch(() => {})
  await rig.settle()
  rig.onPrompt("MORE", { hang: true })
  await rig.manager.resume(id, { prompt: "MORE" }, rig.caller)
  await rig.clock.advance(100)
  reaches[0]?.resolve()
  await expect(merging).rejects.toThrow(`Task ${id} is still running.`)
  expect(calls).toEqual([])
})

test("a place that answers has the work of another process's task archived only once that process is dead", async () => {
  const id = await left()
  await rig.clock.advance(30_000)
  const other = new Rig({
    worktrees: async () => places,
    share: { clock: rig.clock, database: rig.opencode.database },
  })
  await other.manager.ready(rig.parent)
  await other.manager.parts.archive.settleOwed("worktree")
  expect([other.task(id, rig.parent).status, calls]).toEqual(["completed", []])
  rig.crash()
  await rig.clock.advance(60_000)
  // Nothing was written when the process died.
  await other.manager.parts.archive.settleOwed("worktree")
  expect(calls).toEqual(["put away"])
})
