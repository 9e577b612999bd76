import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { dollars } from "../../src/lib/format.ts"
import { Rig } from "../support/rig.ts"

/** Runs that near a limit, from outside: what their models are told, and how they end. */

const ASKED = "Answer at once: what is done"
type Reply = Parameters<Rig["onPrompt"]>[1]

const WORKS: Reply = { tools: [{ name: "read", args: { ms: 300 } }] }
const HANGS_IN_TOOL: Reply = { tools: [{ name: "build", args: { ms: 3_600_000 } }] }

/** The agent works as `work` says until it is asked for its last word; `words` counts how often its model was. */
const rigged = (options: object, work: Reply, word: Reply) => {
  const rig = new Rig({ options })
  const words: string[] = []
  rig.script(({ lastUser, prompt, sessionID }) => {
    if (sessionID === rig.parent || !(prompt.includes("FIND") || lastUser.includes(ASKED))) return undefined
    if (!lastUser.includes(ASKED)) return work
    words.push(lastUser)
    return word
  })
  return { rig, words }
}
const ended = async (options: object, work: Reply, word: Reply, launch: Parameters<Rig["launch"]>[0] = {}) => {
  const { rig, words } = rigged(options, work, word)
  const { id } = await rig.launch(launch)
  const task = await rig.ended(id)
  await rig.clock.advance(5000)
  expect((await rig.opencode.activity()).has(task.sessionID)).toBe(false)
  expect(rig.notices()).toHaveLength(1)
  const { answer } = await rig.output(id)
  return { rig, task, words, answer, lasted: (task.run.endedAt ?? 0) - (task.run.startedAt ?? 0) }
}

const SAID = { text: "half is done" }

describe("the last word near a limit", () => {
  test.each([
    ["time", { taskTimeout: 9000, lastWord: 2000 }, {}, "timeout"],
    ["tokens", { maxTokensPerTask: 1000 }, {}, "tokens"],
    ["tokens of the session", { maxTokensPerSession: 1000 }, {}, "budget"],
    ["the task's cost", { maxCostPerTask: 0.01 }, {}, "budget"],
    ["the session's cost", { maxCostPerSession: 0.01 }, {}, "budget"],
    ["the day's cost", { maxCostPerDay: 0.01 }, {}, "budget"],
    ["what the call allowed", {}, { maxCost: 0.01 }, "budget"],
  ])("a run near a limit ends with its last word: %s", async (_what, options, launch, code) => {
    const { task, words, answer } = await ended(options, WORKS, SAID, launch)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code }, saidLastWord: true } })
    expect(answer).toBe("half is done")
    expect(words).toHaveLength(1)
    if (code !== "budget" || "maxTokensPerSession" in options) return
    expect(task.outcome?.usage.cost).toBeLessThanOrEqual(0.0111)
    // Not the figure of the moment in which it was asked alone.
    const figure = `and ${dollars(task.outcome?.usage.cost ?? 0)} by its end.`
    expect(task.outcome?.reason?.text).toContain(figure)
  })
})

