import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { toolsFor } from "../../src/tools/index.ts"
import { Rig } from "../support/rig.ts"
import { Bench } from "../support/worktree-bench.ts"

/** The calls that docs/results.md shows to be copied, carried out as they stand. */

const PAGE = readFileSync(new URL("../../docs/results.md", import.meta.url), "utf8")

/** What stands between the brackets of each call, read as JavaScript reads it. */
const CALLS = [...PAGE.matchAll(/^superagents_task\((description:[\s\S]*?)\)$/gm)].map(
  ([, args]) => new Function(`return ({${args}})`)() as Record<string, unknown>,
)

let bench: Bench
let rig: Rig
beforeEach(() => {
  bench = new Bench()
  bench.user
    .write("package.json", '{"scripts": {"test": "grep -q right parser.txt"}}')
    .write("parser.txt", "wrong\n")
    .write("test/parser.test.ts", "// the test\n")
    .write("files.txt", "src/a.ts\n\nsrc/b.ts\n")
    .commit()
  rig = new Rig({ worktrees: async () => bench.places })
  const { opencode } = rig
  opencode.modelList = ["anthropic/claude-haiku-4-5", "anthropic/claude-opus-4-5"]
  opencode.agentList = [...opencode.agentList, { name: "explore", description: "", mode: "all" }]
  opencode.folderOf = (sessionID) => opencode.folders.get(sessionID) ?? bench.user.top
})
afterEach(() => {
  expect(rig.errors()).toEqual([])
  bench.close()
})

/** Has the tool called with the example of this number; the agents answer so. */
async function tried(nth: number, answer: (prompt: string, sessionID: string) => string) {
  rig.script(({ sessionID, prompt }) => (sessionID === rig.parent ? undefined : { text: answer(prompt, sessionID) }))
  const tool = toolsFor(rig.manager, rig.options).superagents_task
  const launched = await tool?.execute(CALLS[nth], rig.caller)
  const id = /bg_\w+/.exec(launched?.output ?? "")?.[0] ?? ""
  const task = await rig.endedBeside(id)
  return { task, told: rig.notices().at(-1)?.hidden ?? "", output: await rig.output(id) }
}

test("the page docs/results.md contains exactly three example calls", () => {
  expect(CALLS).toHaveLength(3)
})

test("the schema example returns only the JSON value", async () => {
  const { task, output } = await tried(0, () => 'It is good.\n```json\n{"verdict": "pass", "files": ["a.ts"]}\n```')
  expect(task).toMatchObject({ status: "completed", outcome: { value: { valid: true, asked: 1 } } })
  expect(output.answer).toBe('{"verdict": "pass", "files": ["a.ts"]}')
})

test("the ladder example is won by the second rung, and only its work is merged", async () => {
  const asked: string[] = []
  const { task, told } = await tried(1, (prompt, sessionID) => {
    asked.push(prompt)
    writeFileSync(join(rig.opencode.folderOf(sessionID), "parser.txt"), asked.length === 1 ? "nearly\n" : "right\n")
    return "done"
  })
  expect(task).toMatchObject({ status: "completed", outcome: { work: { merge: { kind: "merged" } } } })
  expect(told).toContain("Tries: 2 of 2, won by anthropic/claude-opus-4-5; $")
  expect(asked[1]).toContain("Try 1 (anthropic/claude-haiku-4-5): Its check `npm test` did not pass")
  expect(readFileSync(join(bench.user.top, "parser.txt"), "utf8")).toBe("right\n")
})

test("the map example produces one row for each line of the file", async () => {
  const { task, told } = await tried(2, (prompt) => {
    const file = /^Read (\S+)\. /.exec(prompt)?.[1]
    return `{"grade": ${file === "src/a.ts" ? 2 : 4}, "why": "${file}"}`
  })
  expect(task.status).toBe("completed")
  expect(told).toContain("Items: 2 valid, 0 failed, 0 running, 0 not begun, of 2.")
  expect(told).toContain('{"index":1,"item":"src/b.ts","state":"valid","value":{"grade":4,"why":"src/b.ts"}}')
})
