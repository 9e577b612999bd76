import { describe, expect, test } from "vitest"
import { type ModelFacts, OpencodeError, type Prompt } from "../../../src/core/ports.ts"
import type { TaskDraft } from "../../../src/core/task.ts"
import { type ForkPorts, forkContext } from "../../../src/features/forks/fork.ts"
import type { ForkApi, HistoryMessage, NewFork } from "../../../src/features/forks/ports.ts"
import { messageID } from "../../../src/opencode/messages.ts"
import { agent, call, user } from "../../support/histories.ts"

const DRAFT = {
  id: "bg_abcdefgh",
  parentID: "ses_parent",
  parentMessageID: "msg_call",
  agent: "general",
  model: { provider: "p", id: "m" },
  run: { generation: 0, createdAt: 1_700_000_000_000 },
} as TaskDraft
const LIMITS = { maxTokens: 100_000, maxToolResultChars: 1500 }

type Faults = { fork?: OpencodeError; preamble?: OpencodeError; deletion?: OpencodeError; uncounted?: boolean }

/** An OpenCode that remembers what it was asked for. */
const hostWith = (messages: readonly HistoryMessage[], context?: number, faults: Faults = {}) => {
  const asked = {
    forks: [] as NewFork[],
    preambles: [] as Prompt[],
    deleted: [] as string[],
    histories: [] as string[],
    counted: [] as string[],
  }
  const forks: ForkApi & ModelFacts = {
    async history(sessionID, messageID) {
      asked.histories.push(`${sessionID} ${messageID}`)
      return messages
    },
    contextLimit: async () => context,
    compactionLimit: async () => undefined,
    prices: async () => undefined,
    inputPrice: async () => undefined,
    async countTokens(texts) {
      asked.counted.push(...texts)
      return faults.uncounted ? undefined : texts.map(({ length }) => length / 4)
    },
    async fork(input) {
      if (faults.fork) throw faults.fork
      asked.forks.push(input)
      return "ses_fork"
    },
  }
  const opencode: ForkPorts["opencode"] = {
    messageID,
    async prompt(message) {
      if (faults.preamble) throw faults.preamble
      asked.preambles.push(message)
    },
    async deleteSession(sessionID) {
      asked.deleted.push(sessionID)
      if (faults.deletion) throw faults.deletion
    },
  }
  const run = (limits = LIMITS) =>
    forkContext({ forks, models: forks, opencode }, { draft: DRAFT, title: "t", rules: [], limits })
  return { asked, run }
}

const LONG = [user("u1", "read"), agent("a1", call("c1", "x".repeat(5000)))]

