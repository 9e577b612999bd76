import { existsSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { callsOf } from "../support/calls.ts"
import { eventually, openSession } from "../support/drive.ts"
import { type Far, startFar } from "../support/far.ts"
import type { Host } from "../support/host.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"

/** Several tries of one task on another machine, played by a second home: the real OpenCode on both sides. */

let model: ScriptedModel
let far: Far
let host: Host
let user: Repository
let session: string

const LONG = { timeout: 90_000 }

beforeAll(async () => {
  model = await startModel()
  far = await startFar(model)
  host = await startPlugged(model, { hosts: { big: { command: far.command, unattended: 60_000 } } })
  user = new Repository(host.directory)
}, 90_000)
afterAll(async () => {
  await host?.stop()
  await far?.stop()
  await model?.close()
})
beforeEach(async () => {
  model.reset()
  far.set("open")
  user.write("test.sh", "grep -q right sum.txt\n").write("sum.txt", "wrong\n").commit("before the test")
  session = await openSession(host)
})

const { launch, output, list, merge, told } = callsOf(() => ({ host, model, session }), "big")

const bash = (command: string) => ({ tools: [{ name: "bash", args: { command, description: "works" } }] })

/** Each agent in the order in which they ask: the command that it runs; then it is done. */
const agents = (prompt: string, ...commands: string[]) => {
  const asked: string[] = []
  model.use(({ sessionID, firstUser, sinceUser }) => {
    if (sessionID === undefined || sessionID === session || !firstUser.includes(prompt)) return undefined
    if (!asked.includes(sessionID)) asked.push(sessionID)
    const at = asked.indexOf(sessionID)
    const command = sinceUser.some(({ role }) => role === "tool") ? undefined : commands[at]
    return command === undefined ? { text: `done: try ${at + 1}` } : bash(command)
  })
  return asked
}

/** What a command there waits for, until the test lets it go. */
const going = (name: string) => {
  const file = join(far.root, `${name}.go`)
  return { wait: `until [ -e '${file}' ]; do sleep 0.1; done`, go: () => writeFileSync(file, "") }
}

/** No folder and no branch of a task is there, and none is left here. */
const nothingLeft = async (id: string) => {
  await eventually(() => far.folders().length === 0, LONG)
  for (const store of far.stores())
    expect(new Repository(store, false).git("for-each-ref", "--format=%(refname)", "refs/work")).toBe("")
  expect(user.worktrees()).toBe(1)
  const refs = user.git("for-each-ref", "--format=%(refname)").split("\n")
  expect(refs.filter((ref) => /incoming|outgoing/.test(ref))).toEqual([])
  expect(refs.filter((ref) => ref.startsWith("refs/superagents/"))).toEqual([`refs/superagents/${id}`])
}

test("of three tries there the first that passes wins, comes home byte for byte, and nothing stays there", async () => {
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, at) => at))
  const failed = going("FIRST-FAILED")
  const asked = agents(
    "THREE",
    "echo nearly > sum.txt; echo lost > loser.txt",
    `${failed.wait}; echo right > sum.txt; printf '${bytes.toString("base64")}' | base64 -d > all.bin`,
    "echo half > loser.txt; sleep 600",
  )
  const before = user.state()
  const { id } = await launch("THREE", { tries: 3, check: "sh test.sh" })
  await eventually(() => asked.length === 3, LONG)
  await eventually(async () => (await list()).includes("1 failed"), LONG)
  failed.go()
  const [{ hidden } = { hidden: "" }, ...more] = await told()
  expect(hidden).toContain("done: try 2")
  expect(hidden).toMatch(/Tries: 3 of 3, won by /)
  expect(more).toEqual([])
  expect(user.state()).toEqual(before)
  await nothingLeft(id)
  const shown = await output(id)
  expect(shown.match(/check did not pass \(exit code 1\)/g)).toHaveLength(1)
  expect(shown.match(/: stopped, /g)).toHaveLength(1)
  expect(shown).toContain("+right")
  expect(await merge(id)).toContain("Merged into your files, uncommitted.")
  expect(user.state()["all.bin"]).toBe(`644 ${bytes.toString("base64")}`)
  expect(existsSync(join(host.directory, "loser.txt"))).toBe(false)
  // What they changed is kept here as that of tries always is.
  const aside = user.git("for-each-ref", "--format=%(refname)", `refs/superagents-cleared/${id}`)
  expect(aside.trim().split("\n")).toHaveLength(2)
}, 180_000)
