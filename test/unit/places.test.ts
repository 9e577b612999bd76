import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { beforeEach, describe, expect, test } from "vitest"
import { openApp } from "../../src/app.ts"
import { CallError } from "../../src/core/errors.ts"
import { OpencodeError } from "../../src/core/ports.ts"
import { FEATURES } from "../../src/features/index.ts"
import { type PreparedWorktree, prefaceOf } from "../../src/features/worktrees/worktree.ts"
import type { Connection } from "../../src/runtime/connection.ts"
import {
  type ArchiveResult,
  type EnterRequest,
  hereKind,
  type MergeResult,
  type Place,
  type PlacePorts,
  type PreparedPlace,
  type SweptLeftover,
} from "../../src/runtime/places/place.ts"
import { eventually } from "../support/eventually.ts"
import { DEFAULTS } from "../support/options.ts"
import { held } from "../support/outbox-rig.ts"
import { isRunning, pidIn } from "../support/process-id.ts"
import { Rig } from "../support/rig.ts"

/** What is done with places, as the manager asks for it; git itself has tests of its own. */

const CHANGED: ArchiveResult = { files: ["a"], added: 1, removed: 0, submodules: [], unsaved: [] }

const READY: PreparedWorktree = {
  directory: "/place",
  conflicts: [],
  unreadable: [],
  stashed: [],
  left: { commits: [] },
  ignored: { present: [], absent: [] },
}

class FakeWorktrees {
  readonly calls: string[] = []
  onCapture = async () => {}
  onReady = async (_request: EnterRequest): Promise<PreparedWorktree> => READY
  onPutAway = async (): Promise<ArchiveResult> => CHANGED
  onMerge = async (): Promise<MergeResult> => ({ kind: "merged", files: ["a"], submodules: [] })
  mayEnterAgain = async () => {}
  kept: string[] = []

  capture(taskID: string, folder: string) {
    this.calls.push(`capture ${taskID} ${folder}`)
    return this.onCapture()
  }
  async enter(request: EnterRequest): Promise<PreparedPlace> {
    this.calls.push("enter")
    const entered = await this.onReady(request)
    return { ...entered, preface: prefaceOf(request, entered) }
  }
  archive(taskID: string, folder: string) {
    this.calls.push(`archive ${taskID} ${folder}`)
    return this.onPutAway()
  }
  merge(taskID: string, folder: string) {
    this.calls.push(`merge ${taskID} ${folder}`)
    return this.onMerge()
  }
  async show() {
    return { ...(await this.onPutAway()), diff: "+a", cut: false, command: "git diff" }
  }
  async clear() {
    return this.kept
  }
  swept: SweptLeftover[] = [{ taskID: "bg_x", what: "its state was kept" }]
  async sweep() {
    this.calls.push("sweep")
    return this.swept
  }
  async expire() {
    this.calls.push("expire")
    return []
  }
}

let places: FakeWorktrees
let rig: Rig
beforeEach(() => {
  places = new FakeWorktrees()
  rig = new Rig({ worktrees: async () => places as never as Place })
})

const IN_WORKTREE = { place: "worktree" } as const
const prompts = () => rig.opencode.stored(rig.manager.list(rig.parent)[0]?.task.sessionID ?? "").messages