describe("a fork", () => {
  test("a fork gets the parent's history up to the calling message, and its record describes it", async () => {
    const { asked, run } = hostWith(LONG)
    const { sessionID, info } = await run()
    expect(asked.histories).toEqual(["ses_parent msg_call"])
    expect(asked.forks[0]).toMatchObject({
      parentID: "ses_parent",
      title: "t",
      agent: "general",
    })
    expect(asked.forks[0]?.draft).toEqual({ ...DRAFT, fork: info })
    expect(sessionID).toBe("ses_fork")
    expect(info).toMatchObject({ messages: 2, droppedMessages: 0, cutResults: 1 })
    expect(info.tokens).toBeGreaterThan(500)
  })

  test("a fork's record names the newest twenty cut results with their arguments and remaining length", async () => {
    const calls = (count: number) =>
      Array.from({ length: count }, (_, index) => call(`c${index}`, "x".repeat(5000), { path: `/f${index}` }))
    const infoOf = async (count: number) =>
      (await hostWith([user("u1", "read"), agent("a1", ...calls(count))]).run()).info
    const { cuts } = await infoOf(1)
    expect(cuts).toEqual([{ tool: "read", call: '{"path":"/f0"}', kept: expect.any(Number), of: 5000 }])
    expect(cuts?.[0]?.kept).toBeGreaterThan(1400)
    expect(cuts?.[0]?.kept).toBeLessThan(1500)
    const many = await infoOf(25)
    expect([many.cutResults, many.cuts?.length, many.cuts?.at(-1)?.call]).toEqual([25, 20, '{"path":"/f24"}'])
    expect((await hostWith([user("u1", "hi")]).run()).info.cuts).toBeUndefined()
  })

  test("a fork gets its preamble after the history, with its own message id, agent and model", async () => {
    const { asked, run } = hostWith(LONG)
    await run()
    expect(asked.preambles).toHaveLength(1)
    expect(asked.preambles[0]).toMatchObject({ sessionID: "ses_fork", agent: "general", model: DRAFT.model })
    expect(asked.preambles[0]?.messageID).toMatch(/^msg_[0-9a-f]{12}abcdefghF00000$/)
    expect(asked.preambles[0]?.parts[0]?.text).toContain("1 tool result over 1500 characters cut")
  })

  test("a fork with its preamble takes at most six tenths of the model's context", async () => {
    const history = Array.from({ length: 100 }, (_, index) => user(`u${index}`, "word ".repeat(500)))
    const limited = async (context?: number) => (await hostWith(history, context).run()).info
    expect(await limited(20_000)).toMatchObject({ droppedMessages: expect.any(Number) })
    expect((await limited(20_000)).tokens).toBeLessThanOrEqual(12_000)
    expect((await limited(20_000)).tokens).toBeGreaterThan(9000)
    expect((await limited()).droppedMessages).toBe(0)
  })

  test("a fork of 99,000 tokens stays whole, with its preamble counted", async () => {
    const history = Array.from({ length: 99 }, (_, index) => user(`u${index}`, "word ".repeat(795)))
    const { asked, run } = hostWith(history)
    const { info } = await run()
    expect(info).toMatchObject({ messages: 99, droppedMessages: 0 })
    expect(info.tokens).toBeGreaterThan(99_000)
    expect(info.tokens).toBeLessThanOrEqual(100_000)
    expect(info.tokens - (asked.forks[0]?.tokens ?? 0)).toBe(
      Math.ceil((asked.preambles[0]?.parts[0]?.text.length ?? 0) / 4),
    )
  })

  test("a fork is trimmed by the estimate where no token counter answers", async () => {
    const history = Array.from({ length: 99 }, (_, index) => user(`u${index}`, "word ".repeat(1100)))
    const { asked, run } = hostWith(history, undefined, { uncounted: true })
    const { info } = await run()
    expect(asked.counted.length).toBeGreaterThan(0)
    expect(info.tokens).toBeLessThanOrEqual(100_000)
    expect(info.tokens).toBeGreaterThan(90_000)
    expect(info.droppedMessages).toBeGreaterThan(0)
  })

  test("a fork counts a huge text by its first 2,000,000 characters", async () => {
    const { asked, run } = hostWith([user("u1", "go"), agent("a1", "x".repeat(9_000_000)), user("u2", "and?")])
    const { info } = await run()
    expect(info).toMatchObject({ messages: 1, droppedMessages: 2 })
    expect(Math.max(...asked.counted.map(({ length }) => length))).toBe(2_000_000)
  })

  test("a fork that is small by its bytes is not sent to the token counter", async () => {
    const { asked, run } = hostWith(LONG)
    await run()
    expect(asked.counted).toEqual([])
  })

  test("a fork that OpenCode cannot make fails with OpenCode's error", async () => {
    const fault = new OpencodeError("no")
    await expect(hostWith(LONG, undefined, { fork: fault }).run()).rejects.toBe(fault)
  })

  test("a fork whose preamble cannot be written is deleted, and the launch fails with that error", async () => {
    const preamble = new OpencodeError("no")
    const { asked, run } = hostWith(LONG, undefined, { preamble, deletion: new OpencodeError("neither") })
    await expect(run()).rejects.toBe(preamble)
    expect(asked.deleted).toEqual(["ses_fork"])
  })

  test("a fork of a long history lets other work run meanwhile", async () => {
    const text = "some words of a text ".repeat(1000)
    // So long that it takes many slices of time on a fast machine, too.
    const history = Array.from({ length: 6000 }, (_, index) => user(`u${index}`, text))
    let turns = 0
    const timer = setInterval(() => turns++, 1)
    await hostWith(history).run({ ...LIMITS, maxTokens: 200_000_000 })
    clearInterval(timer)
    expect(turns).toBeGreaterThan(3)
  })
})
