import { describe, expect, test } from "vitest"
import type { ModelFacts, Prices, Prompt } from "../../../src/core/ports.ts"
import type { TaskDraft } from "../../../src/core/task.ts"
import { forkContext, isCheaper, type WholeRequest } from "../../../src/features/forks/fork.ts"
import type { ForkApi, HistoryMessage, NewFork } from "../../../src/features/forks/ports.ts"
import { messageID } from "../../../src/opencode/messages.ts"
import { agent, call, counted, READER, user } from "../../support/histories.ts"

const DRAFT = {
  id: "bg_abcdefgh",
  parentID: "ses_parent",
  parentMessageID: "msg_call",
  agent: "build",
  model: READER,
  run: { generation: 0, createdAt: 1_700_000_000_000 },
} as TaskDraft
const LIMITS = { maxTokens: 100_000, maxToolResultChars: 1500 }
const OURS = [{ permission: "task", pattern: "*", action: "deny" as const }]
const THEIRS = [{ permission: "webfetch", pattern: "*", action: "ask" as const }]
const WHOLE: WholeRequest = {
  choice: "asked",
  rules: THEIRS,
  refused: ["task", "tasks_*"],
  rides: "ses_first",
  briefed: false,
}
/** Sonnet's. */
const PRICES = { cached: 0.3e-6, uncached: 3.75e-6 }
const asked = (id: string, change = {}): HistoryMessage => ({
  ...user(id, "read it"),
  asked: { agent: "build", model: READER, own: false, ...change },
})
const LONG = [asked("u1"), counted(agent("a1", call("c1", "word ".repeat(5000))), 9000, READER, 8000)]

type World = { alike?: boolean; room?: number; prices?: Prices; thread?: boolean; whole?: Partial<WholeRequest> | null }

/** Forks on an OpenCode that knows this of its model. */
const fork = async (messages: readonly HistoryMessage[], world: World = {}) => {
  const { alike, room, prices, thread = false, whole = {} } = world
  const made: NewFork[] = []
  const said: Prompt[] = []
  const forks: ForkApi & ModelFacts = {
    history: async () => messages,
    contextLimit: async () => undefined,
    compactionLimit: async () => room,
    prices: async () => prices,
    inputPrice: async () => undefined,
    beginsAlike: async () => alike,
    countTokens: async (texts) => texts.map(({ length }) => length / 4),
    async fork(input) {
      made.push(input)
      return "ses_fork"
    },
  }
  const opencode = {
    messageID,
    prompt: async (prompt: Prompt) => void said.push(prompt),
    deleteSession: async () => {},
  }
  const request = { draft: DRAFT, title: "t", rules: OURS, limits: LIMITS }
  const { info } = await forkContext(
    { forks, models: forks, opencode, isThread: async () => thread },
    whole === null ? request : { ...request, whole: { ...WHOLE, ...whole } },
  )
  return { info, made: made[0] as NewFork, preamble: said[0]?.parts[0]?.text ?? "" }
}

