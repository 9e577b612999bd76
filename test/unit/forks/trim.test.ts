import { describe, expect, test } from "vitest"
import type { HistoryMessage } from "../../../src/features/forks/ports.ts"
import { cutText, originalLength, type TrimLimits, trim } from "../../../src/features/forks/trim.ts"
import { agent, byLength, call, ESTIMATE, textsOf, user } from "../../support/histories.ts"

const LIMITS = { maxToolResultChars: 1500, maxTokens: 100_000 }
/** Some 1,000 tokens by the estimate. */
const page = (word: string) => `${word} `.repeat(600)

const trimmed = (messages: readonly HistoryMessage[], limits: TrimLimits = LIMITS, scales = ESTIMATE) =>
  trim(messages, limits, scales)
const idsOf = (messages: readonly HistoryMessage[]) => messages.map(({ id }) => id)

describe("tool results", () => {
  test("a tool result over the limit is cut and gives its original length", async () => {
    const history = [user("u1", "read it"), agent("a1", call("c1", "x".repeat(6000), { path: "/tmp/f" }))]
    const { kept, cut } = await trimmed(history)
    const [part] = kept[1]?.parts ?? []
    expect(part).toMatchObject({ type: "tool", callID: "c1", tool: "read", input: { path: "/tmp/f" }, handle: "c1" })
    const result = part?.type === "tool" ? part.result : ""
    expect(result).toHaveLength(1500)
    expect(result).toMatch(/^x+\n\[Cut: 6000 characters originally, the first \d+ kept\.\]$/)
    const left = /^x+/.exec(result)?.[0].length
    expect(cut).toEqual([{ callID: "c1", tool: "read", input: { path: "/tmp/f" }, kept: left, of: 6000 }])
  })

  test("tool results within the limit stay as they are", async () => {
    const history = [user("u1", "read it"), agent("a1", call("c1", "x".repeat(1500)))]
    const { kept, dropped, cut } = await trimmed(history)
    expect([kept, dropped, cut]).toEqual([history, [], []])
  })

  test("an agent's answer in a tool result stays whole up to 20,000 characters", async () => {
    const answer = (id: string, length: number) => call(id, "y".repeat(length), {}, "superagents_output")
    const history = [
      user("u1", "go"),
      agent("a1", answer("c1", 20_000), answer("c2", 20_001), call("c3", "z".repeat(2000))),
    ]
    const { kept, cut } = await trimmed(history)
    expect(kept[1]?.parts[0]).toBe(history[1]?.parts[0])
    expect(cut.map(({ tool, of }) => [tool, of])).toEqual([
      ["superagents_output", 20_001],
      ["read", 2000],
    ])
    expect(cut[0]?.kept).toBeGreaterThan(19_900)
    const wider = await trimmed(history, { ...LIMITS, maxToolResultChars: 30_000 })
    expect(wider.cut).toEqual([])
  })

  test("a tool result that is cut twice still gives its original length", () => {
    const once = cutText("y".repeat(9000), 1500)
    const twice = cutText(once, 300)
    expect(twice.length).toBeLessThanOrEqual(300)
    expect([originalLength(once), originalLength(twice), originalLength("short")]).toEqual([9000, 9000, 5])
  })

  test.each([
    `${"9".repeat(400)} characters originally, the first 3 kept`,
    "7 characters originally, the first 3000 kept",
  ])("a note that a text itself pretends to have is not believed: %#", (note) => {
    const text = `${"y".repeat(3000)}\n[Cut: ${note}.]`
    expect(originalLength(text)).toBe(text.length)
    expect(cutText(text, 300)).toContain(`\n[Cut: ${text.length} characters originally, `)
  })

  test("a tool result is never cut in the middle of a character", () => {
    for (const most of [200, 201, 202, 203])
      expect(cutText("😀".repeat(500), most)).not.toMatch(/[\ud800-\udbff](?![\udc00-\udfff])/)
  })
})

