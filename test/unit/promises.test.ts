import { existsSync, readdirSync, readFileSync } from "node:fs"
import { expect, test } from "vitest"
import { LONGEST } from "../lengths.ts"

/** The table of promises in docs/reliability.md against the tests that it names. */

const ROWS = readFileSync("docs/reliability.md", "utf8")
  .split("\n")
  .filter((line) => /^\| \d+[a-z]? +\|/.test(line))
  .map((line) => line.split("|").map((cell) => cell.trim()))
  .map(([, number = "", promise = "", , tests = ""]) => ({ number, promise, tests: namesIn(tests) }))

/** A name may end with an asterisk, and means several files then. */
function namesIn(cell: string): readonly string[] {
  return [...cell.matchAll(/`((?:unit|property|place|simulation|e2e|promises)\/[\w*/-]+)`/g)].flatMap(
    ([, name = ""]) => {
      if (!name.endsWith("*")) return [`test/${name}.test.ts`]
      const [folder = "", start = ""] = name.slice(0, -1).split("/")
      const files = readdirSync(`test/${folder}`).filter((file) => file.startsWith(start) && file.endsWith(".test.ts"))
      return files.map((file) => `test/${folder}/${file}`)
    },
  )
}

test("docs/reliability.md names for every promise a test of npm test on the real OpenCode", () => {
  expect(ROWS.length).toBeGreaterThan(10)
  const bare = ROWS.filter(({ tests }) => !tests.some((file) => file.startsWith("test/promises/")))
  expect(bare.map(({ number, promise }) => `${number} ${promise}`)).toEqual([])
})

test("docs/reliability.md names only test files that exist", () => {
  const named = [...new Set([...ROWS.flatMap(({ tests }) => tests), ...LONGEST])]
  expect(named.filter((file) => !existsSync(file))).toEqual([])
})
