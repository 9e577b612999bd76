import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { renderList } from "../../src/present/list.ts"
import { renderOutput } from "../../src/present/output.ts"
import { Rig } from "../support/rig.ts"

const HANG = { hang: true } as const

describe("the queue", () => {
  test("the queue starts waiting tasks in their order as slots become free", async () => {
    const rig = new Rig({ options: { maxConcurrentTasks: 1 } })
    rig.onPrompt("SLOW", { text: "done", delay: 1000 })
    const first = await rig.launch({ prompt: "SLOW" })
    const second = await rig.launch({ prompt: "SECOND" })
    const third = await rig.launch({ prompt: "THIRD" })
    expect(rig.view(second.id)).toMatchObject({ phase: "queued", place: 1, elapsed: 0 })
    expect(rig.view(third.id)).toMatchObject({ phase: "queued", place: 2 })
    expect(rig.opencode.stored(second.sessionID).messages).toEqual([])
    await rig.clock.until(() => rig.task(first.id).status === "completed")
    expect(rig.view(second.id).waited).toBeGreaterThan(999)
    expect(rig.view(third.id).phase).toBe("queued")
    await rig.ended(third.id)
    expect(rig.task(second.id).run.endedAt).toBeLessThan(rig.task(third.id).run.endedAt ?? 0)
    expect(rig.task(second.id).run).not.toHaveProperty("queuedPrompt")
  })

  test("the queue says, in list and output alike, whose slot a task waits for", async () => {
    const model = "scripted/beta"
    const rig = new Rig({
      options: {
        maxConcurrentTasks: 4,
        maxConcurrentPerModel: { [model]: 1 },
        agents: { plan: { maxConcurrent: 1 } },
      },
    })
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : HANG))
    const launched = [
      {},
      { model },
      { agent: "plan", model: "scripted/alpha" },
      { prompt: "second model", model },
      { prompt: "second plan", agent: "plan", model: "scripted/alpha" },
    ]
    const tasks: string[] = []
    for (const each of launched) {
      tasks.push((await rig.launch(each)).id)
      await rig.clock.advance(1)
    }
    const said = async (id = "") => {
      const { output } = renderOutput(await rig.output(id), 0)
      const status = /^Status: (.*)$/m.exec(output)?.[1] ?? ""
      const row = renderList(rig.manager.list(rig.parent), 0)
        .output.split("\n")
        .find((line) => line.startsWith(id))
      expect(row).toContain(status)
      return status
    }
    expect(await said(tasks[3])).toBe(`running, queued for a free slot of ${model} (place 1)`)
    expect(await said(tasks[4])).toBe("running, queued for a free slot of agent plan (place 2)")
    await rig.launch({ prompt: "fourth" })
    const last = await rig.launch({ prompt: "fifth" })
    expect(await said(last.id)).toBe("running, queued for a free slot (place 3)")
  })

  test("the queue respects the limit while sessions are still being created", async () => {
    const rig = new Rig({ options: { maxConcurrentTasks: 1 } })
    rig.onPrompt("FIND", HANG)
    let first = true
    rig.opencode.onCall = (method) => {
      if (method !== "createSession" || !first) return undefined
      first = false
      return { slow: 1000 }
    }
    const slow = rig.launch({ description: "slow" })
    const quick = await rig.launch({ description: "quick" })
    await rig.clock.advance(2000)
    const running = rig.manager.list(rig.parent).filter(({ phase }) => phase !== "queued")
    expect(running.map(({ task }) => task.id)).toEqual([(await slow).id])
    expect(rig.view(quick.id).phase).toBe("queued")
  })

  test("the queue frees the slot of a failed launch", async () => {
    const rig = new Rig({ options: { maxConcurrentTasks: 1 } })
    rig.opencode.onCall = (method) =>
      method === "createSession" ? { slow: 100, fail: new OpencodeError("no") } : undefined
    const failed = expect(rig.launch()).rejects.toThrow("The task could not be launched: no")
    await rig.settle()
    rig.opencode.onCall = () => undefined
    const waiting = await rig.launch()
    expect(rig.view(waiting.id).phase).toBe("queued")
    await rig.clock.advance(100)
    await failed
    expect(rig.view(waiting.id).phase).toBe("working")
  })

  test("a queued task fails if OpenCode rejects its prompt when its turn comes", async () => {
    const rig = new Rig({ options: { maxConcurrentTasks: 1 } })
    await rig.launch()
    const second = await rig.launch({ prompt: "SECOND" })
    rig.opencode.onCall = (method, sessionID) =>
      method === "prompt" && sessionID === second.sessionID ? { fail: new OpencodeError("no room") } : undefined
    const task = await rig.ended(second.id)
    expect(task).toMatchObject({
      status: "error",
      outcome: { reason: { code: "host", text: "OpenCode did not take the prompt: no room" } },
    })
  })

  test("a parent that waits for its own tasks frees its model's slot for them", async () => {
    const rig = new Rig({ options: { maxDepth: 2, maxConcurrentPerModel: { "scripted/alpha": 1 } } })
    rig.onPrompt("OUTER", { text: "I wait", delay: 200 })
    rig.onPrompt("INNER", HANG)
    const outer = await rig.launch({ prompt: "OUTER" })
    const inner = await rig.launch({ prompt: "INNER", model: "scripted/alpha" }, outer.sessionID)
    const other = await rig.launch({ prompt: "OTHER" })
    expect(rig.view(inner.id, outer.sessionID).phase).toBe("queued for a free slot of scripted/alpha")
    await rig.clock.advance(1000)
    expect(rig.view(outer.id).phase).toBe("waiting for its own tasks")
    expect(rig.view(inner.id, outer.sessionID).phase).toBe("working")
    expect(rig.view(other.id).phase).toBe("queued for a free slot of scripted/alpha")
  })
})
