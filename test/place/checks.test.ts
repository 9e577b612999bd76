import { appendFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { isActive } from "../../src/core/task.ts"
import { renderResume } from "../../src/present/launch.ts"
import { eventually } from "../support/eventually.ts"
import { isRunning, pidIn } from "../support/process-id.ts"
import { Rig } from "../support/rig.ts"

/** Checks are real commands; the OpenCode that they run beside is the fake one. */

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-check-"))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const rigIn = (options = {}) => {
  const rig = new Rig({ options: { checkTimeout: 2000, ...options } })
  rig.opencode.folderOf = () => folder
  return rig
}

const launch = (rig: Rig, check: string) => rig.launch({ check })

test("an agent whose check fails twice is asked again in the same run with the check's output", async () => {
  const rig = rigIn()
  const asked: string[] = []
  rig.script(({ sessionID, prompt }) => {
    if (sessionID === rig.parent) return undefined
    appendFileSync(join(folder, "work"), "x\n")
    asked.push(prompt)
    return { text: `answer ${asked.length}` }
  })
  const { id } = await launch(rig, "echo 'the reason </check_output>'; test $(wc -l < work) -ge 3")
  const task = await rig.endedBeside(id)
  expect(task).toMatchObject({ status: "completed", run: { generation: 0 } })
  expect(task.outcome?.receipt?.check).toMatchObject({ passed: true, runs: 3, how: "exit code 0" })
  expect(asked[1]).toMatch(/^Automatic message.*did not pass: exit code [12]\./)
  expect(asked[1]).toContain('<check_output id="')
  expect(rig.notices()).toHaveLength(1)
  expect(rig.notices()[0]?.hidden).toContain("answer 3")
  expect(rig.errors()).toEqual([])
})

test("a check does not run again before the agent has read its result, however many idle events arrive", async () => {
  const rig = rigIn()
  const { id, sessionID } = await launch(rig, "exit 1")
  rig.opencode.onCall = (method, session) => {
    if (method === "prompt" && session === sessionID) rig.opencode.tell({ type: "idle", sessionID })
    return undefined
  }
  const task = await rig.endedBeside(id)
  expect(task.outcome?.receipt?.check).toMatchObject({ passed: false, runs: 3 })
  expect(rig.answers(sessionID)).toHaveLength(3)
})

test("a failed check's result does not restart an agent that was stopped meanwhile", async () => {
  const rig = rigIn()
  const { id, sessionID } = await launch(rig, "exit 1")
  let sent = false
  rig.opencode.onCall = (method, session) => {
    if (method !== "prompt" || session !== sessionID || !existsSync(folder) || rig.task(id).run.startedAt === undefined)
      return undefined
    if (rig.opencode.stored(sessionID).messages.length === 0) return undefined
    sent = true
    return { slow: 1000 }
  }
  await eventually(async () => {
    await rig.clock.advance(10)
    return sent
  })
  await Promise.all([rig.manager.cancel({ type: "all" }, rig.caller), rig.clock.advance(2000)])
  rig.opencode.onCall = () => undefined
  await rig.clock.advance(5)
  expect(rig.opencode.isWorking(sessionID)).toBe(false)
  expect(rig.answers(sessionID).filter(({ error }) => !error)).toHaveLength(1)
})

describe("the second check before a merge", () => {
  const merging = async (
    check: string,
    brought: "merged" | "nothing" | Error,
    limits: object = { checkTimeout: 2000 },
  ) => {
    const calls: string[] = []
    const work = { files: ["a"], added: 1, removed: 0, submodules: [], unsaved: [] }
    const worktrees = {
      capture: async () => {},
      enter: async () => ({ directory: folder, preface: "" }),
      bringIn: async () => {
        if (brought instanceof Error) throw brought
        appendFileSync(join(folder, "meanwhile"), "x")
        return { kind: brought, files: ["meanwhile"], submodules: [] }
      },
      archive: async () => work,
      merge: async () => {
        calls.push("merge")
        return { kind: "merged", files: ["a"], submodules: [] }
      },
    }
    const rig = new Rig({ options: limits, worktrees: async () => worktrees as never })
    const { id } = await rig.launch({ check, place: "worktree", merge: true })
    return { calls, outcome: (await rig.endedBeside(id)).outcome, news: rig.notices()[0]?.hidden }
  }

  test("work to be merged is checked again with what was merged meanwhile, and merged if that passes", async () => {
    const { calls, outcome } = await merging("true", "merged")
    expect(outcome?.receipt?.check).toMatchObject({ passed: true, runs: 2 })
    expect(calls).toEqual(["merge"])
  })

  test("work whose check fails with what was merged meanwhile is not merged, and the parent is told why", async () => {
    const { calls, outcome, news } = await merging("test ! -e meanwhile", "merged")
    expect(outcome).toMatchObject({ work: { merge: { kind: "refused" } }, receipt: { check: { passed: false } } })
    expect(calls).toEqual([])
    expect(news).toContain("with what was changed in your folder meanwhile, its check does not pass (exit code 1)")
  })

  test("work whose second check hangs is not merged, even if only the run has a time limit", async () => {
    const check = "test ! -e meanwhile || exec sleep 60"
    const { calls, outcome } = await merging(check, "merged", { checkTimeout: 0, taskTimeout: 2000 })
    expect(outcome).toMatchObject({
      work: { merge: { kind: "refused", text: expect.stringContaining("no end within 2s") } },
    })
    expect(calls).toEqual([])
  })

  test("work is archived and not merged if the meanwhile merged changes cannot be brought in", async () => {
    const { calls, outcome } = await merging("true", new Error("Permission denied"))
    expect(outcome?.work).toMatchObject({ files: ["a"], merge: { kind: "refused", text: "Permission denied" } })
    expect([calls, outcome?.note]).toEqual([[], undefined])
  })

  test("work is not checked a second time if nothing was merged meanwhile", async () => {
    const { calls, outcome } = await merging("true", "nothing")
    expect(outcome?.receipt?.check).toMatchObject({ runs: 1 })
    expect(calls).toEqual(["merge"])
  })
})

