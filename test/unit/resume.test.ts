import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import type { Status } from "../../src/core/task.ts"
import { Rig } from "../support/rig.ts"

const completed = async (options: object = {}) => {
  const rig = new Rig({ options })
  rig.onPrompt("FIND", { text: "first answer" })
  rig.onPrompt("AGAIN", { text: "second answer", delay: 1000 })
  const task = await rig.ended((await rig.launch()).id)
  await rig.clock.advance(1000)
  const resume = (prompt = "AGAIN", timeout?: number) => rig.manager.resume(task.id, { prompt, timeout }, rig.caller)
  return { rig, task, resume }
}

describe("a resume", () => {
  test("a resume asks the same session again, and times and reports only the new run", async () => {
    const { rig, task, resume } = await completed()
    await rig.output(task.id)
    const view = await resume()
    expect(view).toMatchObject({ phase: "working", elapsed: 0, task: { status: "resumed", run: { generation: 1 } } })
    expect(view.task).not.toHaveProperty("retrievedAt")
    const ended = await rig.ended(task.id)
    expect(ended).toMatchObject({
      status: "completed",
      earlier: { toolCalls: 0, usage: { input: 100, output: 20 } },
      outcome: { usage: { input: 100, output: 20 } },
    })
    expect((await rig.output(task.id)).answer).toBe("second answer")
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(2)
    expect(rig.notices()[1]?.visible).toBe("✓ **Resume #1 completed in 1s.**\nTask Progress: 1/1")
    expect(rig.opencode.toasts.map(({ title }) => title)).toContain("Resume #1 started")
    expect(rig.timers.pending).toBe(0)
  })

  test("a resume during a clear of the session's tasks is refused", async () => {
    const { rig, task, resume } = await completed({ maxCostPerSession: 0 })
    rig.onPrompt("HANGS", { hang: true })
    await rig.launch({ prompt: "HANGS" })
    await rig.clock.advance(100)
    rig.opencode.onCall = (method) => (method === "abort" ? { slow: 2000 } : undefined)
    const clearing = rig.manager.clear(rig.parent)
    await rig.clock.advance(100)
    await expect(resume()).rejects.toThrow("was cleared meanwhile")
    await rig.clock.advance(20_000)
    expect(await clearing).toMatchObject({ cleared: 2 })
    expect(rig.manager.list(rig.parent)).toEqual([])
    expect(rig.opencode.stored(task.sessionID).metadata).toEqual({})
  })

  test("a resume does not begin if the calling turn is stopped meanwhile", async () => {
    const { rig, task } = await completed()
    const turn = new AbortController()
    rig.opencode.onCall = (method) => (method === "session" ? { slow: 2000 } : undefined)
    const resuming = rig.manager.resume(task.id, { prompt: "AGAIN" }, { ...rig.caller, abort: turn.signal })
    const refused = expect(resuming).rejects.toThrow("The task is as it was.")
    await rig.clock.advance(100)
    turn.abort()
    await rig.clock.advance(20_000)
    await refused
    expect(rig.task(task.id)).toMatchObject({ status: "completed", run: { generation: 0 } })
    expect(rig.opencode.isWorking(task.sessionID)).toBe(false)
  })

  test("a resume does not begin if the calling agent has ended and is just being stopped", async () => {
    const rig = new Rig({ options: { maxDepth: 2 } })
    rig.onPrompt("PARENT", { hang: true })
    const parent = await rig.launch({ prompt: "PARENT" })
    const caller = { sessionID: parent.sessionID, messageID: "msg_1" }
    const request = { description: "find it", prompt: "FIND", agent: "general", fork: false }
    const { id } = (await rig.manager.launch(request, caller)).view.task
    const child = () => rig.view(id, parent.sessionID).task
    await rig.clock.until(() => child().status === "completed")
    rig.opencode.onCall = (method) => (method === "abort" ? { slow: 2000 } : undefined)
    const cancelling = rig.manager.cancel({ type: "task", reference: parent.id }, rig.caller)
    await rig.clock.advance(100)
    const resuming = rig.manager.resume(id, { prompt: "AGAIN" }, caller)
    const refused = expect(resuming).rejects.toThrow("The task is as it was.")
    await rig.clock.advance(20_000)
    await refused
    await cancelling
    expect(child()).toMatchObject({ status: "completed", run: { generation: 0 } })
  })

  test("each further resume of a task has the next number", async () => {
    const { rig, task, resume } = await completed()
    for (const number of [1, 2, 3]) {
      expect((await resume()).task.run.generation).toBe(number)
      await rig.ended(task.id)
    }
    expect(rig.notices().at(-1)?.visible).toContain("Resume #3 completed")
  })

  test("a failed resume is reported as a failed resume", async () => {
    const { rig, task, resume } = await completed()
    rig.onPrompt("AGAIN", { status: 400, body: { error: { message: "no" } } })
    await resume()
    expect((await rig.ended(task.id)).status).toBe("error")
    expect(rig.notices().at(-1)?.visible).toMatch(/^✗ \*\*Resume #1 failed in \d+ms\.\*\*/)
  })

  test("a resume has its own time limit, and counts its own tokens against the task's limit", async () => {
    const { rig, task, resume } = await completed({ maxTokensPerTask: 150 })
    await resume("AGAIN", 500)
    expect((await rig.ended(task.id)).outcome?.reason?.code).toBe("timeout")
  })

  test("a resume waits in the queue for a free slot", async () => {
    const { rig, task, resume } = await completed({ maxConcurrentTasks: 1 })
    rig.onPrompt("SLOW", { text: "ok", delay: 2000 })
    await rig.launch({ prompt: "SLOW" })
    expect((await resume()).phase).toBe("queued")
    expect((await rig.ended(task.id)).status).toBe("completed")
  })

  test("a resume does not disturb the previous run's notification that is still being sent", async () => {
    const rig = new Rig()
    rig.onPrompt("AGAIN", { text: "second answer", delay: 1000 })
    const { id } = await rig.launch()
    rig.opencode.onCall = (method) => (method === "persona" ? { slow: 300 } : undefined)
    await rig.clock.until(() => rig.task(id).status === "completed")
    await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    await rig.ended(id)
    await rig.clock.advance(60_000)
    expect(rig.notices().map(({ visible }) => visible.split(" in ")[0])).toEqual([
      '✓ **Agent "find it" finished',
      "✓ **Resume #1 completed",
    ])
  })

  test("superagents_output can wait for the end of a resume", async () => {
    const { rig, task, resume } = await completed()
    await resume()
    const waiting = rig.output(task.id, rig.caller, 60_000)
    await rig.ended(task.id)
    expect((await waiting).answer).toBe("second answer")
  })

  test("a resumed task is listed among the running ones", async () => {
    const { rig, task, resume } = await completed()
    await resume()
    const listed = (status: Status) => rig.manager.list(rig.parent, { status }).map((view) => view.task.id)
    expect((["running", "resumed", "completed"] as const).map(listed)).toEqual([[task.id], [task.id], []])
  })

  test("a resume whose prompt OpenCode rejects ends as failed", async () => {
    const { rig, task, resume } = await completed()
    rig.opencode.onCall = (method, sessionID) =>
      method === "prompt" && sessionID === task.sessionID ? { fail: new OpencodeError("no") } : undefined
    await resume()
    expect((await rig.ended(task.id)).outcome?.reason).toEqual({
      code: "host",
      text: "OpenCode did not take the prompt: no",
    })
  })
})

describe("a refused resume", () => {
  test("a resume is refused while the task is still running", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { hang: true })
    const { id } = await rig.launch()
    await expect(rig.manager.resume(id, { prompt: "more" }, rig.caller)).rejects.toThrow(
      `Only completed tasks can be resumed; task ${id} is running. Say it now with superagents_task(tell="${id}", prompt), or wait until it has finished.`,
    )
  })

  test("the refusal to resume a group at work does not advise to tell it anything, which is refused for a group", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { hang: true })
    const { id } = await rig.launch({ prompt: "FIND {{item}}", each: ["a"] })
    await expect(rig.manager.resume(id, { prompt: "more" }, rig.caller)).rejects.toThrow(
      `Only completed tasks can be resumed; task ${id} is running. Wait until it has finished.`,
    )
  })

  test("a resume is refused during another resume, and only one of two at once wins", async () => {
    const { rig, task, resume } = await completed()
    const results = await Promise.allSettled([resume(), resume()])
    expect(results.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"])
    await expect(resume()).rejects.toThrow(
      `Task ${task.id} is currently being resumed. Say it now with superagents_task(tell="${task.id}", prompt), or wait until that has finished, then resume it again.`,
    )
    await rig.ended(task.id)
    expect(rig.notices()).toHaveLength(2)
  })

  test("a resume is always refused if the option resumable is empty", async () => {
    const rig = new Rig({ options: { resumable: [] } })
    const { id } = await rig.launch()
    await expect(rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)).rejects.toThrow(/tell="bg_\w+", prompt\)\.$/)
    await rig.ended(id)
    await expect(rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)).rejects.toThrow(
      `No task can be resumed (option resumable); task ${id} is completed. Start a new superagents_task instead.`,
    )
  })

  test.each(["error", "cancelled"])(
    "a resume of a task with the status %s is refused unless the option resumable allows it",
    async (status) => {
      for (const resumable of [["completed"], ["completed", "error", "cancelled"]] as const) {
        const rig = new Rig({ options: { resumable: [...resumable] } })
        rig.onPrompt("FIND", status === "error" ? { status: 400 } : { hang: true })
        const { id } = await rig.launch()
        await rig.clock.advance(100)
        if (status === "cancelled") await rig.manager.cancel({ type: "all" }, rig.caller)
        await rig.ended(id)
        const resuming = rig.manager.resume(id, { prompt: "more" }, rig.caller)
        if (resumable.length > 1) expect((await resuming).task.status).toBe("resumed")
        else await expect(resuming).rejects.toThrow(`task ${id} is ${status}. Start a new superagents_task instead.`)
      }
    },
  )

  test("a resume is refused with advice if the task's session was deleted", async () => {
    const { rig, task, resume } = await completed()
    rig.opencode.onEvent = () => "lose"
    rig.opencode.deleteByUser(task.sessionID)
    await expect(resume()).rejects.toThrow(
      `The session of task ${task.id} no longer exists, so it cannot be resumed. Start a new superagents_task instead.`,
    )
    expect(rig.task(task.id).status).toBe("completed")
  })

  test("a resume is refused if the task is cleared meanwhile", async () => {
    const { rig, resume } = await completed()
    rig.opencode.onCall = (method) => (method === "session" ? { slow: 100 } : undefined)
    const resuming = expect(resume()).rejects.toThrow("was cleared meanwhile")
    await rig.manager.clear(rig.parent)
    await rig.clock.advance(100)
    await resuming
  })

  test("a resume is refused for a task of another session", async () => {
    const { rig, task } = await completed()
    const caller = rig.callerIn(rig.openParent())
    await expect(rig.manager.resume(task.id, { prompt: "more" }, caller)).rejects.toThrow(
      "this session has no background tasks",
    )
  })
})
