import { expect, test } from "vitest"
import { briefingOf } from "../../src/tools/index.ts"

test("a fresh agent gets the default briefing, the user's own text or none", () => {
  expect(briefingOf({ childPrompt: true })).toMatch(/^You work in the background .* \(path:line\)\.$/)
  const inJSON = briefingOf({ childPrompt: true }, true)
  expect(inJSON).toMatch(
    / So decide for yourself\. Unless .* in them too\. Your last message is your whole report; .* of yours\. Answer in .* asked\.$/,
  )
  expect(briefingOf({ childPrompt: true })).toContain(" Answer in the language in which you are asked. ")
  expect(inJSON).not.toMatch(/assumed|line numbers/)
  expect(briefingOf({ childPrompt: "Mind the gap." })).toBe("Mind the gap.")
  expect(briefingOf({ childPrompt: false })).toBeUndefined()
})