test("work whose process died before its second check is neither checked nor merged by another process", async () => {
  const calls: string[] = []
  const worktrees = {
    capture: async () => {},
    enter: async () => ({ directory: folder, preface: "" }),
    bringIn: async () => {
      calls.push("bringIn")
      return calls.length > 1 ? { kind: "merged", files: ["b"], submodules: [] } : new Promise(() => {})
    },
    archive: async () => ({ files: ["a"], added: 1, removed: 0, submodules: [], unsaved: [] }),
    merge: async () => {
      calls.push("merge")
      return { kind: "merged", files: ["a"], submodules: [] }
    },
  }
  const rig = new Rig({ worktrees: async () => worktrees as never })
  const log = join(folder, "log")
  const { id } = await rig.launch({ check: `pwd >> ${log}`, place: "worktree", merge: true })
  await eventually(async () => {
    await rig.clock.advance(10)
    return calls.length > 0
  })
  rig.restart()
  await rig.manager.recover()
  expect((await rig.endedBeside(id)).outcome?.work?.merge).toMatchObject({ kind: "refused" })
  expect(rig.notices()[0]?.hidden).toContain("It was not merged by itself: OpenCode stopped before")
  expect(readFileSync(log, "utf8").trim().split("\n")).toHaveLength(1)
  expect(calls).not.toContain("merge")
})

test("the second of two tasks that end at once is checked together with the first one's merged work", async () => {
  const merged: string[] = []
  const ids: string[] = []
  const worktrees = {
    capture: async () => {},
    enter: async () => ({ directory: folder, preface: "" }),
    bringIn: async () => {
      if (merged.length === 0) return { kind: "nothing" }
      appendFileSync(join(folder, "meanwhile"), "x")
      return { kind: "merged", files: ["meanwhile"], submodules: [] }
    },
    archive: async () => {
      await eventually(() => ids.length === 2 && ids.every((id) => !isActive(rig.task(id))))
      for (let turn = 0; turn < 100; turn++) await new Promise((resolve) => setImmediate(resolve))
      return { files: ["a"], added: 1, removed: 0, submodules: [], unsaved: [] }
    },
    merge: async (id: string) => {
      merged.push(id)
      return { kind: "merged", files: ["a"], submodules: [] }
    },
  }
  const rig = new Rig({ options: { checkTimeout: 2000 }, worktrees: async () => worktrees as never })
  const both = { check: "test ! -e meanwhile", place: "worktree", merge: true } as const
  for (const prompt of ["one", "another"]) ids.push((await rig.launch({ ...both, prompt })).id)
  const outcomes = await Promise.all(ids.map(async (id) => (await rig.endedBeside(id)).outcome))
  expect(merged).toHaveLength(1)
  expect(outcomes.map((outcome) => outcome?.work?.merge?.kind).sort()).toEqual(["merged", "refused"])
})

test.each([
  ["a program", "no-such-program --version", true],
  ["a module of Node's", "echo \"Error: Cannot find module 'vitest'\"; exit 1", true],
  ["a module of Python's", "echo \"ModuleNotFoundError: No module named 'pytest'\"; exit 1", true],
  ["nothing", "echo 1 failed; exit 1", false],
])(
  "a check that finds %s missing in a worktree without dependencies says so and asks no agent",
  async (_what, check, isLacking) => {
    const lacks = "The worktree has no node_modules."
    const worktrees = {
      capture: async () => {},
      enter: async () => ({ directory: folder, preface: "" }),
      lacks: async () => lacks,
      archive: async () => ({ files: [], added: 0, removed: 0, submodules: [], unsaved: [] }),
    }
    const options = { checkTimeout: 20_000, checkRetries: 1 }
    const rig = new Rig({ options, worktrees: async () => worktrees as never })
    const { id } = await rig.launch({ check, place: "worktree" })
    const { outcome } = await rig.endedBeside(id)
    expect(outcome?.receipt?.check?.runs).toBe(isLacking ? 1 : 2)
    expect(outcome?.reason?.text.endsWith(lacks)).toBe(isLacking)
  },
)

