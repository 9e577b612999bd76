import { createHash } from "node:crypto"
import { readFileSync } from "node:fs"
import { countTokens } from "gpt-tokenizer/encoding/o200k_base"
import { describe, expect, test } from "vitest"
import { byteLength, guessText } from "../../../src/features/forks/tokens.ts"

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

const ratio = (content: string) => guessText(content) / exact(content)

const letters = (alphabet: string) => Array.from(bytes(20_000), (byte) => alphabet[byte % alphabet.length]).join("")

describe("the token estimate", () => {
  test.each([
    ["TypeScript", file("src/runtime/task-manager.ts")],
    ["a declaration file", file("node_modules/typescript/lib/lib.dom.d.ts")],
    ["a bundled program", file("node_modules/typescript/lib/typescript.js")],
    ["a README", file("node_modules/gpt-tokenizer/README.md")],
    ["search results", file("src/runtime/task-manager.ts").replace(/^/gm, "src/runtime/task-manager.ts:12:")],
    ["prose", "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor. ".repeat(50)],
    ["German", "Größere Dateien müssen erneut gelesen werden, während die Aufgabe läuft.".repeat(50)],
    ["Chinese", "我们需要在后台运行这个任务，然后通知用户结果。".repeat(50)],
    ["Russian", "Задача выполняется в фоновом режиме, и пользователь получает уведомление.".repeat(50)],
  ])("the token estimate is at least the o200k count and at most 2.7 times it for %s", (_, content) => {
    expect(ratio(content)).toBeGreaterThanOrEqual(1)
    expect(ratio(content)).toBeLessThan(2.7)
  })

  test.each([
    ["JSON", file("package-lock.json")],
    ["base64", bytes(30_000).toString("base64")],
    ["hexadecimal", bytes(30_000).toString("hex")],
    ["small letters and digits", letters("abcdefghijklmnopqrstuvwxyz0123456789")],
    ["emoji", "😀🎉👍🏽👨‍👩‍👧‍👦🚀✅❌".repeat(50)],
  ])("the token estimate is at least 0.45 of the o200k count for %s", (_, content) => {
    expect(ratio(content)).toBeGreaterThan(0.45)
    expect(ratio(content)).toBeLessThan(1)
  })

  test("the token estimate of an empty text is 0, and bytes are counted as UTF-8", () => {
    expect(guessText("")).toBe(0)
    expect(byteLength("aé你😀")).toBe(1 + 2 + 3 + 4)
  })
})
