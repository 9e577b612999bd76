import { describe, expect, test } from "vitest"
import { cutText, originalLength } from "../../src/fork/cut.ts"
import { addWeights, NO_WEIGHT, tokensOf, weighMessage } from "../../src/fork/tokens.ts"
import { trim } from "../../src/fork/trim.ts"
import { agent, call, counted, textsOf, user } from "../support/histories.ts"

const LIMITS = { maxToolResultChars: 1500, maxTokens: 100_000 }
/** 1,000 words of some 1.1 tokens by the estimate. */
const page = (word: string) => `${word} `.repeat(1000)

describe("tool results", () => {
  test("over the limit are cut to it and say their original length; name, arguments and id stay", async () => {
    const history = [user("u1", "read it"), agent("a1", call("c1", "x".repeat(6000), { path: "/tmp/f" }))]
    const { kept, cut } = await trim(history, LIMITS)
    const [part] = kept[1]?.parts ?? []
    expect(part).toMatchObject({ type: "tool", callID: "c1", tool: "read", input: { path: "/tmp/f" }, handle: "c1" })
    const result = part?.type === "tool" ? part.result : ""
    expect(result).toHaveLength(1500)
    expect(result).toMatch(/^x+\n\[Cut: 6000 characters originally, the first \d+ kept\.\]$/)
    expect(cut).toEqual([{ callID: "c1", tool: "read", from: 6000, to: 1500 }])
  })

  test("within the limit stay as they are", async () => {
    const history = [user("u1", "read it"), agent("a1", call("c1", "x".repeat(1500)))]
    const trimmed = await trim(history, LIMITS)
    expect(trimmed).toMatchObject({ dropped: [], cut: [] })
    expect(trimmed.kept.map(({ parts }) => parts)).toEqual(history.map(({ parts }) => parts))
  })

  test("keep the first length when they are cut again", () => {
    const once = cutText("y".repeat(9000), 1500)
    const twice = cutText(once, 300)
    expect(twice.length).toBeLessThanOrEqual(300)
    expect([originalLength(once), originalLength(twice), originalLength("short")]).toEqual([9000, 9000, 5])
  })

  test("are not cut through a character", () => {
    for (const most of [200, 201, 202, 203])
      expect(cutText("😀".repeat(500), most)).not.toMatch(/[\ud800-\udbff](?![\udc00-\udfff])/)
  })
})

