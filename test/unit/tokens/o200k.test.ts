import { readFileSync } from "node:fs"
import { countTokens } from "gpt-tokenizer/encoding/o200k_base"
import { describe, expect, test } from "vitest"
import { countO200k } from "../../../src/runtime/tokens/o200k.ts"

const SOURCE = readFileSync(new URL("../../../node_modules/typescript/lib/typescript.js", import.meta.url), "utf8")

/** Letters that follow no pattern, the same every time. */
const letters = (length: number) => {
  let state = 1
  return Array.from({ length }, () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
    return String.fromCharCode(97 + (Math.floor(state / 65_536) % 26))
  }).join("")
}

describe("the o200k count in pieces", () => {
  test.each([
    ["code", SOURCE.slice(1_000_000, 1_100_000)],
    ["prose", "The manager keeps every running task under watch and tells its parent. ".repeat(500)],
    ["words of another script", "我们需要在后台运行这个任务，然后通知用户结果。\n".repeat(300)],
    ["indented lines", "      if (x) {\n\n        y()\n      }\n".repeat(500)],
  ])("the o200k count in pieces is within a thousandth of the count as a whole: %s", (_, text) => {
    expect(Math.abs(countO200k(text) / countTokens(text) - 1)).toBeLessThan(0.001)
  })

  test("the o200k count in pieces is within a thousandth for one unbroken word", () => {
    const run = letters(6000)
    expect(Math.abs(countO200k(run) / countTokens(run) - 1)).toBeLessThan(0.001)
  })

  test("the o200k count in pieces ends in seconds on a word that would take minutes as one piece", {
    timeout: 30_000,
  }, () => {
    const run = letters(100_000)
    const begun = performance.now()
    expect(countO200k(run)).toBeGreaterThan(50_000)
    expect(performance.now() - begun).toBeLessThan(15_000)
  })

  test("the o200k count in pieces reads special tokens as text, splits no character and accepts empty text", () => {
    expect(countO200k("<|endoftext|>")).toBeGreaterThan(3)
    expect(countO200k(`x${"😀".repeat(5000)}`)).toBe(countTokens(`x${"😀".repeat(5000)}`))
    expect(countO200k("")).toBe(0)
  })
})