describe("a run near its time limit", () => {
  const limits = { taskTimeout: 9000, lastWord: 2000, permissionTimeout: 0 }

  test("a run that ignores the request for its last word is refused its tools and finally stopped", async () => {
    const { rig, task, lasted, words } = await ended(limits, WORKS, WORKS)
    expect(lasted).toBe(9000)
    expect(task.outcome?.saidLastWord).toBeUndefined()
    expect(words.length).toBeGreaterThan(1)
    const calls = rig.opencode
      .stored(task.sessionID)
      .messages.flatMap(({ parts }) => parts.filter(({ type }) => type === "tool"))
    expect(calls.some((part) => part.type === "tool" && part.state === "error")).toBe(true)
  })

  test("a run that hangs in a tool is interrupted at its time limit before its last word", async () => {
    const { lasted, words, answer } = await ended(limits, HANGS_IN_TOOL, { ...SAID, delay: 1500 })
    expect(lasted).toBeGreaterThan(10_000)
    expect(lasted).toBeLessThan(11_000)
    expect(words).toHaveLength(1)
    expect(answer).toBe("half is done")
  })

  test("a run keeps its tools at the first request for a last word, but not at the second", async () => {
    const offered = async (work: Reply) => {
      const { rig } = rigged(limits, work, WORKS)
      const told: boolean[] = []
      const { inRequest } = rig.opencode.hooks
      rig.opencode.hooks.inRequest = (sessionID) => {
        const word = inRequest(sessionID)
        if (word) told.push(!word.withoutTools)
        return word
      }
      const { id } = await rig.launch()
      await rig.ended(id)
      return told
    }
    expect(new Set(await offered(WORKS))).toEqual(new Set([true]))
    const [first, ...later] = await offered(HANGS_IN_TOOL)
    expect(first).toBe(true)
    expect(later.length).toBeGreaterThan(0)
    expect(new Set(later)).toEqual(new Set([false]))
  })

  test("a run that also hangs in its last word is stopped when the time for it is over", async () => {
    const { lasted, task, answer } = await ended(limits, HANGS_IN_TOOL, { hang: true, text: "almost" })
    expect(lasted).toBe(11_000)
    expect(task.outcome?.reason?.text).toBe("Stopped at its time limit of 9s (the option taskTimeout).")
    expect(answer).toBe("almost")
  })

  test("a run whose model hangs is stopped at the time limit without a last word", async () => {
    const { lasted, words } = await ended(limits, { hang: true, text: "so far" }, SAID)
    expect(lasted).toBe(9000)
    expect(words).toEqual([])
  })

  test.each(["bash", "question"])(
    "a question of %s that a run waits for is refused near the time limit",
    async (tool) => {
      const { rig, words } = rigged(limits, { tools: [{ name: tool, args: {} }] }, SAID)
      rig.opencode.asking.add("bash")
      const task = await rig.ended((await rig.launch()).id)
      expect(task.outcome?.saidLastWord).toBe(true)
      expect(await rig.opencode.openAsks()).toEqual([])
      expect(words).toHaveLength(1)
    },
  )

  test("a run that waits for its own tasks near its limit gets a prompt, and they are cancelled", async () => {
    const { rig, words } = rigged({ ...limits, maxDepth: 2, taskTimeout: 20_000 }, { text: "waiting" }, SAID)
    rig.onPrompt("BELOW", { hang: true })
    const { id, sessionID } = await rig.launch({ timeout: 9000 })
    const below = await rig.launch({ prompt: "BELOW" }, sessionID)
    const task = await rig.ended(id)
    expect(task.outcome?.saidLastWord).toBe(true)
    expect(words).toHaveLength(1)
    expect(rig.task(below.id, sessionID).status).toBe("cancelled")
  })

  test("a run whose turn ends near its limit while its tasks run is asked for a last word", async () => {
    const { rig, words } = rigged(
      { ...limits, maxDepth: 2, taskTimeout: 20_000 },
      { text: "waiting", delay: 8000 },
      SAID,
    )
    rig.onPrompt("BELOW", { hang: true })
    const { id, sessionID } = await rig.launch({ timeout: 9000 })
    await rig.launch({ prompt: "BELOW" }, sessionID)
    expect((await rig.ended(id)).outcome?.saidLastWord).toBe(true)
    expect(words).toHaveLength(1)
  })

  test("a run that ends by itself near its limit counts as completed", async () => {
    const { task, words } = await ended(limits, { text: "all is done", delay: 8000 }, SAID)
    expect(task.status).toBe("completed")
    expect(words).toEqual([])
  })

  test("a run that answers the request for a last word with no text ends at its limit", async () => {
    const { task } = await ended(limits, WORKS, { text: "" })
    expect(task.outcome?.saidLastWord).toBeUndefined()
    expect(task.outcome?.reason?.code).toBe("timeout")
  })

  test("a run that cannot be asked again since OpenCode fails ends at its limit", async () => {
    const { rig } = rigged(limits, HANGS_IN_TOOL, SAID)
    const { id } = await rig.launch()
    await rig.clock.advance(1000)
    rig.opencode.onCall = (method, session) =>
      method === "prompt" && session !== rig.parent ? { fail: new OpencodeError("no") } : undefined
    expect((await rig.ended(id)).outcome?.reason?.code).toBe("timeout")
  })

  test("a run that is cancelled or silent is not asked for a last word", async () => {
    const { rig, words } = rigged({ ...limits, stallTimeout: 3000 }, { hang: true }, SAID)
    const silent = await rig.launch()
    expect((await rig.ended(silent.id)).outcome?.reason?.code).toBe("silence")
    const cancelled = await rig.launch()
    await rig.clock.advance(100)
    await rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.ended(cancelled.id)
    expect(words).toEqual([])
  })
})