describe("a task in a worktree", () => {
  test("a task in a worktree works there, and its session is moved back before the worktree is archived", async () => {
    const order: string[] = []
    rig.opencode.onCall = (method, sessionID) => {
      if (["createSession", "move", "prompt"].includes(method)) order.push(`${method} ${sessionID === rig.parent}`)
      return undefined
    }
    places.onPutAway = async () => {
      order.push("archive")
      return CHANGED
    }
    const { id, sessionID } = await rig.launch(IN_WORKTREE)
    expect(places.calls[0]).toBe(`capture ${id} /project`)
    const task = await rig.ended(id)
    expect(order).toEqual(["createSession true", "move false", "prompt false", "move false", "archive", "prompt true"])
    expect(rig.opencode.folderOf(sessionID)).toBe("/project")
    const [prompt, preface] = prompts()[0]?.parts ?? []
    expect([prompt, preface]).toMatchObject([{ text: "FIND" }, { text: expect.stringContaining("/place") }])
    expect(task.outcome?.work).toEqual({ files: ["a"], moreFiles: 0, added: 1, removed: 0, submodules: [] })
    expect(rig.notices()[0]?.hidden).toContain("Changes: 1 file, +1 −0: a")
    expect((await rig.output(id)).shown?.diff).toBe("+a")
    expect(rig.errors()).toEqual([])
  })

  test("tasks of one message share a batch even if saving the state of their worktrees takes long", async () => {
    rig.onPrompt("FIND", { hang: true })
    places.onCapture = () => new Promise((resolve) => void rig.clock.after(500, resolve))
    const launches = ["FIND a", "FIND b"].map((prompt) => rig.launch({ ...IN_WORKTREE, prompt }))
    await rig.clock.advance(2000)
    const [a, b] = await Promise.all(launches)
    expect([a?.batch, b?.batch]).toEqual([`auto:${a?.id}`, `auto:${a?.id}`])
  })

  test("a task whose worktree cannot be made gives its reserved slot back", async () => {
    rig = new Rig({ options: { maxConcurrentTasks: 1 }, worktrees: async () => places as never as Place })
    places.onCapture = () => Promise.reject(new CallError("no git here"))
    const [, here] = await Promise.allSettled([rig.launch(IN_WORKTREE), rig.launch({ prompt: "HERE" })])
    if (here?.status !== "fulfilled") throw new Error("not launched")
    expect((await rig.ended(here.value.id)).status).toBe("completed")
  })

  test("a launch fails and leaves nothing behind if no worktree can be made", async () => {
    places.onCapture = () => Promise.reject(new CallError("no git here"))
    await expect(rig.launch(IN_WORKTREE)).rejects.toThrow("no git here")
    expect(rig.manager.list(rig.parent)).toEqual([])
    expect(rig.opencode.calls).not.toContain("createSession")
  })

  test("a task fails with the output of its worktree's setup, and is never prompted", async () => {
    places.onReady = () => Promise.reject(new CallError("The option worktree.setup ended with exit code 1"))
    const task = await rig.ended((await rig.launch(IN_WORKTREE)).id)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "place" } } })
    expect(rig.notices()).toHaveLength(1)
    expect(rig.notices()[0]?.hidden).toContain("exit code 1")
    expect(prompts()).toEqual([])
  })

  test("preparing a worktree does not count as silence, and messages meanwhile are appended to the prompt", async () => {
    let go = () => {}
    places.onReady = async () => {
      await new Promise<void>((resolve) => {
        go = resolve
      })
      return { ...READY, conflicts: ["a <b>"] }
    }
    const { id } = await rig.launch(IN_WORKTREE)
    await rig.clock.advance(700_000)
    expect(rig.task(id).status).toBe("running")
    expect(await rig.manager.tell(id, "and this", rig.caller)).toMatchObject({ waits: true })
    go()
    expect((await rig.ended(id)).status).toBe("completed")
    expect(prompts()[0]?.parts).toMatchObject([
      { text: "FIND\n\nand this" },
      { text: expect.stringMatching(/conflict marks .* a ‹b>$/s) },
    ])
  })

  test("a task that is cancelled while its worktree is prepared is never prompted, and the worktree is archived", async () => {
    let seen: AbortSignal | undefined
    places.onReady = ({ signal }) => {
      seen = signal
      return new Promise((_resolve, reject) => signal?.addEventListener("abort", () => reject(new Error("stopped"))))
    }
    const { id } = await rig.launch(IN_WORKTREE)
    await rig.clock.advance(100)
    await rig.manager.cancel({ type: "all" }, rig.caller)
    expect(seen?.aborted).toBe(true)
    expect(rig.task(id).status).toBe("cancelled")
    expect(places.calls.at(-1)).toBe(`archive ${id} /project`)
    expect(prompts()).toEqual([])
  })

  test("a task whose worktree cannot be archived still notifies its parent, with a note about its changes", async () => {
    places.onPutAway = () => Promise.reject(new Error("No space left on device"))
    const { id, status } = await rig.ended((await rig.launch(IN_WORKTREE)).id)
    expect(status).toBe("completed")
    expect(rig.notices()[0]?.hidden).toMatch(/Note: What it changed was not kept .* Why: No space left on device/)
    await expect(rig.manager.merge(id, rig.caller)).rejects.toThrow("No space left on device")
    places.onPutAway = async () => CHANGED
    const asked: unknown[] = []
    const view = await rig.manager.merge(id, { ...rig.caller, permit: async (what) => void asked.push(what) })
    expect(asked).toEqual([{ kind: "edit", files: ["a"] }])
    expect(view.task.outcome).toMatchObject({ note: undefined, work: { files: ["a"], merge: { kind: "merged" } } })
    rig.restart()
    await rig.manager.ready(rig.parent)
    expect(rig.task(id).outcome?.work?.merge?.kind).toBe("merged")
  })

  test("a task that is cancelled during its check is archived only after the check has stopped", async () => {
    const folder = mkdtempSync(join(tmpdir(), "check-"))
    rig.opencode.move = async () => {}
    rig.opencode.folderOf = () => folder
    const runs = () => isRunning(pidIn(join(folder, "pid")))
    let ran: boolean | undefined
    places.onPutAway = async () => {
      ran = runs()
      return CHANGED
    }
    const { id } = await rig.launch({ ...IN_WORKTREE, check: "echo $$ > pid; exec sleep 60" })
    await eventually(async () => {
      await rig.clock.advance(50)
      return runs()
    })
    await rig.manager.cancel({ type: "all" }, rig.caller)
    expect([rig.task(id).status, ran]).toEqual(["cancelled", false])
    rmSync(folder, { recursive: true })
  })

  test("a task's worktree is archived only after those of the tasks that it launched", async () => {
    rig = new Rig({ options: { maxDepth: 2 }, worktrees: async () => places as never as Place })
    rig.onPrompt("FIND", { hang: true })
    const { id, sessionID } = await rig.launch(IN_WORKTREE)
    await rig.clock.advance(100)
    const own = await rig.launch(IN_WORKTREE, sessionID)
    await rig.clock.advance(100)
    const order: string[] = []
    places.archive = async (taskID) => {
      order.push(`begun ${taskID}`)
      if (taskID === own.id) await new Promise<void>((resolve) => rig.clock.after(1000, resolve))
      order.push(`done ${taskID}`)
      return CHANGED
    }
    const cancelled = rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.clock.advance(5000)
    await cancelled
    expect(order).toEqual([`begun ${own.id}`, `done ${own.id}`, `begun ${id}`, `done ${id}`])
  })

  test("a worktree task of a dead process is moved back, archived and reported as interrupted", async () => {
    rig.onPrompt("FIND", { hang: true })
    const { id, sessionID } = await rig.launch(IN_WORKTREE)
    await rig.clock.advance(100)
    rig.restart()
    rig.opencode.folders.set(sessionID, "/place")
    await rig.manager.recover()
    const task = await rig.ended(id)
    expect(task).toMatchObject({
      status: "error",
      outcome: { reason: { code: "interrupted" }, work: { files: ["a"] } },
    })
    expect(rig.opencode.folderOf(sessionID)).toBe("/project")
    expect(rig.notices()).toHaveLength(1)
  })

  test("a worktree task without any events is asked for its open questions", async () => {
    rig.opencode.onEvent = () => "lose"
    rig.opencode.asking.add("bash")
    rig.script(({ toolResults, sessionID }) =>
      sessionID === rig.parent || toolResults.length > 0 ? undefined : { tools: [{ name: "bash", args: {} }] },
    )
    const { id } = await rig.launch(IN_WORKTREE)
    await rig.clock.advance(5000)
    expect(rig.view(id).phase).toBe("waiting for permission")
    await rig.clock.advance(300_000)
    expect((await rig.ended(id)).status).toBe("completed")
  })

  test("a worktree task whose process died right after its end is archived, merged and reported", async () => {
    places.onPutAway = () => new Promise(() => {})
    const { id, sessionID } = await rig.launch({ ...IN_WORKTREE, merge: true })
    await rig.clock.advance(1000)
    expect([rig.task(id).status, rig.notices()]).toEqual(["completed", []])
    rig.restart()
    rig.opencode.folders.set(sessionID, "/place")
    places.onPutAway = async () => CHANGED
    await rig.manager.recover()
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "completed", outcome: { work: { merge: { kind: "merged" } } } })
    expect(rig.opencode.folderOf(sessionID)).toBe("/project")
    expect(rig.notices()).toHaveLength(1)
    expect(rig.notices()[0]?.hidden).toContain("Merged into your files")
  })

  test("a worktree task whose process died right after its end is archived only once, even during a merge", async () => {
    places.onPutAway = () => new Promise(() => {})
    const { id } = await rig.launch(IN_WORKTREE)
    await rig.clock.advance(3)
    void rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.clock.advance(1000)
    expect([rig.task(id).status, rig.notices()]).toEqual(["cancelled", []])
    rig.restart()
    places.calls.length = 0
    let go = () => {}
    places.onPutAway = async () => {
      await new Promise<void>((resolve) => {
        go = resolve
      })
      return CHANGED
    }
    await rig.manager.recover()
    await rig.clock.advance(1000)
    const merging = rig.manager.merge(id, rig.caller)
    await rig.settle()
    go()
    expect((await merging).task.outcome?.work?.merge?.kind).toBe("merged")
    expect(places.calls).toEqual([`archive ${id} /project`, `merge ${id} /project`])
  })

  test("a worktree task that another process still closes is archived and merged only by that process", async () => {
    places.onPutAway = () => new Promise(() => {})
    const { id } = await rig.launch(IN_WORKTREE)
    await rig.clock.advance(3)
    void rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.clock.advance(1000)
    const share = { clock: rig.clock, database: rig.opencode.database }
    const other = new Rig({ worktrees: async () => places as never as Place, share })
    await other.manager.ready(rig.parent)
    expect(other.task(id, rig.parent).status).toBe("cancelled")
    places.calls.length = 0
    await expect(other.manager.merge(id, rig.caller)).rejects.toThrow(/ended in another OpenCode process/)
    expect(places.calls).toEqual([])
  })

  test("a task that had answered when its process died counts as interrupted before its check", async () => {
    rig.onPrompt("FIND", { text: "done" })
    rig.opencode.onEvent = () => "lose"
    const { id } = await rig.launch({ check: "exit 1" })
    await rig.clock.advance(1000)
    rig.restart()
    await rig.manager.recover()
    const { status, outcome } = await rig.ended(id)
    expect(status).toBe("error")
    expect(outcome?.reason).toMatchObject({ code: "interrupted", text: expect.stringContaining("before its check") })
  })
})

