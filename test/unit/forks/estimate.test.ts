import { createHash } from "node:crypto"
import { readFileSync } from "node:fs"
import { countTokens } from "gpt-tokenizer/encoding/o200k_base"
import { describe, expect, test } from "vitest"
import { byteLength, estimateTokens } from "../../../src/features/forks/tokens.ts"

const file = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8").slice(0, 100_000)

/** Noise that is the same every time. */
const bytes = (count: number) =>
  Buffer.concat(
    Array.from({ length: Math.ceil(count / 32) }, (_, index) => createHash("sha256").update(`${index}`).digest()),
  )

const SLICE = 3000
const exact = (content: string) => {
  let tokens = 0
  for (let at = 0; at < content.length; at += SLICE) tokens += countTokens(content.slice(at, at + SLICE))
  return tokens
}

const ratio = (content: string) => estimateTokens(content) / exact(content)

const letters = (alphabet: string) => Array.from(bytes(20_000), (byte) => alphabet[byte % alphabet.length]).join("")
const LOWER = "abcdefghijklmnopqrstuvwxyz"

describe("the token estimate", () => {
  test.each([
    ["TypeScript", file("src/runtime/task-manager.ts")],
    ["a declaration file", file("node_modules/typescript/lib/lib.dom.d.ts")],
    ["a bundled program", file("node_modules/typescript/lib/typescript.js")],
    ["a README", file("node_modules/gpt-tokenizer/README.md")],
    ["JSON", file("package-lock.json")],
    ["search results", file("src/runtime/task-manager.ts").replace(/^/gm, "src/runtime/task-manager.ts:12:")],
    ["prose", "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor. ".repeat(50)],
  ])("the token estimate is at least the o200k count and at most a third above it for %s", (_, content) => {
    expect(ratio(content)).toBeGreaterThanOrEqual(1)
    expect(ratio(content)).toBeLessThan(1.34)
  })

  test.each([
    ["base64", bytes(30_000).toString("base64")],
    ["hexadecimal", bytes(30_000).toString("hex")],
    ["small letters", letters(LOWER)],
    ["small letters and digits", letters(`${LOWER}0123456789`)],
    ["letters of both cases", letters(LOWER + LOWER.toUpperCase())],
    ["digits", letters("0123456789")],
  ])("the token estimate is at most a twentieth below the o200k count for noise of %s", (_, content) => {
    expect(ratio(content)).toBeGreaterThan(0.95)
    expect(ratio(content)).toBeLessThan(1.3)
  })

  test.each([
    ["Chinese", "我们需要在后台运行这个任务，然后通知用户结果。"],
    ["Japanese", "バックグラウンドでタスクを実行し、結果をユーザーに通知します。"],
    ["Korean", "백그라운드에서 작업을 실행하고 결과를 사용자에게 알립니다."],
    ["Russian", "Задача выполняется в фоновом режиме, и пользователь получает уведомление."],
    ["German", "Größere Dateien müssen erneut gelesen werden, während die Aufgabe läuft."],
    ["emoji", "😀🎉👍🏽👨‍👩‍👧‍👦🚀✅❌"],
    ["boxes", "┌──┐│  │└──┘▼►◄"],
  ])("the token estimate is never below the o200k count for %s", (_, content) => {
    expect(ratio(content.repeat(50))).toBeGreaterThanOrEqual(1)
  })

  test("the token estimate takes time in proportion to the length, also for one unbroken word", () => {
    const time = (length: number) => {
      const content = "x".repeat(length)
      const begin = performance.now()
      estimateTokens(content)
      return performance.now() - begin
    }
    time(1_000_000)
    expect(time(4_000_000)).toBeLessThan(1000)
  })

  test("the token estimate of an empty text is 0, and bytes are counted as UTF-8", () => {
    expect(estimateTokens("")).toBe(0)
    expect(byteLength("aé你😀")).toBe(1 + 2 + 3 + 4)
  })
})
