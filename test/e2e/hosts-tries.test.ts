import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { beforeEach, describe, expect, test } from "vitest"
import { eventually } from "../support/drive.ts"
import {
  far,
  going,
  hostsScene,
  LONG,
  launch,
  list,
  merge,
  model,
  opencode,
  output,
  session,
  toastsOfHost,
  told,
  tool,
  user,
} from "../support/hosts-scene.ts"
import { startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"
import { bash } from "../support/shell-agent.ts"

/** Several tries of one task on another machine, played by a second home: the real OpenCode on both sides. */

hostsScene(() => startPlugged(model, { hosts: { big: { command: far.command, unattended: 60_000 } } }))
beforeEach(() => {
  user.write("test.sh", "grep -q right sum.txt\n").write("sum.txt", "wrong\n").commit("with its check")
  before = refs()
})

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

/** What is kept here of tasks, and what is on its way. */
const refs = () => {
  const lines = user.git("for-each-ref", "--format=%(refname)").trim().split("\n")
  return lines.filter((ref) => /^refs\/superagents(-incoming|-outgoing)?\//.test(ref))
}
let before: readonly string[]

/** No folder and no branch of a task is there, and none is left here. */
const nothingLeft = async (id: string) => {
  await eventually(() => far.folders().length === 0, LONG)
  const branches = () => far.stores().map((store) => new Repository(store, false).git("for-each-ref", "refs/work"))
  await eventually(() => branches().every((found) => found === ""), LONG)
  expect(user.worktrees()).toBe(1)
  await eventually(() => refs().every((ref) => before.includes(ref) || ref.endsWith(`/${id}`)), LONG)
  expect(refs()).toContain(`refs/superagents/${id}`)
}

test("the first of three tries to pass on a host is fetched byte for byte, leaving nothing there", async () => {
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, at) => at))
  const failed = going("FIRST-FAILED")
  const asked = agents(
    "THREE",
    "echo nearly > sum.txt; echo lost > loser.txt",
    `${failed.wait}; echo right > sum.txt; printf '${bytes.toString("base64")}' | base64 -d > all.bin`,
    "echo half > loser.txt; sleep 600",
  )
  const untouched = user.state()
  const { id } = await launch("THREE", { tries: 3, check: "sh test.sh" })
  await eventually(() => asked.length === 3, LONG)
  await eventually(async () => (await list()).includes("1 did not pass"), LONG)
  failed.go()
  const [{ hidden } = { hidden: "" }, ...more] = await told()
  expect(hidden).toContain("done: try 2")
  expect(hidden).toMatch(/Tries: 3 of 3, won by /)
  expect(more).toEqual([])
  expect(user.state()).toEqual(untouched)
  await nothingLeft(id)
  const shown = await output(id)
  expect(shown.match(/check did not pass \(exit code 1\)/g)).toHaveLength(1)
  expect(shown.match(/: stopped, /g)).toHaveLength(1)
  expect(shown).toContain("+right")
  expect(await merge(id)).toContain("Merged into your files, uncommitted.")
  expect(user.state()["all.bin"]).toBe(`644 ${bytes.toString("base64")}`)
  expect(existsSync(join(opencode.directory, "loser.txt"))).toBe(false)
  // What they changed is kept here as that of tries always is.
  const aside = user.git("for-each-ref", "--format=%(refname)", `refs/superagents-cleared/${id}`)
  expect(aside.trim().split("\n")).toHaveLength(2)
}, 180_000)

test("a winner whose connection breaks before its work is fetched remains the winner, and is fetched later", async () => {
  const asked = agents("CUT", "echo right > sum.txt; head -c 60000000 /dev/urandom > large.bin", "sleep 600")
  const { id } = await launch("CUT", { tries: 2, check: "sh test.sh" })
  // Its check has passed, and what it changed is on its way.
  const kept = () => far.stores().flatMap((store) => names(join(store, "refs/work")))
  await eventually(() => kept().length > 0, LONG)
  far.cut()
  const [{ hidden } = { hidden: "" }] = await told()
  expect(hidden).toContain("done: try 1")
  expect(await output(id)).toContain("What it changed is still on big, and is fetched when big answers; ")
  expect(far.folders()).toHaveLength(2)
  const [winner = ""] = kept()
  const [there = ""] = far.stores().map((store) => join(store, "../work", winner, "large.bin"))
  const made = readFileSync(there).toString("base64")
  far.set("open")
  await nothingLeft(id)
  await eventually(async () => !(await output(id)).includes("still on big"), LONG)
  expect(await output(id)).toContain("large.bin")
  expect(await merge(id)).toContain("Merged into your files, uncommitted.")
  expect(readFileSync(join(opencode.directory, "large.bin")).toString("base64") === made).toBe(true)
  expect(asked).toHaveLength(2)
  expect(await told()).toHaveLength(1)
}, 180_000)