describe("tasks of a task in a worktree", () => {
  beforeEach(() => {
    rig = new Rig({
      worktrees: async () => places as never as Place,
      options: { maxDepth: 3, resumable: ["completed", "error"] },
    })
    places.onReady = async ({ taskID }) => ({ ...READY, directory: `/place/${taskID}` })
  })
  const placed = (request: Partial<Parameters<Rig["launch"]>[0]> = {}, parent = rig.parent) =>
    rig.launch({ ...IN_WORKTREE, ...request }, parent)
  const folderOf = ({ sessionID }: { sessionID: string }) => rig.opencode.folderOf(sessionID)

  test("tasks launched by a worktree task start from its worktree, and move back before it is archived", async () => {
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { hang: true }))
    const outer = await placed()
    await rig.clock.advance(100)
    const here = await rig.launch({ prompt: "HERE" }, outer.sessionID)
    const inner = await placed({ prompt: "INNER" }, outer.sessionID)
    const deeper = await rig.launch({ prompt: "DEEPER" }, inner.sessionID)
    await rig.clock.advance(100)
    const [theirs, own] = [`/place/${outer.id}`, `/place/${inner.id}`]
    expect(places.calls).toContain(`capture ${inner.id} ${theirs}`)
    expect([outer, here, inner].map(folderOf)).toEqual([theirs, theirs, own])
    places.calls.length = 0
    await rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.ended(outer.id)
    expect([outer, here, inner, deeper].map(folderOf)).toEqual(Array(4).fill("/project"))
    expect(places.calls).toEqual([`archive ${inner.id} /project`, `archive ${outer.id} /project`])
    expect(rig.errors()).toEqual([])
  })

  test("tasks launched by a worktree task merge into it while it works, but not automatically after its end", async () => {
    rig.script(({ sessionID, prompt }) => {
      if (sessionID === rig.parent) return undefined
      return prompt.includes("INNER") ? { text: "done" } : { hang: true }
    })
    const outer = await placed()
    await rig.clock.advance(100)
    const inner = await placed({ prompt: "INNER", merge: true }, outer.sessionID)
    await rig.ended(inner.id, outer.sessionID)
    expect(places.calls).toContain(`merge ${inner.id} /place/${outer.id}`)
    let go = () => {}
    places.onPutAway = async () => {
      await new Promise<void>((resolve) => {
        go = resolve
      })
      return CHANGED
    }
    const late = await placed({ prompt: "INNER TOO", merge: true }, outer.sessionID)
    await rig.clock.advance(100)
    rig.restart()
    places.onPutAway = async () => CHANGED
    go()
    await rig.manager.recover()
    await rig.ended(outer.id)
    const task = await rig.ended(late.id, outer.sessionID)
    expect(task).toMatchObject({ status: "completed", outcome: { work: { merge: { kind: "refused" } } } })
    expect(places.calls).not.toContain(`merge ${late.id} /project`)
  })

  test("children of a dead process's worktree task move back with it, and resume in its new worktree", async () => {
    rig.script(({ sessionID, prompt }) =>
      sessionID === rig.parent || prompt.includes("AGAIN") ? undefined : { hang: true },
    )
    const outer = await placed()
    await rig.clock.advance(100)
    const here = await rig.launch({ prompt: "HERE" }, outer.sessionID)
    const inner = await placed({ prompt: "INNER" }, outer.sessionID)
    await rig.clock.advance(100)
    const turns = rig.answers(outer.sessionID).length
    rig.restart()
    const before = [outer, here, inner].map(({ sessionID, id }) => {
      rig.opencode.folders.set(sessionID, `/place/${id}`)
      return id
    })
    await rig.manager.recover()
    for (const id of before) await rig.ended(id, id === outer.id ? rig.parent : outer.sessionID)
    expect([outer, here, inner].map(folderOf)).toEqual(Array(3).fill("/project"))
    await rig.clock.advance(60_000)
    const told = rig.notices(outer.sessionID).filter(({ hidden }) => hidden.includes("interrupted"))
    expect(told).toHaveLength(2)
    expect(rig.answers(outer.sessionID), "what they tell sets no agent to work that has ended").toHaveLength(turns)
    expect(places.calls.filter((call) => call.startsWith("archive"))).toHaveLength(2)
    expect(places.calls.join()).not.toContain(`archive ${inner.id} /place`)
    await rig.manager.resume(outer.id, { prompt: "and on" }, rig.caller)
    await rig.manager.resume(here.id, { prompt: "and on" }, rig.callerIn(outer.sessionID))
    await rig.clock.advance(100)
    expect([outer, here].map(folderOf)).toEqual(Array(2).fill(`/place/${outer.id}`))
  })
})

