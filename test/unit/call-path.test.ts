import { readFileSync } from "node:fs"
import { expect, test } from "vitest"
import { callPath } from "../../scripts/call-path.ts"

test("docs/architecture.md lists the functions from a call to its notification, which are at most 24", async () => {
  const found = await callPath()
  expect(found.length).toBeLessThanOrEqual(24)
  const [, listed = ""] = /<!-- call path:begin -->\n([\s\S]*)<!-- call path:end -->/.exec(
    readFileSync("docs/architecture.md", "utf8"),
  ) ?? ["", ""]
  expect([...listed.matchAll(/`([\w.#]+)`/g)].map(([, name]) => name)).toEqual(found.map(({ name }) => name))
})
