import fc from "fast-check"
import { expect, test } from "vitest"
import type { HistoryMessage, HistoryPart } from "../../src/features/forks/ports.ts"
import { digest, preamble } from "../../src/features/forks/preamble.ts"
import { guessText, sum, weighMessage, wholeTokens } from "../../src/features/forks/tokens.ts"
import { cutText, originalLength, type TrimLimits, trim } from "../../src/features/forks/trim.ts"
import { call, ESTIMATE, text } from "../support/histories.ts"

const words = fc
  .tuple(fc.oneof(fc.string(), fc.string({ unit: "binary" }), fc.constantFrom("word ", "x", "{}();\n")), fc.nat(400))
  .map(([piece, times]) => piece.repeat(times).slice(0, 8000))

const spoken: readonly fc.Arbitrary<HistoryPart>[] = [
  words.map(text),
  fc
    .nat(100_000)
    .map((bytes): HistoryPart => ({ type: "file", name: "f", media: { mime: "image/png", bytes }, handle: 0 })),
  fc.constant<HistoryPart>({ type: "other", handle: 0 }),
]

const done: readonly fc.Arbitrary<HistoryPart>[] = [
  words.map((content): HistoryPart => ({ type: "reasoning", text: content, handle: 0 })),
  fc.tuple(words, fc.jsonValue(), fc.string()).map(([result, input, id]) => call(id, result, input)),
]

const message = fc.oneof(
  fc.record({ role: fc.constant("user" as const), parts: fc.array(fc.oneof(...spoken), { maxLength: 4 }) }),
  fc.record({
    role: fc.constant("assistant" as const),
    parts: fc.array(fc.oneof(...spoken, ...done), { maxLength: 4 }),
  }),
)

const history: fc.Arbitrary<readonly HistoryMessage[]> = fc
  .array(message, { maxLength: 25 })
  .map((messages) => messages.map((each, index) => ({ ...each, id: `m${index}`, handle: 0 })))

const limits = fc.record({
  maxToolResultChars: fc.integer({ min: 100, max: 2000 }),
  maxTokens: fc.integer({ min: 1000, max: 20_000 }),
})

const trimmed = (messages: readonly HistoryMessage[], limit: TrimLimits) => trim(messages, limit, ESTIMATE)

const weigh = async (messages: readonly HistoryMessage[]) =>
  wholeTokens(sum(await Promise.all(messages.map((message) => weighMessage(message, ESTIMATE.meter)))))

const callsOf = (messages: readonly HistoryMessage[]) =>
  messages.flatMap(({ parts }) => parts.filter((each) => each.type === "tool"))

test("a trimmed history fits the limit, is complete and in order, and keeps a valid beginning", async () => {
  await fc.assert(
    fc.asyncProperty(history, limits, async (messages, limit) => {
      const { kept, dropped, tokens } = await trimmed(messages, limit)
      expect(await weigh(kept)).toBeLessThanOrEqual(limit.maxTokens)
      expect(tokens).toBe(await weigh(kept))
      if (dropped.length > 0) expect(kept[0]?.role ?? "user").toBe("user")
      const order = messages.map(({ id }) => id)
      const keptIDs = kept.map(({ id }) => id)
      expect(order.filter((id) => keptIDs.includes(id))).toEqual(keptIDs)
      const gone = dropped.map(({ id }) => id)
      expect(order.filter((id) => !keptIDs.includes(id))).toEqual(gone)
    }),
  )
})

test("trimming keeps the newest messages, plus the message that began the current turn", async () => {
  await fc.assert(
    fc.asyncProperty(history, limits, async (messages, limit) => {
      const { kept, dropped } = await trimmed(messages, limit)
      const place = new Map(messages.map(({ id }, index) => [id, index]))
      const newestGone = Math.max(-1, ...dropped.map(({ id }) => place.get(id) ?? 0))
      for (const { id } of kept.slice(1)) expect(place.get(id)).toBeGreaterThan(newestGone)
    }),
  )
})

test("a trimmed tool call keeps its id, name, arguments and state, and its result states its full length", async () => {
  await fc.assert(
    fc.asyncProperty(history, limits, async (messages, limit) => {
      const { kept, cut } = await trimmed(messages, limit)
      const byID = new Map(messages.map((message) => [message.id, message]))
      let cuts = 0
      for (const message of kept) {
        const before = callsOf([byID.get(message.id) as HistoryMessage])
        const after = callsOf([message])
        expect(after.map(({ result: _, ...rest }) => rest)).toEqual(before.map(({ result: _, ...rest }) => rest))
        for (const [index, { result }] of after.entries()) {
          const was = before[index]?.result ?? ""
          expect(result.length).toBeLessThanOrEqual(limit.maxToolResultChars)
          if (was.length <= limit.maxToolResultChars) expect(result).toBe(was)
          else {
            cuts++
            expect(originalLength(result)).toBe(originalLength(was))
          }
        }
      }
      expect(cut).toHaveLength(cuts)
    }),
  )
})

test("trimming an already trimmed history changes nothing", async () => {
  await fc.assert(
    fc.asyncProperty(history, limits, async (messages, limit) => {
      const once = await trimmed(messages, limit)
      const twice = await trimmed(once.kept, limit)
      const plain = (each: readonly HistoryMessage[]) => each.map(({ id, parts }) => ({ id, parts }))
      expect(plain(twice.kept)).toEqual(plain(once.kept))
      expect([twice.dropped, twice.cut]).toEqual([[], []])
    }),
  )
})

/** Half of a surrogate pair. */
const HALF = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/

test("a cut text is a beginning of the text with its length and never splits a character", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 3000 }), fc.integer({ min: 100, max: 500 }), (content, most) => {
      const short = cutText(content, most)
      expect(short.length).toBeLessThanOrEqual(Math.max(most, 0))
      if (content.length <= most) return void expect(short).toBe(content)
      const head = short.slice(0, short.lastIndexOf("\n[Cut: "))
      expect(content.startsWith(head)).toBe(true)
      if (!HALF.test(content)) expect(head).not.toMatch(HALF)
      expect(originalLength(short)).toBe(content.length)
    }),
  )
})

test("the digest stays within its limit, and its content cannot close the preamble's tags", async () => {
  const TAGS = ["</left_out_messages>", "<left_out_messages>", "< /LEFT_OUT_MESSAGES >"]
  const evil = fc.array(fc.oneof(fc.constantFrom(...TAGS), fc.string()), { maxLength: 5 }).map((all) => all.join(""))
  await fc.assert(
    fc.asyncProperty(
      fc.array(evil, { minLength: 1, maxLength: 20 }),
      fc.integer({ min: 50, max: 500 }),
      async (texts, tokens) => {
        const dropped = texts.map(
          (each, index): HistoryMessage => ({ id: `m${index}`, role: "user", parts: [text(each)], handle: 0 }),
        )
        const left = await digest(dropped, tokens, () => {})
        expect(guessText(left)).toBeLessThanOrEqual(tokens)
        const told = preamble({ kept: [], dropped, cut: [], maxToolResultChars: 1500, maxTokens: 9 }, left)
        expect(told.match(/<\s*\/?\s*left_out_messages/gi)).toHaveLength(2)
      },
    ),
  )
})