test("a try on a host that changes a guarded file fails even if its check passes", async () => {
  const failed = going("GUARD-FAILED")
  agents("GUARD", "echo right > sum.txt; echo true > test.sh", `${failed.wait}; echo right > sum.txt`)
  const { id } = await launch("GUARD", { tries: 2, check: "sh test.sh", guard: ["test.*"] })
  await eventually(async () => (await list()).includes("1 did not pass"), LONG)
  failed.go()
  const [{ hidden } = { hidden: "" }, ...more] = await told()
  expect(hidden).toContain("done: try 2")
  expect(more).toEqual([])
  await nothingLeft(id)
  expect(await output(id)).toContain("it changed what it may not: test.sh")
  expect(await merge(id)).toContain("Merged into your files, uncommitted.")
  expect([user.read("test.sh"), user.read("sum.txt")]).toEqual(["grep -q right sum.txt\n", "right\n"])
}, 180_000)

describe("tries stopped without contact", () => {
  /** Two that work there, cut off: `works` tells whether any does. */
  const cutOff = async (prompt: string) => {
    const pid = (nth: number) => join(far.root, `${prompt}-${nth}.pid`)
    const command = (nth: number) => `echo ${nth} > made-${nth}.txt; echo $$ > '${pid(nth)}'; sleep 600`
    agents(prompt, command(1), command(2))
    const { id } = await launch(prompt, { tries: 2, check: "sh test.sh" })
    await eventually(() => existsSync(pid(1)) && existsSync(pid(2)), LONG)
    const pids = [1, 2].map((nth) => readFileSync(pid(nth), "utf8").trim())
    const works = () => pids.some((each) => existsSync(`/proc/${each}`))
    const toasts = toastsOfHost()
    far.cut()
    // The row of several tries counts them: that their host is out of reach stands in none of them.
    await eventually(() => toasts().includes("big: no contact"), LONG)
    expect([works(), far.folders().length]).toEqual([true, 2])
    return { id, works }
  }

  test("tries that are cancelled without contact are each stopped later, and their changes are archived here", async () => {
    const { id, works } = await cutOff("CANCELLED")
    expect((await tool("superagents_cancel", { task_id: id })).output).toContain(id)
    expect(await output(id)).toContain("cancelled")
    far.set("open")
    await eventually(() => far.folders().length === 0 && !works(), LONG)
    await eventually(() => aside(id).length === 2, LONG)
    const files = aside(id).flatMap((ref) => user.git("ls-tree", "--name-only", ref).trim().split("\n"))
    expect(files.filter((file) => file.startsWith("made-")).toSorted()).toEqual(["made-1.txt", "made-2.txt"])
    expect(user.worktrees()).toBe(1)
    expect(await told()).toHaveLength(1)
  }, 180_000)

  test("tries cleared without contact are stopped and removed when the host answers, even by the next OpenCode", async () => {
    const { works } = await cutOff("CLEARED")
    expect((await tool("superagents_clear", {})).error).toBeUndefined()
    await opencode.kill("SIGKILL")
    await opencode.restart()
    await eventually(async () => !(await list()).includes("CLEARED"), LONG)
    far.set("open")
    await eventually(() => far.folders().length === 0 && !works(), LONG)
    expect(user.worktrees()).toBe(1)
    expect(await list()).not.toContain("CLEARED")
  }, 240_000)
})

const aside = (id: string): readonly string[] =>
  user.git("for-each-ref", "--format=%(refname)", `refs/superagents-cleared/${id}`).trim().split("\n").filter(Boolean)

const names = (folder: string): readonly string[] => (existsSync(folder) ? readdirSync(folder) : [])