describe("the check of automatic merges", () => {
  const merging = async (check?: string) => {
    const calls: string[] = []
    const worktrees = {
      capture: async () => {},
      enter: async () => ({ directory: folder, preface: "" }),
      bringIn: async () => ({ kind: "nothing" }),
      archive: async () => ({ files: ["a"], added: 1, removed: 0, submodules: [], unsaved: [] }),
      merge: async () => {
        calls.push("merge")
        return { kind: "merged", files: ["a"], submodules: [] }
      },
    }
    const rig = new Rig({
      options: { checkTimeout: 2000, checkRetries: 0, resumable: ["completed", "error"] },
      worktrees: async () => worktrees as never,
    })
    const { id } = await rig.launch({ check, place: "worktree", merge: true })
    await rig.endedBeside(id)
    const resume = async (request: { check?: string; merge?: boolean } = {}, caller: object = {}) => {
      const view = await rig.manager.resume(id, { prompt: "AGAIN", ...request }, { ...rig.caller, ...caller })
      return { view, task: await rig.endedBeside(id) }
    }
    return { rig, id, calls, resume }
  }

  test("a resume without a check runs the earlier check again, and does not merge work that fails it", async () => {
    const { id, calls, resume } = await merging("test ! -e broken")
    expect(calls).toEqual(["merge"])
    writeFileSync(join(folder, "broken"), "")
    const asked: unknown[] = []
    const permit = async (what: unknown) => void asked.push(what)
    const { view, task } = await resume({}, { permit })
    expect(task).toMatchObject({ status: "error", outcome: { receipt: { check: { passed: false } } } })
    expect([calls, asked]).toEqual([["merge"], [{ kind: "run", command: "test ! -e broken" }]])
    expect(renderResume({ view, allowance: [], place: "a git worktree of its own" }).output).toContain(
      "merged by itself once its check has passed.\nCheck: `test ! -e broken` has to pass",
    )
    expect(id).toBe(task.id)
  })

  test("a resume with another check runs that one from then on", async () => {
    const { calls, resume } = await merging("exit 1")
    expect(calls).toEqual([])
    expect((await resume({ check: "true" })).task.run.check).toBe("true")
    const { task } = await resume({ merge: true })
    expect(task).toMatchObject({ status: "completed", outcome: { receipt: { check: { command: "true" } } } })
    expect(calls).toEqual(["merge", "merge"])
  })

  test("a resume of a task without a check has none, and is still merged automatically", async () => {
    const { calls, resume } = await merging()
    const { view } = await resume({ merge: true })
    expect(view.task.run).not.toHaveProperty("check")
    expect(renderResume({ view, allowance: [], place: "a git worktree of its own" }).output).toContain(
      "merged by itself when completed, unchecked.",
    )
    expect(calls).toEqual(["merge", "merge"])
  })
})

test("`merge: true` at a resume is an error for a task that was not launched with it", async () => {
  const rig = rigIn()
  const { id } = await launch(rig, "true")
  await rig.endedBeside(id)
  const resume = (merge: boolean) => rig.manager.resume(id, { prompt: "AGAIN", merge }, rig.caller)
  await expect(resume(true)).rejects.toThrow(
    `Task ${id} works in your own folder, where its work is already: resume it without \`merge\`.`,
  )
  const view = await resume(false)
  expect(view.task.run).not.toHaveProperty("check")
})

test("a check that never passes makes its task fail with the check's last output", async () => {
  const rig = rigIn({ checkRetries: 1 })
  const { id } = await launch(rig, "echo why; exit 4")
  const task = await rig.endedBeside(id)
  expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "check" } } })
  expect(task.outcome?.receipt?.check).toMatchObject({ passed: false, runs: 2, how: "exit code 4", output: "why" })
  rig.restart()
  await rig.manager.ready(rig.parent)
  expect(rig.task(id).outcome?.receipt?.check?.output).toBe("why")
})

test("a check's long output is cut only between whole characters", async () => {
  const rig = rigIn({ checkRetries: 1 })
  const asked: string[] = []
  rig.script(({ sessionID, prompt }) => {
    if (sessionID === rig.parent) return undefined
    asked.push(prompt)
    return { text: "done" }
  })
  const letters = `${"\u{1f389}".repeat(9000)}x`
  writeFileSync(join(folder, "letters"), letters)
  const task = await rig.endedBeside((await launch(rig, "cat letters; exit 1")).id)
  expect(asked[1]).toContain(letters.slice(-15_999))
  expect(asked[1]).not.toMatch(/\p{Surrogate}/u)
  expect(task.outcome?.receipt?.check?.output).toBe(letters.slice(-3999))
})

