import { readFileSync } from "node:fs"
import { expect, test } from "vitest"
import { NOTICES_FILE, notices } from "../../scripts/notices.ts"

test("NOTICES.md has the licence of each package whose code is shipped (npm run notices)", () => {
  const text = readFileSync(NOTICES_FILE, "utf8")
  expect(text).toBe(notices())
  expect(text).toMatch(/## highlight\.js\n[\s\S]*BSD 3-Clause License/)
  const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"))
  expect(manifest.files).toContain("NOTICES.md")
})