describe("the token limit", () => {
  test("lets the oldest go and begins with a user's message", async () => {
    const history = Array.from({ length: 20 }, (_, turn) => [
      user(`u${turn}`, page("word")),
      agent(`a${turn}`, page("word")),
    ]).flat()
    const { kept, dropped, tokens } = await trim(history, { ...LIMITS, maxTokens: 9000 })
    expect([...dropped, ...kept].map(({ id }) => id)).toEqual(history.map(({ id }) => id))
    expect(kept[0]?.role).toBe("user")
    expect(kept.length).toBeGreaterThanOrEqual(6)
    expect(tokens).toBeLessThanOrEqual(9000)
  })

  test("breaks a long turn behind the message that began it", async () => {
    const steps = Array.from({ length: 50 }, (_, step) => agent(`a${step}`, page("step"), call(`c${step}`, "done")))
    const { kept, dropped } = await trim([user("u0", "early"), agent("x0", "yes"), user("u1", "go"), ...steps], {
      ...LIMITS,
      maxTokens: 8000,
    })
    expect(kept[0]?.id).toBe("u1")
    expect(kept.slice(1).map(({ id }) => id)).toEqual(steps.slice(-(kept.length - 1)).map(({ id }) => id))
    expect(kept.length).toBeGreaterThan(4)
    expect(dropped[0]?.id).toBe("u0")
    expect(dropped.map(({ id }) => id)).not.toContain("u1")
    expect(kept.length + dropped.length).toBe(steps.length + 3)
  })

  test("cuts the message that began the turn where it is itself too long", async () => {
    const history = [user("u1", "w ".repeat(50_000)), agent("a1", "first"), agent("a2", "second")]
    const { kept } = await trim(history, { ...LIMITS, maxTokens: 4000 })
    expect(kept.map(({ id }) => id)).toEqual(["u1", "a1", "a2"])
    expect(textsOf(kept)[0]).toMatch(/\[Cut: 100000 characters originally/)
  })

  test("keeps nothing where not even the newest fits", async () => {
    const history = [user("u1", "go"), agent("a1", call("c1", "x", { content: page("z").repeat(50) }))]
    const { kept, dropped } = await trim(history, { ...LIMITS, maxTokens: 1000 })
    expect([kept.map(({ id }) => id), dropped.map(({ id }) => id)]).toEqual([["u1"], ["a1"]])
  })

  test("an agent's message that opens the history goes, since no user began it", async () => {
    const { kept, dropped } = await trim([agent("a0", "hello"), user("u1", "hi")], LIMITS)
    expect([kept.map(({ id }) => id), dropped.map(({ id }) => id)]).toEqual([["u1"], ["a0"]])
  })

  test("counts images and documents", async () => {
    const image = { type: "file", name: "a.png", media: { mime: "image/png", bytes: 500_000 }, handle: 0 } as const
    const paper = {
      type: "file",
      name: "a.pdf",
      media: { mime: "application/pdf", bytes: 400_000 },
      handle: 0,
    } as const
    const { tokens } = await trim([user("u1", image, paper)], LIMITS)
    expect(tokens).toBeGreaterThan(22_000)
    expect(tokens).toBeLessThan(23_000)
  })
})

describe("the provider's count", () => {
  const history = (tokens: number) => [user("u1", page("ask")), counted(agent("a1", page("answer")), tokens)]
  const estimate = history(0).map(weighMessage).reduce(addWeights, NO_WEIGHT).estimate

  test("scales the estimate", async () => {
    expect((await trim(history(estimate * 2), LIMITS)).tokens).toBe(estimate * 2)
    expect((await trim(history(estimate * 0.8), LIMITS)).tokens).toBe(Math.ceil(estimate * 0.8))
  })

  test("is not believed where it cannot be of this history", async () => {
    for (const absurd of [1, estimate * 10]) expect((await trim(history(absurd), LIMITS)).tokens).toBe(estimate)
  })

  test("does not let in more than fits once the answer that carries it is gone", async () => {
    const history = [counted(agent("a1", "b".repeat(800)), 120), user("u1", "word ".repeat(300))]
    const once = await trim(history, { ...LIMITS, maxTokens: 250 })
    const twice = await trim(once.kept, { ...LIMITS, maxTokens: 250 })
    expect(once.factor).toBe(1)
    expect(twice.kept.map(({ parts }) => parts)).toEqual(once.kept.map(({ parts }) => parts))
  })

  test("never makes more tokens than there are bytes", async () => {
    const { tokens } = await trim([user("u1", "a ".repeat(3000)), counted(agent("a1", "b"), 8000)], LIMITS)
    expect(tokens).toBeLessThanOrEqual(6015)
  })

  test("stays with the last answer alone, and is of what is kept", async () => {
    const turns = [...history(5), ...history(estimate * 2 * 1.5)].map((each, index) => ({ ...each, id: `m${index}` }))
    const { kept, factor, tokens } = await trim(turns, { ...LIMITS, maxTokens: estimate * 2 })
    expect(kept.map(({ id }) => id)).toEqual(["m2", "m3"])
    expect(kept[0]?.counted).toBeUndefined()
    expect(kept[1]?.counted).toBeCloseTo(estimate * factor)
    expect(tokens).toBe(tokensOf(kept.map(weighMessage).reduce(addWeights, NO_WEIGHT), factor))
  })
})

test("lets others run between the messages", async () => {
  let pauses = 0
  await trim([user("u1", "a"), user("u2", "b")], LIMITS, () => void pauses++)
  expect(pauses).toBe(2)
})