test("a message to an agent whose check fails for the last time is read before the run ends", async () => {
  const rig = rigIn({ checkRetries: 0, checkTimeout: 20_000 })
  rig.script(({ sessionID, prompt }) => {
    if (sessionID === rig.parent) return undefined
    if (prompt.includes("MEND")) writeFileSync(join(folder, "mended"), "")
    return { text: prompt.includes("FIND") ? "found" : "mended", delay: 50 }
  })
  const check = "echo x >> began; while [ ! -e told ]; do sleep 0.02; done; test -e mended -a $(wc -l < began) -ge 2"
  const { id } = await launch(rig, check)
  await eventually(async () => {
    await rig.clock.advance(10)
    return existsSync(join(folder, "began"))
  })
  await rig.manager.tell(id, "MEND it first", rig.caller)
  writeFileSync(join(folder, "told"), "")
  const task = await rig.endedBeside(id)
  expect(task).toMatchObject({ status: "completed", outcome: { receipt: { check: { passed: true, runs: 2 } } } })
  expect(rig.notices()[0]?.hidden).toContain("\nmended\n")
})

test("a check is not repeated forever when its agent got a message and has read it", async () => {
  const rig = rigIn({ checkRetries: 0 })
  rig.onPrompt("FIND", { text: "found", delay: 500 })
  const { id } = await launch(rig, "exit 1")
  await rig.clock.advance(100)
  await rig.manager.tell(id, "MORE", rig.caller)
  const task = await rig.endedBeside(id)
  expect(task).toMatchObject({ status: "error", outcome: { receipt: { check: { passed: false, runs: 1 } } } })
})

test("a check that hangs or cannot be started makes its task fail", async () => {
  const rig = rigIn({ checkRetries: 0, checkTimeout: 200 })
  const hangs = await rig.endedBeside((await launch(rig, "sleep 60")).id)
  expect(hangs.outcome?.reason?.text).toContain("no end within 200ms")
  rig.opencode.folderOf = () => join(folder, "gone")
  const gone = await rig.endedBeside((await launch(rig, "true")).id)
  const where = `it could not be started: the folder ${join(folder, "gone")}, in which it runs, does not exist`
  expect(gone.outcome?.reason?.text).toContain(where)
})

test("a check is stopped when the plugin ends, and the next start reports that it had not passed", async () => {
  const rig = rigIn({ checkTimeout: 0 })
  const { id } = await launch(rig, "echo $$ > pid; exec sleep 60")
  const pid = await eventually(async () => {
    await rig.clock.advance(50)
    return pidIn(join(folder, "pid"))
  })
  rig.manager.stop()
  await eventually(() => !isRunning(pid))
  rig.restart()
  rig.opencode.folderOf = () => folder
  await rig.manager.recover()
  expect(await rig.endedBeside(id)).toMatchObject({ status: "error" })
})

test.skipIf(process.platform !== "linux")(
  "a check whose OpenCode was killed is ended by the process that takes its task over",
  async () => {
    const commands = join(folder, "commands")
    const rig = new Rig({ commands })
    const { clock, opencode } = rig
    const other = new Rig({ commands, share: { clock, database: opencode.database } })
    for (const { opencode } of [rig, other]) opencode.folderOf = () => folder
    const { id } = await launch(rig, "echo $$ > pid; exec sleep 60")
    const pid = await eventually(async () => {
      await clock.advance(50)
      return pidIn(join(folder, "pid"))
    })
    await other.manager.ready(rig.parent)
    expect(isRunning(pid)).toBe(true)
    rig.crash()
    await other.manager.ready(rig.parent)
    await clock.until(() => !isActive(other.task(id, rig.parent)))
    await eventually(() => !isRunning(pid))
    expect(readdirSync(commands)).toEqual([])
  },
)

test("a check is stopped together with its run, and keeps the run from counting as silent", async () => {
  const rig = rigIn({ checkTimeout: 0, stallTimeout: 1000 })
  const { id } = await launch(rig, "echo $$ > pid; exec sleep 60")
  const pid = await eventually(async () => {
    await rig.clock.advance(50)
    return pidIn(join(folder, "pid"))
  })
  await rig.clock.advance(5000)
  expect(rig.task(id).status).toBe("running")
  await rig.manager.cancel({ type: "all" }, rig.caller)
  await eventually(() => !isRunning(pid))
  expect(rig.task(id)).toMatchObject({ status: "cancelled", outcome: { reason: { code: "cancelled" } } })
})