describe("merges", () => {
  test("a pending notification includes a merge and other ends that happen before it is written", async () => {
    rig = new Rig({ options: { wake: "never" }, worktrees: async () => places as never as Place })
    rig.onPrompt("BUSY", { text: "done", delay: 20_000 })
    rig.onPrompt("LATER", { text: "done", delay: 10_000 })
    rig.opencode.say(rig.parent, "BUSY")
    const { id } = await rig.launch(IN_WORKTREE)
    const later = await rig.launch({ prompt: "LATER" })
    await rig.clock.advance(5000)
    expect(rig.notices()).toEqual([])
    await rig.manager.merge(id, rig.caller)
    await rig.ended(later.id)
    const [first] = rig.notices()
    expect(first?.hidden).toContain("Merged into your files, uncommitted.")
    expect(first?.hidden).toContain(`Also ended, messages follow: ${later.id}`)
    expect(first?.hidden).not.toMatch(/Not merged yet|Still running/)
  })

  test("an automatic merge is done before a task that depends on it begins", async () => {
    let merged = () => {}
    places.onMerge = async () => {
      await new Promise<void>((resolve) => {
        merged = resolve
      })
      return { kind: "merged", files: ["a"], submodules: [] }
    }
    const first = await rig.launch({ ...IN_WORKTREE, merge: true })
    const second = await rig.launch({ ...IN_WORKTREE, after: [first.id] })
    const here = await rig.launch({ prompt: "HERE", after: [first.id] })
    await rig.clock.advance(5000)
    expect(places.calls.at(-1)).toBe(`merge ${first.id} /project`)
    expect(rig.opencode.stored(here.sessionID).messages).toEqual([])
    merged()
    expect((await rig.ended(second.id)).status).toBe("completed")
    expect((await rig.ended(here.id)).status).toBe("completed")
  })

  test.each(["lives", "dies"])(
    "an automatic merge is done before a dependent task of another process begins, whether the first process %s",
    async (fate) => {
      let merged = () => {}
      places.onMerge = async () => {
        await new Promise<void>((resolve) => {
          merged = resolve
        })
        return { kind: "merged", files: ["a"], submodules: [] }
      }
      // Ids are told apart by their number in a rig.
      const aside = rig.openParent()
      await rig.ended((await rig.launch({}, aside)).id, aside)
      const first = await rig.launch({ ...IN_WORKTREE, merge: true })
      await rig.clock.advance(5000)
      const share = { clock: rig.clock, database: rig.opencode.database }
      const other = new Rig({ worktrees: async () => places as never as Place, share })
      await other.manager.ready(rig.parent)
      expect(other.task(first.id, rig.parent)).toMatchObject({ status: "completed", delivery: { state: "pending" } })
      const second = await other.launch({ prompt: "HERE", after: [first.id] }, rig.parent)
      if (fate === "dies") rig.crash()
      await rig.clock.advance(30_000)
      expect(other.opencode.stored(second.sessionID).messages).toEqual([])
      merged()
      expect((await other.ended(second.id, rig.parent)).status).toBe("completed")
    },
  )

  test("a failed automatic merge is reported with the reason and what to do", async () => {
    places.onMerge = () => Promise.reject(new CallError("in the middle of a rebase"))
    await rig.ended((await rig.launch({ ...IN_WORKTREE, merge: true })).id)
    expect(rig.notices()[0]?.hidden).toMatch(/Not merged yet: .*It was not merged by itself: in the middle of a rebase/)
    places.onMerge = async () => ({ kind: "conflict", files: ["a"] })
    const { id } = await rig.ended((await rig.launch({ ...IN_WORKTREE, merge: true })).id)
    expect(rig.notices()[1]?.hidden).toContain(`conflict in a. Resume it with superagents_task(resume="${id}", prompt)`)
  })

  test("a merge on demand needs the caller's edit permission, and is still known after a restart", async () => {
    const { id } = await rig.ended((await rig.launch(IN_WORKTREE)).id)
    const asked: unknown[] = []
    const refused = { ...rig.caller, permit: () => Promise.reject(new Error("the user said no")) }
    await expect(rig.manager.merge(id, refused)).rejects.toThrow(/Merging task .* not allowed: the user said no/)
    expect(places.calls.join()).not.toContain("merge")
    const permit = async (what: unknown) => void asked.push(what)
    const view = await rig.manager.merge(id, { ...rig.caller, permit })
    expect(asked).toEqual([{ kind: "edit", files: ["a"] }])
    expect(view.task.outcome?.work?.merge).toEqual({ kind: "merged", files: ["a"] })
    rig.restart()
    await rig.manager.ready(rig.parent)
    expect(rig.task(id).outcome?.work?.merge?.kind).toBe("merged")
  })

  test("a merge asks for permission to edit every changed file, however many there are", async () => {
    const files = Array.from({ length: 150 }, (_, at) => `file ${at}`)
    places.onPutAway = async () => ({ ...CHANGED, files })
    const { id } = await rig.ended((await rig.launch(IN_WORKTREE)).id)
    const asked: unknown[] = []
    await rig.manager.merge(id, { ...rig.caller, permit: async (what) => void asked.push(what) })
    expect(asked).toEqual([{ kind: "edit", files }])
  })

  test("a merge is an error for a running task, a task without worktree, and a git problem", async () => {
    rig.onPrompt("FIND", { hang: true })
    const running = await rig.launch(IN_WORKTREE)
    await rig.clock.advance(100)
    await expect(rig.manager.merge(running.id, rig.caller)).rejects.toThrow(/still running/)
    rig.onPrompt("HERE", { text: "done" })
    const here = await rig.ended((await rig.launch({ prompt: "HERE" })).id)
    await expect(rig.manager.merge(here.id, rig.caller)).rejects.toThrow(/works in your own folder/)
    const done = await rig.ended((await rig.launch({ ...IN_WORKTREE, prompt: "HERE" })).id)
    places.onMerge = () => Promise.reject(new CallError("in the middle of a merge"))
    await expect(rig.manager.merge(done.id, rig.caller)).rejects.toThrow(/was not merged: in the middle of a merge/)
  })
})

