import { beforeEach, describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { CaptureError, type Place } from "../../src/runtime/places/place.ts"
import { toolsFor } from "../../src/tools/index.ts"
import { Rig } from "../support/rig.ts"

const CHANGED = { files: ["a"], added: 1, removed: 0, submodules: [], unsaved: [] }

let rig: Rig
let merged: string[]
let changed: typeof CHANGED
beforeEach(() => {
  merged = []
  changed = CHANGED
  const places = {
    capture: async () => {},
    enter: async () => ({ directory: "/place", preface: "" }),
    archive: async () => changed,
    show: async () => ({ ...CHANGED, diff: "", cut: false, command: "git diff" }),
    merge: async (id: string) => {
      merged.push(id)
      return merged.length === 2 ? { kind: "conflict", files: ["a"] } : { kind: "merged", files: ["a"], submodules: [] }
    },
  } as never as Place
  rig = new Rig({ worktrees: async () => places })
  rig.opencode.move = async () => {}
})

const call = async (name: "superagents_output" | "superagents_task", args: object) =>
  (await toolsFor(rig.manager, rig.options)[name]?.execute(args, rig.caller)) ?? { title: "", output: "" }

describe("a batch by name", () => {
  test("superagents_output of a batch shows each answer, each failure and what still runs", async () => {
    rig.onPrompt("HANG", { hang: true })
    rig.onPrompt("FAIL", { status: 400, body: { error: { message: "no credit" } } })
    rig.onPrompt("LONG", { text: "x".repeat(60_000) })
    const batch = "map"
    const done = await rig.ended((await rig.launch({ batch })).id)
    const failed = await rig.ended((await rig.launch({ batch, prompt: "FAIL" })).id)
    const long = await rig.ended((await rig.launch({ batch, prompt: "LONG" })).id)
    const runs = await rig.launch({ batch, prompt: "HANG" })
    await rig.launch({ prompt: "HANG TOO" })
    const { title, output } = await call("superagents_output", { task_id: "map" })
    expect(title).toBe("4 tasks, 1 running, 1 failed")
    expect(output).toContain(`<task_output id="${done.id}">\nok\n</task_output>`)
    expect(output).toMatch(new RegExp(`${failed.id} .*: error, .*\\nReason: .*no credit`))
    expect(output).toMatch(new RegExp(`superagents_output\\(task_id="${long.id}", offset=\\d+\\)`))
    expect(output).toMatch(
      new RegExp(
        `${runs.id} .*: running, working, .*\\nIt is still running\\.\\n\\nYou will be told when each ends\\. Do not ask again until then\\.$`,
      ),
    )
    expect(Buffer.byteLength(output)).toBeLessThan(50_000)
    expect(rig.task(done.id).retrievedAt).toBeDefined()
    await expect(call("superagents_output", { task_id: "map", offset: 5 })).rejects.toThrow(
      '`offset` goes with one task; "map" is a batch of 4.',
    )
  })

  test("superagents_output with block waits for all tasks of a batch", async () => {
    const batch = "map"
    const [one, two] = [await rig.launch({ batch }), await rig.launch({ batch, prompt: "TWO" })]
    const waiting = call("superagents_output", { task_id: "map", block: true })
    await rig.clock.until(() => [one, two].every(({ id }) => rig.task(id).status === "completed"))
    const { title, output } = await waiting
    expect(title).toBe("2 tasks, 0 running")
    expect(output).not.toContain("You will be told")
  })

  test("an answer of a batch that cannot be read leaves the others in the result", async () => {
    const batch = "map"
    rig.onPrompt("QUICK", { text: "x".repeat(4001) })
    rig.onPrompt("SLOW", { text: "the slow answer", delay: 5000 })
    const quick = await rig.ended((await rig.launch({ batch, prompt: "QUICK" })).id)
    await rig.clock.advance(rig.options.resultCacheTTL)
    const slow = await rig.launch({ batch, prompt: "SLOW" })
    rig.opencode.onCall = (method, session) =>
      method === "messagesSince" && session === quick.sessionID ? { fail: new OpencodeError("no contact") } : undefined
    const waiting = call("superagents_output", { task_id: "map", block: true })
    await rig.ended(slow.id)
    const { title, output } = await waiting
    expect(title).toBe("1 task, 0 running, 1 not read")
    expect(output).toContain(
      `${quick.id} (find it): Its answer could not be read (no contact). superagents_output(task_id="${quick.id}") tries it again.\n\n`,
    )
    expect([quick, slow].map(({ id }) => rig.task(id).retrievedAt !== undefined)).toEqual([false, true])
    expect(output).toContain(`<task_output id="${slow.id}">\nthe slow answer\n</task_output>`)
    expect(output).not.toContain("still running")
    expect(output).not.toContain("You will be told")
  })

  test("a batch of one task is an error where its answer cannot be read", async () => {
    await rig.ended((await rig.launch({ batch: "map" })).id)
    await rig.clock.advance(rig.options.resultCacheTTL)
    rig.opencode.onCall = (method) =>
      method === "messagesSince" ? { fail: new OpencodeError("no contact") } : undefined
    await expect(call("superagents_output", { task_id: "map" })).rejects.toThrow("OpenCode did not do its part")
  })

  test("a task that a batch's result has no room for is named, and its answer does not count as fetched", async () => {
    const batch = "map"
    rig.onPrompt("FIND", { text: "x".repeat(4001) })
    changed = { ...CHANGED, files: Array.from({ length: 50 }, (_, index) => `${"漢".repeat(190)}${index}`) }
    const ids: string[] = []
    for (const prompt of ["FIND one", "FIND two"])
      ids.push((await rig.ended((await rig.launch({ batch, prompt, place: "worktree" })).id)).id)
    const fetched = () => ids.filter((id) => rig.task(id).retrievedAt !== undefined)
    await expect(call("superagents_output", { task_id: "map", offset: 5 })).rejects.toThrow("is a batch of 2.")
    expect(fetched()).toEqual([])
    const { output } = await call("superagents_output", { task_id: "map" })
    expect(Buffer.byteLength(output)).toBeLessThan(50_000)
    expect(output).toContain(`<task_output id="${ids[0]}">\nx`)
    expect(output).toMatch(new RegExp(`: ${ids[1]}\\. superagents_output\\(task_id\\) shows each\\.$`))
    expect(fetched()).toEqual(ids.slice(0, 1))
  })

  test("the answer of a run that began during the wait for a batch does not count as fetched", async () => {
    const batch = "map"
    rig.onPrompt("QUICK", { text: "x".repeat(4001) })
    rig.onPrompt("SLOW", { text: "slow", delay: 60_000 })
    const { id } = await rig.ended((await rig.launch({ batch, prompt: "QUICK" })).id)
    const slow = await rig.launch({ batch, prompt: "SLOW" })
    const waiting = call("superagents_output", { task_id: "map", block: true, timeout: 600_000 })
    await rig.settle()
    await rig.manager.resume(id, { prompt: "QUICK again" }, rig.caller)
    await rig.ended(id)
    await rig.ended(slow.id)
    expect((await waiting).output).toContain(`<task_output id="${id}">\nx`)
    expect(rig.task(id).retrievedAt).toBeUndefined()
  })

  test("a batch is merged task by task, and the tasks that could not be merged are named", async () => {
    const work = { batch: "write", place: "worktree" } as const
    const ids = [(await rig.launch(work)).id, (await rig.launch({ ...work, prompt: "TWO" })).id]
    const here = await rig.launch({ batch: "write", prompt: "HERE" })
    for (const id of [...ids, here.id]) await rig.ended(id)
    const { title, output } = await call("superagents_task", { merge: "write" })
    expect(merged).toEqual(ids)
    expect(title).toBe("Merged 1 of 3")
    expect(output).toContain("Merged into your files, uncommitted.")
    expect(output).toContain("Not merged, and nothing was touched: conflict in a.")
    expect(output).toContain(`Task ${here.id} works in your own folder`)
  })

  test("a merge that fails in OpenCode does not lose the results of a batch's others", async () => {
    const work = { batch: "write", place: "worktree" } as const
    const ids = [(await rig.launch(work)).id, (await rig.launch({ ...work, prompt: "TWO" })).id]
    for (const id of ids) await rig.ended(id)
    const { manager } = rig
    const merge = manager.merge.bind(manager)
    manager.merge = async (id, caller) => {
      if (id === ids[1]) throw new OpencodeError("read a session: it does not answer")
      return merge(id, caller)
    }
    const { title, output } = await call("superagents_task", { merge: "write" })
    expect(title).toBe("Merged 1 of 2")
    expect(output).toContain(
      `(read a session: it does not answer). superagents_task(merge="${ids[1]}") tries it again.`,
    )
  })

  test("a task id takes precedence over a batch of the same name", async () => {
    const { id } = await rig.ended((await rig.launch()).id)
    await rig.ended((await rig.launch({ batch: id, prompt: "NAMED LIKE IT" })).id)
    expect((await call("superagents_output", { task_id: id })).output).toContain(`Task: ${id} `)
  })
})

test.each([
  [{ place: "worktree" }, 'Or give `place: "here"`, without `merge` and `guard`: the task then works in this folder.'],
  [{ tries: 2, check: "true" }, "Tries need a git repository: each works in a worktree of its own."],
])("a launch that cannot get a worktree says what to do instead: %j", async (asked, advice) => {
  const why = "A worktree could not be made: /project is not in the checkout of a git repository."
  const capture = async () => Promise.reject(new CaptureError(why))
  rig = new Rig({ worktrees: async () => ({ capture }) as never as Place })
  await expect(rig.launch(asked)).rejects.toThrow(`${why} ${advice}`)
  expect(rig.manager.list(rig.parent)).toEqual([])
})