describe("the token limit", () => {
  test("the token limit drops the oldest messages, and the rest begins with a user's message", async () => {
    const history = Array.from({ length: 20 }, (_, turn) => [
      user(`u${turn}`, page("word")),
      agent(`a${turn}`, page("word")),
    ]).flat()
    const { kept, dropped, tokens } = await trimmed(history, { ...LIMITS, maxTokens: 9000 })
    expect(idsOf([...dropped, ...kept])).toEqual(idsOf(history))
    expect(kept[0]?.role).toBe("user")
    expect(kept.length).toBeGreaterThanOrEqual(6)
    expect(tokens).toBeLessThanOrEqual(9000)
  })

  test("the token limit leaves room for the preamble, whose length may depend on what was dropped", async () => {
    const history = Array.from({ length: 20 }, (_, turn) => user(`u${turn}`, "w".repeat(3976)))
    const { scales } = byLength()
    const keptBeside = async (maxTokens: number) => {
      const beside = async ({ dropped }: { dropped: readonly unknown[] }) => 300 + (dropped.length > 0 ? 1000 : 0)
      return (await trim(history, { ...LIMITS, maxTokens }, scales, beside)).kept.length
    }
    // 20 messages of 1,000 tokens.
    expect([await keptBeside(20_300), await keptBeside(20_299)]).toEqual([20, 18])
    expect([await keptBeside(1300), await keptBeside(2300)]).toEqual([0, 1])
  })

  test("a turn that exceeds the token limit keeps its first message and its newest steps", async () => {
    const steps = Array.from({ length: 50 }, (_, step) => agent(`a${step}`, page("step"), call(`c${step}`, "done")))
    const { kept, dropped } = await trimmed([user("u0", "early"), agent("x0", "yes"), user("u1", "go"), ...steps], {
      ...LIMITS,
      maxTokens: 8000,
    })
    expect(kept[0]?.id).toBe("u1")
    expect(idsOf(kept.slice(1))).toEqual(idsOf(steps.slice(-(kept.length - 1))))
    expect(kept.length).toBeGreaterThan(4)
    expect(dropped[0]?.id).toBe("u0")
    expect(idsOf(dropped)).not.toContain("u1")
    expect(kept.length + dropped.length).toBe(steps.length + 3)
  })

  test("a first message that exceeds the token limit is cut, and the cut is reported", async () => {
    const image = { type: "file", name: "a.png", media: { mime: "image/png", bytes: 5 }, handle: 0 } as const
    const history = [user("u1", "w ".repeat(50_000), image), agent("a1", "first"), agent("a2", "second")]
    const { kept, shortened } = await trimmed(history, { ...LIMITS, maxTokens: 4000 })
    expect(idsOf(kept)).toEqual(["u1", "a1", "a2"])
    const [opening = ""] = textsOf(kept)
    expect(opening).toMatch(/\[Cut: 100000 characters originally/)
    expect(kept[0]?.parts.map(({ type }) => type)).toEqual(["text"])
    expect(shortened).toEqual({ kept: opening.lastIndexOf("\n[Cut: "), of: 100_000, files: ["a.png"] })
    expect((await trimmed(history.slice(1))).shortened).toBeUndefined()
  })

  test("the first message of the turn is kept even if its newest step does not fit", async () => {
    const history = [user("u1", "go"), agent("a1", call("c1", "x", { content: page("z").repeat(50) }))]
    const { kept, dropped } = await trimmed(history, { ...LIMITS, maxTokens: 1000 })
    expect([idsOf(kept), idsOf(dropped)]).toEqual([["u1"], ["a1"]])
  })

  test("a history within the token limit stays as it is, whoever wrote its first message", async () => {
    const history = [agent("a0", "hello"), user("u1", "hi")]
    expect(idsOf((await trimmed(history)).kept)).toEqual(["a0", "u1"])
    const long = [agent("a0", page("old")), agent("a1", page("less old")), user("u1", "hi")]
    expect(idsOf((await trimmed(long, { ...LIMITS, maxTokens: 2500 })).kept)).toEqual(["u1"])
  })

  test("the tail before a compaction is kept, and the token limit drops its oldest messages first", async () => {
    const opener = { ...user("u2", { type: "other", handle: 0 }), opens: true }
    const history = [
      agent("t1", page("tail")),
      agent("t2", page("tail")),
      opener,
      agent("s", "summary"),
      user("u3", "new"),
    ]
    expect(idsOf((await trimmed(history)).kept)).toEqual(["t1", "t2", "u2", "s", "u3"])
    const limited = await trimmed(history, { ...LIMITS, maxTokens: 1500 })
    expect([idsOf(limited.kept), idsOf(limited.dropped)]).toEqual([["t2", "u2", "s", "u3"], ["t1"]])
    expect(idsOf((await trimmed(history, { ...LIMITS, maxTokens: 1000 })).kept)).toEqual(["u2", "s", "u3"])
  })

  test("images and documents count toward the token limit", async () => {
    const image = { type: "file", name: "a.png", media: { mime: "image/png", bytes: 500_000 }, handle: 0 } as const
    const paper = {
      type: "file",
      name: "a.pdf",
      media: { mime: "application/pdf", bytes: 400_000 },
      handle: 0,
    } as const
    const { tokens } = await trimmed([user("u1", image, paper)])
    expect(tokens).toBeGreaterThan(22_000)
    expect(tokens).toBeLessThan(23_000)
  })
})

describe("counted texts", () => {
  test("no text is counted where its bytes alone show that the history fits", async () => {
    const { texts, scales } = byLength()
    const { kept } = await trimmed([user("u1", "x".repeat(99_000))], LIMITS, scales)
    expect([kept.length, texts]).toEqual([1, []])
  })

  test("messages beyond the token limit are not counted", async () => {
    const history = Array.from({ length: 100 }, (_, turn) => user(`u${turn}`, `${turn} `.padEnd(40_000, "x")))
    const { texts, scales } = byLength()
    const { kept } = await trimmed(history, LIMITS, scales)
    expect(kept).toHaveLength(9)
    expect(texts.length).toBeLessThan(20)
  })

  test("a history of 99,000 tokens stays whole, and a costly unbroken word drops only the oldest turns", async () => {
    const turns = (count: number, tokens: number) =>
      Array.from({ length: count }, (_, turn) => [
        user(`u${turn}`, `question ${turn}`),
        agent(`a${turn}`, "abc ".repeat(tokens)),
      ]).flat()
    const { scales } = byLength()
    const whole = await trimmed(turns(9, 10_980), LIMITS, scales)
    expect(whole.dropped).toEqual([])
    expect(whole.tokens).toBeGreaterThan(98_900)
    const run = [...turns(9, 5000), user("u9", "x".repeat(110_000)), agent("a9", "yes")]
    const random = byLength(0.52)
    const { dropped } = await trimmed(run, LIMITS, {
      ...random.scales,
      meter: async (texts) => texts.map((text) => (text.includes("xxx") ? 57_200 : text.length / 4)),
    })
    expect(idsOf(dropped)).toEqual(["u0", "a0"])
  })
})

test("trimming a history lets other work run between the messages", async () => {
  let pauses = 0
  await trim([user("u1", "a"), user("u2", "b")], LIMITS, { ...ESTIMATE, pause: () => void pauses++ })
  expect(pauses).toBeGreaterThanOrEqual(2)
})