describe("archived work", () => {
  test("clearing a session's tasks names those with archived work that is not merged", async () => {
    const { id } = await rig.ended((await rig.launch(IN_WORKTREE)).id)
    places.kept = [id]
    expect(await rig.manager.clear(rig.parent)).toEqual({ cleared: 1, stopped: 0, unmerged: [id] })
  })

  test("a task is not resumed while git changes the files that it needs, and keeps its end", async () => {
    const { id } = await rig.ended((await rig.launch(IN_WORKTREE)).id)
    places.mayEnterAgain = () => Promise.reject(new CallError("in the middle of a rebase"))
    await expect(rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)).rejects.toThrow("in the middle of a rebase")
    expect(rig.task(id)).toMatchObject({ status: "completed", run: { generation: 0 } })
    places.mayEnterAgain = async () => {}
    await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    expect(rig.task(id).run.generation).toBe(1)
  })

  test("a task is not resumed while a clear removes its archived work", async () => {
    const { id } = await rig.ended((await rig.launch(IN_WORKTREE)).id)
    places.clear = () => new Promise((resolve) => void rig.clock.after(2000, () => resolve([])))
    const clearing = rig.manager.clear(rig.parent)
    await rig.clock.advance(100)
    await expect(rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)).rejects.toThrow(
      `Task ${id} was cleared meanwhile. Start a new superagents_task instead.`,
    )
    await rig.clock.advance(2000)
    expect(await clearing).toMatchObject({ cleared: 1 })
  })

  test("a task that waits for another says so until the other's work is put away", async () => {
    const { promise, resolve } = held()
    places.onPutAway = async () => {
      await promise
      return CHANGED
    }
    const { id } = await rig.launch(IN_WORKTREE)
    const next = await rig.launch({ prompt: "NEXT", after: [id] })
    await rig.clock.until(() => rig.task(id).status === "completed")
    await rig.clock.advance(1000)
    expect(rig.view(next.id).phase).toBe(`waiting for ${id}`)
    resolve()
    await rig.ended(next.id)
  })

  test("archived work is looked after at the start, and failures of that are logged", async () => {
    await rig.manager.parts.archive.sweep("/project")
    expect(places.calls).toEqual(["sweep", "expire"])
    places.sweep = () => Promise.reject(new Error("broken"))
    await rig.manager.parts.archive.sweep("/project")
    expect(rig.opencode.logs.some(({ message }) => message.includes("could not be looked after"))).toBe(true)
  })

  test("work that could not be archived at its end is archived and recorded at the next start", async () => {
    let moves = 0
    rig.opencode.onCall = (method) =>
      method === "move" && ++moves === 2 ? { fail: new OpencodeError("the disk is full") } : undefined
    const { id } = await rig.launch(IN_WORKTREE)
    await rig.ended(id)
    expect(rig.task(id).outcome?.note).toMatch(/^What it changed was not kept at its end.*the disk is full$/)
    await rig.clock.advance(60_000)
    rig.restart()
    await rig.manager.recover()
    await rig.manager.parts.archive.sweep("/project")
    await rig.settle()
    const { note, work } = rig.task(id).outcome ?? {}
    expect({ note, files: work?.files }).toEqual({ note: undefined, files: ["a"] })
    // The new process does not know where the session is.
    expect(rig.opencode.calls).toContain("move")
  })

  describe("an interrupted merge", () => {
    const sweepOf = async (merge: MergeResult, besides?: () => Promise<unknown>, before = () => {}) => {
      const { id } = await rig.ended((await rig.launch(IN_WORKTREE)).id)
      places.swept = [{ taskID: id, what: "its merge was cut off", merge }]
      await rig.clock.advance(1000)
      const toasts = rig.opencode.toasts.length
      before()
      await rig.manager.parts.archive.sweep("/project")
      await besides?.()
      await rig.clock.advance(1000)
      const said = rig.opencode
        .stored(rig.parent)
        .messages.flatMap(({ parts }) => parts)
        .map((part) => JSON.stringify(part))
      return {
        merge: rig.task(id).outcome?.work?.merge,
        toasts: rig.opencode.toasts.slice(toasts),
        told: said.filter((text) => text.includes("OpenCode was stopped while the work of")),
      }
    }

    test("an interrupted merge that now conflicts is reported to its parent and in a toast", async () => {
      const { merge, toasts, told } = await sweepOf({ kind: "conflict", files: ["b", "c <x>"], advice: "move it" })
      expect(told[0]).toContain("nothing more was touched. move it Tell the user")
      expect(merge).toEqual({ kind: "conflict", files: ["b", "c <x>"], text: "move it" })
      expect(toasts).toMatchObject([{ title: "A merge was cut off, and no longer fits", message: "find it: b, c ‹x>" }])
      expect(told).toHaveLength(1)
      expect(told[0]).toContain("(find it) was merged into your files, and the rest of it no longer fits")
      expect(told[0]).toContain("b, c ‹x>")
    })

    const isTold = () => JSON.stringify(rig.opencode.stored(rig.parent)).includes("OpenCode was stopped while")

    test("an interrupted merge is reported as soon as the parent is idle, and once", async () => {
      rig.onPrompt("BUSY", { text: "busy", delay: 20_000 })
      rig.opencode.say(rig.parent, "BUSY")
      await rig.clock.advance(100)
      const { told } = await sweepOf({ kind: "conflict", files: ["b"] }, async () => {
        await rig.clock.advance(15_000)
        expect(isTold()).toBe(false)
        await rig.clock.until(isTold)
      })
      expect(told).toHaveLength(1)
    })

    test("an interrupted merge is reported, once, after a further crash before the parent was idle", async () => {
      rig.onPrompt("BUSY", { text: "busy", delay: 20_000 })
      rig.opencode.say(rig.parent, "BUSY")
      await rig.clock.advance(100)
      const crash = async () => {
        rig.restart()
        places.swept = []
        await rig.manager.recover()
        await rig.manager.parts.archive.sweep("/project")
      }
      const { merge, told } = await sweepOf({ kind: "conflict", files: ["b"] }, async () => {
        await rig.clock.advance(1000)
        await crash()
        await rig.clock.until(isTold)
        await rig.clock.advance(5000)
        await crash()
        expect(rig.opencode.calls.filter((call) => call === "prompt")).toEqual([])
      })
      expect(merge).toEqual({ kind: "conflict", files: ["b"] })
      expect(told).toHaveLength(1)
    })

    test("an interrupted merge is not reported while the parent's user has undone messages", async () => {
      const undone = rig.opencode.say(rig.parent, "ASKED")
      await rig.clock.advance(10_000)
      const besides = async () => {
        await rig.clock.advance(200_000)
        expect(isTold()).toBe(false)
        rig.opencode.redo(rig.parent)
        await rig.clock.until(isTold)
      }
      const undo = () => rig.opencode.undo(rig.parent, undone)
      const { told } = await sweepOf({ kind: "conflict", files: ["b"] }, besides, undo)
      expect(told).toHaveLength(1)
    })

    test("an interrupted merge that could be finished is only recorded, without any message", async () => {
      const { merge, toasts, told } = await sweepOf({ kind: "merged", files: ["b"], submodules: [] })
      expect([merge, toasts, told]).toEqual([{ kind: "merged", files: ["b"] }, [], []])
    })

    test("an interrupted merge that another merge finds is recorded and reported at once", async () => {
      const conflict = { kind: "conflict", files: ["b"], cutOff: true } as const
      const { id } = await rig.ended((await rig.launch(IN_WORKTREE)).id)
      await rig.manager.parts.archive.finished([{ taskID: id, what: "its merge was cut off", merge: conflict }])
      expect(rig.task(id).outcome?.work?.merge).toEqual({ ...conflict, unreported: true })
      await rig.clock.until(isTold)
      await rig.clock.advance(1000)
      expect(rig.task(id).outcome?.work?.merge).toEqual(conflict)
    })

    test("an interrupted merge of a task that is not closed yet is left to that task's end", async () => {
      places.onPutAway = () => new Promise(() => {})
      const { id } = await rig.launch(IN_WORKTREE)
      await rig.clock.advance(10_000)
      places.swept = [{ taskID: id, what: "cut off", merge: { kind: "conflict", files: ["b"] } }]
      await rig.manager.parts.archive.sweep("/project")
      expect(rig.opencode.toasts.some(({ title }) => title.includes("cut off"))).toBe(false)
    })
  })

  test("a task without a worktree never calls the worktree code", async () => {
    const { id } = await rig.ended((await rig.launch()).id)
    await rig.output(id)
    await rig.manager.clear(rig.parent)
    expect(places.calls).toEqual([])
    expect(rig.opencode.calls).not.toContain("move")
  })

  test("fifty tasks with the place here make exactly the same calls as fifty without a place", async () => {
    const callsOf = async (place?: "here") => {
      const options = { maxConcurrentTasks: 0, maxLaunchesPerMinute: 0 }
      const rig = new Rig({ options, worktrees: () => Promise.reject(new Error("not asked for")) })
      const prompts = Array.from({ length: 50 }, (_, nth) => `FIND ${nth}`)
      const tasks = await Promise.all(prompts.map((prompt) => rig.launch({ prompt, place })))
      for (const { id } of tasks) expect((await rig.ended(id)).status).toBe("completed")
      expect([rig.notices().length, rig.errors()]).toEqual([50, []])
      return rig.opencode.calls
    }
    const calls = await callsOf()
    expect(calls.length).toBeGreaterThanOrEqual(4 * 50)
    expect(await callsOf("here")).toEqual(calls)
  })
})

