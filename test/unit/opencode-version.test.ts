import { expect, test } from "vitest"
import { setup, versionNote } from "../../src/opencode/compatibility.ts"

test.each(["1.18.28", "1.18.33", "1.18.34", "local", "unknown"])(
  "OpenCode %s is a tested version and gets no version note",
  (version) => {
    expect(versionNote(version)).toBeUndefined()
  },
)

test.each(["1.18.27", "1.18.35", "1.19.0", "1.19.3-beta.1", "2.0.0"])(
  "OpenCode %s is an untested version, and the version note says so",
  (version) => {
    expect(versionNote(version)).toBe(`superagents was tried on OpenCode 1.18.28 to 1.18.34; this is ${version}.`)
  },
)

test("the version note warns that an OpenCode before 1.18.15 may not wake a busy agent", () => {
  expect(versionNote("1.18.14")).toMatch(/this is 1\.18\.14\. Before 1\.18\.15 a notification may not wake an agent/)
  expect(versionNote("1.17.99")).toContain("may not wake")
  expect(versionNote("1.18.15")).not.toContain("may not wake")
})

test("OpenCode 2 is refused with advice, and OpenCode 1.x is accepted without a message", () => {
  expect(() => setup({ app: { version: "2.0.7" } })).toThrow(
    "superagents runs on OpenCode 1.18 and 1.19. On OpenCode 2, use its own subagents: they run in the background.",
  )
  expect(() => setup({ app: { version: "10.0.0" } })).toThrow()
  for (const context of [undefined, {}, { app: {} }, { app: { version: "1.19.0" } }, { app: { version: 2 } }])
    expect(() => setup(context)).not.toThrow()
})
