import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import type { Place } from "../../../src/runtime/places/place.ts"
import { eventually } from "../../support/eventually.ts"
import { isRunning, killIfRunning, pidIn } from "../../support/process-id.ts"
import { Rig } from "../../support/rig.ts"

/** A task that has completed, and whose check runs once more since its parent's files have changed meanwhile. */

const PASSES_ONCE = `if [ -e "$0.passed" ]; then echo $$ > second; exec sleep 600; else touch "$0.passed"; fi`

class FakePlaces {
  readonly merged: string[] = []
  async capture() {}
  enter = async ({ taskID }: { taskID: string }) => ({ directory: folder(taskID), preface: "" })
  bringIn = async () => ({ kind: "merged", files: ["theirs"], submodules: [] })
  archive = async () => ({ files: ["a"], added: 1, removed: 0, submodules: [], unsaved: [] })
  show = async () => ({ files: ["a"], diff: "+a", cut: false, command: "git diff" })
  clear = async () => []
  async merge(taskID: string) {
    this.merged.push(taskID)
    return { kind: "merged", files: ["a"], submodules: [] }
  }
}

let root: string
let places: FakePlaces
let rig: Rig
const folder = (taskID: string) => join(root, taskID)
const checkOf = (name: string) => PASSES_ONCE.replaceAll("$0", join(root, name))
const MERGES = { place: "worktree", merge: true } as const

const pid = () => pidIn(join(root, "second"))
const lives = () => isRunning(pid())
const comes = (state: () => boolean) =>
  eventually(async () => {
    await rig.clock.advance(50)
    return state()
  })

/** One whose second check runs. */
async function merging() {
  const task = await rig.launch({ ...MERGES, check: checkOf("a"), batch: "work" })
  await comes(lives)
  return task
}

const refusal = (id: string) => rig.task(id).outcome?.work?.merge

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "second-check-"))
  places = new FakePlaces()
  rig = new Rig({ worktrees: async () => places as never as Place })
  rig.opencode.move = async () => {}
  rig.opencode.folderOf = (sessionID) => (sessionID === rig.parent ? "/project" : root)
})

afterEach(() => {
  killIfRunning(pid())
  rmSync(root, { recursive: true, force: true })
})

describe("a completed task's second check", () => {
  test("a parent is notified of other tasks while a completed task's second check runs", async () => {
    const { id } = await merging()
    const other = await rig.ended((await rig.launch({ prompt: "OTHER", description: "the other" })).id)
    expect(other.status).toBe("completed")
    expect(rig.notices().map(({ visible }) => visible.split("\n")[0])).toEqual([
      expect.stringContaining('Agent "the other" finished'),
    ])
    expect([rig.task(id).status, rig.view(id).merging, lives()]).toEqual(["completed", true, true])
  })

  test("a completed task's answer is available while its second check runs", async () => {
    const { id } = await merging()
    const report = await rig.output(id)
    expect([report.answer, report.view.merging, lives()]).toEqual(["ok", true, true])
  })

  test.each(["its id", "its batch", "all"])(
    "a cancel by %s stops a completed task's second check, prevents the merge and is reported",
    async (by) => {
      const { id } = await merging()
      const selector = by === "all" ? { type: "all" as const } : { type: "batch" as const, name: "work" }
      const stopped = await rig.manager.cancel(by === "its id" ? { type: "task", reference: id } : selector, rig.caller)
      expect(stopped.map(({ task }) => [task.id, task.status])).toEqual([[id, "completed"]])
      expect([lives(), places.merged]).toEqual([false, []])
      expect(refusal(id)).toMatchObject({ kind: "refused", text: expect.stringContaining("was stopped") })
      await rig.ended(id)
      expect(rig.notices()).toHaveLength(1)
      expect(rig.notices()[0]?.hidden).toMatch(/Not merged yet: .*its second check was stopped/)
    },
  )

  test("a user can stop a completed task's second check from the page, which shows it as stoppable", async () => {
    const seen: unknown[] = []
    rig.manager.parts.reports.subscribe((task) => seen.push(rig.manager.parts.reports.get(task)?.merging))
    const { id } = await merging()
    expect(seen).toContain(true)
    expect(await rig.manager.parts.reports.cancel(id)).toBe(true)
    expect([lives(), places.merged, rig.task(id).status]).toEqual([false, [], "completed"])
    await rig.ended(id)
    expect(await rig.manager.parts.reports.cancel(id)).toBe(false)
  })

  test("a user can stop a completed task's second check from the terminal", async () => {
    const { id, sessionID } = await merging()
    const request = { id: "r1", action: "cancel" } as const
    rig.manager.handle({ type: "updated", sessionID, request })
    await comes(() => rig.task(id).delivery.state === "confirmed")
    expect([lives(), places.merged]).toEqual([false, []])
  })

  test("clearing the session stops a completed task's second check", async () => {
    await merging()
    expect(await rig.manager.clear(rig.parent)).toMatchObject({ cleared: 1 })
    expect([lives(), places.merged]).toEqual([false, []])
    expect(rig.manager.list(rig.parent)).toEqual([])
    await rig.clock.advance(10_000)
    expect(rig.notices()).toEqual([])
  })

  test("a task that waits for its turn to merge can be cancelled without stopping the running check", async () => {
    await merging()
    const { id } = await rig.launch({ ...MERGES, prompt: "SECOND", check: checkOf("b") })
    await comes(() => rig.task(id).status === "completed")
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    expect(refusal(id)).toMatchObject({ kind: "refused", text: expect.stringContaining("was stopped") })
    expect([lives(), places.merged]).toEqual([true, []])
  })
})

test("a resumed task keeps its guard, also through a run without a check", async () => {
  const guarded = new Rig({
    options: { resumable: ["completed", "error"] },
    worktrees: async () => places as never as Place,
    kind: { guards: true },
  })
  const guard = ["test/**"]
  const { id } = await guarded.launch({ ...MERGES, check: "true", guard })
  await guarded.ended(id)
  await guarded.manager.resume(id, { prompt: "more" }, guarded.caller)
  expect(guarded.task(id).run).toMatchObject({ generation: 1, check: "true", guard })
  const other = await guarded.launch({ place: "worktree", prompt: "OTHER", check: "true", guard })
  await guarded.ended(other.id)
  await guarded.manager.resume(other.id, { prompt: "more" }, guarded.caller)
  expect((await guarded.ended(other.id)).run).toMatchObject({ generation: 1, guard })
  expect(guarded.task(other.id).run.check).toBe(undefined)
  await guarded.manager.resume(other.id, { prompt: "more", check: "true" }, guarded.caller)
  expect((await guarded.ended(other.id)).run).toMatchObject({ generation: 2, check: "true", guard })
})