test("a launch or resume with a check or a merge asks for permission first, and fails without it", async () => {
  const permit = () => Promise.reject(new Error("no"))
  const request = { description: "d", prompt: "p", agent: "general", fork: false, check: "npm test" }
  await expect(rig.manager.launch(request, { ...rig.caller, permit })).rejects.toThrow(
    /check `npm test` was not allowed/,
  )
  const merging = { ...request, check: undefined, place: "worktree", merge: true } as const
  await expect(rig.manager.launch(merging, { ...rig.caller, permit })).rejects.toThrow(
    /Merging what it changes was not/,
  )
  const { id } = await rig.ended((await rig.launch()).id)
  const resume = rig.manager.resume(id, { prompt: "p", check: "npm test" }, { ...rig.caller, permit })
  await expect(resume).rejects.toThrow(/was not allowed/)
})

test("a run whose place is not ready at its time limit is stopped without a last word", async () => {
  rig = new Rig({ worktrees: async () => places as never as Place, options: { taskTimeout: 9000 } })
  let made = () => {}
  places.onReady = () =>
    new Promise((resolve) => {
      made = () => resolve(READY)
    })
  const { id, sessionID } = await rig.launch(IN_WORKTREE)
  await rig.clock.advance(8000)
  expect(rig.task(id).run.lastWordAt).toBeUndefined()
  await rig.clock.advance(1100)
  made()
  const task = await rig.ended(id)
  await rig.clock.advance(70_000)
  expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
  expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBe(9000)
  expect(rig.opencode.stored(sessionID).messages).toEqual([])
})