describe("a whole fork", () => {
  test("a whole fork whose requests would begin differently is trimmed, with the reason and without a price", async () => {
    const { info } = await fork(LONG, { alike: false, prices: PRICES, room: 100_000 })
    expect(info).toMatchObject({ cutResults: 1, why: expect.stringMatching(/^Another plugin .* is trimmed\.$/) })
    expect([info.whole, info.rides, info.price]).toEqual([undefined, undefined, undefined])
    for (const alike of [true, undefined]) expect((await fork(LONG, { alike, prices: PRICES })).info.whole).toBe(true)
  })

  test("a whole fork has every message uncut and the parent's rules, and records parent and price", async () => {
    const { info, made } = await fork(LONG, { prices: PRICES, room: 100_000 })
    expect(made.messages).toEqual(LONG)
    expect(made.rules).toBe(THEIRS)
    expect(made.draft.fork).toBe(info)
    expect(info).toMatchObject({ messages: 2, droppedMessages: 0, cutResults: 0, whole: true, rides: "ses_first" })
    expect(info.cuts).toBeUndefined()
    expect(info.briefed).toBeUndefined()
    expect(info.why).toBeUndefined()
    // The provider's count of the last step's request, and what came since.
    expect(info.tokens).toBeGreaterThan(9000 + 4000)
    expect(made.tokens).toBe(info.tokens)
    expect(info.price).toEqual({ cached: info.tokens * 0.3e-6, anew: info.tokens * 3.75e-6 })
  })

  test("a whole fork reads that nothing was cut and which of its tools are refused", async () => {
    const { preamble } = await fork(LONG)
    expect(preamble).toContain("Nothing was left out or cut: 2 messages kept.")
    expect(preamble).toContain("calls of them are refused: task, tasks_*. Do the work yourself.")
    expect((await fork(LONG, { whole: { refused: [] } })).preamble).not.toContain("refused")
  })

  test("a whole fork records that its parent's system prompt is that of a fresh agent", async () => {
    expect((await fork(LONG, { whole: { briefed: true } })).info.briefed).toBe(true)
  })

  test("a whole fork gives no price where none is known or no step has ended", async () => {
    expect((await fork(LONG)).info.price).toBeUndefined()
    expect((await fork([asked("u1")], { prices: PRICES })).info).not.toHaveProperty("price")
    const other = counted(agent("a1", "yes"), 9000, { provider: "other", id: "alpha" }, 8000)
    expect((await fork([asked("u1"), other], { prices: PRICES })).info).not.toHaveProperty("price")
  })

  test.each<[string, World, readonly HistoryMessage[], RegExp]>([
    [
      "where the model has too little room",
      { room: 16_000 },
      LONG,
      /^The history, about 17,\d{3} tokens, leaves the model too little room \(16,000\): this fork is trimmed\.$/,
    ],
    [
      "in a thread of the board",
      { thread: true },
      LONG,
      /^The system prompt of a thread of the board .+ is trimmed\.$/,
    ],
    [
      "where its newest message has tools of its own",
      {},
      [...LONG, asked("u2", { own: true })],
      /^The newest message here has .+ tools of its own.+ is trimmed\.$/,
    ],
    ["where the agent has changed", {}, [...LONG, asked("u2", { agent: "plan" })], /^Agent or model have changed/],
    [
      "where the variant has changed",
      {},
      [...LONG, asked("u2", { model: { ...READER, variant: "high" } })],
      /^Agent or model have changed/,
    ],
  ])(
    "a fork requested whole is trimmed %s, gives the reason, and has the plugin's rules",
    async (_where, world, messages, why) => {
      const { info, made, preamble } = await fork(messages, world)
      expect(info.why).toMatch(why)
      expect(info.whole).toBeUndefined()
      expect(info.rides).toBeUndefined()
      expect(info.cutResults).toBe(1)
      expect(made.rules).toBe(OURS)
      expect(preamble).not.toContain("refused")
    },
  )
})

describe("a plain fork", () => {
  const CHEAPER = { choice: "cheaper" } as const
  const SHORT = [asked("u1"), counted(agent("a1", "y".repeat(400)), 9000, READER, 8000)]

  test("a plain fork is made whole where that is cheaper, and its record says so", async () => {
    const { info } = await fork(SHORT, { prices: PRICES, whole: CHEAPER })
    expect(info).toMatchObject({ whole: true, why: "Chosen as the cheaper way (option fork.whole)." })
  })

  test.each<[string, World, readonly HistoryMessage[]]>([
    [
      "the history is long and little of it stays",
      { prices: PRICES },
      [asked("u1"), counted(agent("a1", call("c1", "x ".repeat(200_000))), 900, READER, 800)],
    ],
    ["prices are missing", {}, SHORT],
    ["the last step told of no cache", { prices: PRICES }, [asked("u1"), counted(agent("a1", "y"), 9000)]],
    ["no step has ended", { prices: PRICES }, [asked("u1")]],
    ["it could not be whole", { prices: PRICES, thread: true }, SHORT],
  ])("a plain fork is trimmed without a remark where %s", async (_where, world, messages) => {
    const { info, made } = await fork(messages, { ...world, whole: CHEAPER })
    const plain = await fork(messages, { whole: null })
    expect(info).toEqual(plain.info)
    expect(made.rules).toBe(OURS)
  })

  test("a plain fork is made whole if 8·H·r is less than K·w + 8·K·r", () => {
    // 8 × 14,000 × 0.3 = 33,600 and 5,000 × 3.75 + 8 × 5,000 × 0.3 = 30,750; with 6,000: 36,900.
    expect(isCheaper(14_000, 5000, PRICES)).toBe(false)
    expect(isCheaper(14_000, 6000, PRICES)).toBe(true)
  })
})