test("a run resumed after its last word has all its tools and no trace of the request", async () => {
  const { rig, words } = rigged({ taskTimeout: 9000, lastWord: 2000, resumable: ["error"] }, WORKS, SAID)
  const { id, sessionID } = await rig.launch()
  await rig.ended(id)
  rig.onPrompt("AGAIN", { text: "went on" })
  await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
  expect(rig.manager.refusesTools(sessionID, "read")).toBeUndefined()
  const task = await rig.ended(id)
  expect(task.status).toBe("completed")
  expect(task.run.lastWordAt).toBeUndefined()
  expect(words).toHaveLength(1)
})

test("a run that is saying its last word shows that in the list and in its record", async () => {
  const { rig } = rigged({ taskTimeout: 9000, lastWord: 2000 }, WORKS, { ...SAID, delay: 1000 })
  const { id } = await rig.launch()
  await rig.clock.advance(7600)
  expect(rig.view(id).phase).toBe("saying its last word")
  expect(rig.task(id).run.lastWordAt).toBeDefined()
})

describe("a crash during a last word", () => {
  const limits = { taskTimeout: 9000, lastWord: 2000, permissionTimeout: 0, maxCostPerDay: 5 }
  const priced = (reply: Reply): Reply => ({ ...reply, usage: { input: 10_000 } }) as Reply
  /** What became of the run after a crash at `at`. */
  const recovered = async (work: Reply, word: Reply, at: number) => {
    const { rig, words } = rigged(limits, priced(work), priced(word))
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(at)
    const asked = rig.task(id).run.lastWordAt
    rig.restart()
    await rig.manager.recover()
    const task = await rig.ended(id)
    const before = words.length
    await rig.clock.advance(120_000)
    expect(asked, "it was asked before the crash").toBeDefined()
    expect(words).toHaveLength(before)
    expect(rig.notices()).toHaveLength(1)
    expect((await rig.opencode.activity()).has(sessionID)).toBe(false)
    const stored = rig.opencode.stored(sessionID).messages
    return { rig, task, words, notice: rig.notices()[0], said: stored.filter(({ id }) => id.includes("L0000")) }
  }

  test("a run whose process died before the last word was complete is interrupted and not asked again", async () => {
    const { task, words, rig } = await recovered(WORKS, { ...SAID, delay: 5000 } as Reply, 7800)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "interrupted" } } })
    expect(task.outcome?.saidLastWord).toBeUndefined()
    expect(words).toHaveLength(1)
    expect(task.outcome?.usage.cost).toBeGreaterThan(0.1)
    expect(rig.manager.spentBy(rig.parent).day.cost).toBe(task.outcome?.usage.cost)
  })

  test("a run whose process died around the interruption of a tool is interrupted and not asked again", async () => {
    for (const at of [8500, 9001]) {
      const { task, words, said, rig } = await recovered(HANGS_IN_TOOL, { ...SAID, delay: 5000 } as Reply, at)
      expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "interrupted" } } })
      expect(words.length).toBeLessThanOrEqual(1)
      expect(said.length).toBeLessThanOrEqual(1)
      // What the step that was stopped cost, OpenCode does not know.
      expect(rig.manager.spentBy(rig.parent).day).toMatchObject({ atLeast: true })
    }
  })

  test("a last word that was complete before its process died is found and reported after the restart", async () => {
    const { rig } = rigged(limits, WORKS, SAID)
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(6900)
    rig.opencode.onEvent = () => "lose"
    await rig.clock.until(() => rig.task(id).run.lastWordAt !== undefined)
    const messages = rig.opencode.stored(sessionID).messages
    await rig.clock.until(() => messages.at(-1)?.finish === "stop")
    expect(rig.task(id).status).toBe("running")
    rig.restart()
    await rig.manager.recover()
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" }, saidLastWord: true } })
    expect(task.outcome?.reason?.text).toMatch(/^Stopped at its time limit of 9s \([^)]*\)\.$/)
    expect(rig.notices()).toHaveLength(1)
    expect(rig.notices()[0]?.hidden).toMatch(/partial[\s\S]*half is done/)
  })

  test("a run that ended by itself before its process died counts as completed after the restart", async () => {
    const { rig } = rigged(limits, { text: "all is done", delay: 7600 }, SAID)
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(7100)
    rig.opencode.onEvent = () => "lose"
    const messages = rig.opencode.stored(sessionID).messages
    await rig.clock.until(() => messages.at(-1)?.finish === "stop")
    expect(rig.task(id)).toMatchObject({ status: "running", run: { lastWordAt: expect.any(Number) } })
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).status).toBe("completed")
  })
})