test("the prompt in a worktree describes the place, and names the folder not to write to", () => {
  const request = { taskID: "bg_aaaaaaaa", folder: "/project", timeLimit: 0 }
  const told = prefaceOf(request, { ...READY, directory: "/trees/a" })
  expect(told).toMatch(/^# Where you work\n\nYou work in a git worktree of your own, \/trees\/a\. /)
  expect(told).toContain("Work in it alone: the agent that asks you works in /project; do not write there.")
  const unreadable = Array.from({ length: 5000 }, (_, nth) => `huge${nth}.bin`)
  expect(prefaceOf(request, { ...READY, unreadable })).toMatch(
    /too large: huge0\.bin, .*, huge49\.bin and 4,950 more\. /,
  )
  const read = (there: readonly string[], absent: readonly string[]) =>
    prefaceOf(request, { ...READY, directory: "/trees/a", ignored: { present: there, absent } })
  expect(read(["node_modules"], [".env"])).toContain(" Of what git ignores it has node_modules, and lacks .env. ")
  expect(read(["node_modules"], [])).toContain(" Of what git ignores it has node_modules. ")
  expect(read([], [".env", "dist"])).toContain(" It lacks what git ignores: .env, dist. ")
  expect(read([], [])).not.toContain("ignores")
})

test("what a place finished of an interrupted merge reaches the tasks' archive", async () => {
  let ports: PlacePorts | undefined
  const logged: unknown[] = []
  const connection = {
    opencode: { log: (...line: unknown[]) => logged.push(line) },
    directory: "/project",
    worktree: "/project",
    // Its tasks are looked for by another instance.
    hasOtherOwner: () => true,
  } as unknown as Connection
  const place = (_options: unknown, given: PlacePorts) => {
    ports = given
    return hereKind
  }
  const app = await openApp(connection, DEFAULTS, [...FEATURES, { name: "spy", place }])
  ports?.finished?.([
    { taskID: "bg_a", what: "its merge was finished", merge: { kind: "merged", files: [], submodules: [] } },
  ])
  expect(logged).toEqual([["warn", "after a restart: its merge was finished", { task: "bg_a" }]])
  await app.stop()
})
