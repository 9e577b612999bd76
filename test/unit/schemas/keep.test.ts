import { execFileSync } from "node:child_process"
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { ResultFolder } from "../../../src/runtime/answers.ts"
import { SIGNER } from "../../support/records.ts"
import { Rig } from "../../support/rig.ts"

/** Where results lie: a folder of the project, whatever links a repository brings. */

let base: string
let project: string
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), "superagents-keep-"))
  project = join(base, "project")
  mkdirSync(join(project, ".opencode"), { recursive: true })
})
afterEach(() => rmSync(base, { recursive: true, force: true }))

test("a task's value is stored whole in a file named after the task, and git ignores it", async () => {
  const file = await new ResultFolder(() => project, SIGNER).keep("bg_a", "[1]")
  expect(file).toBe(join(project, ".opencode/superagents/bg_a.json"))
  expect(readFileSync(file, "utf8")).toBe("[1]")
  expect(await new ResultFolder(() => project, SIGNER).keep("bg_a", "[2]")).toBe(file)
  expect(readFileSync(file, "utf8")).toBe("[2]")
  expect(readdirSync(join(project, ".opencode/superagents")).sort()).toEqual([".gitignore", "bg_a.json"])
  expect(readFileSync(join(project, ".opencode/superagents/.gitignore"), "utf8")).toBe("*\n")
})

test("a results folder that is a symbolic link is refused, and nothing is written through it", async () => {
  mkdirSync(join(base, "home"))
  writeFileSync(join(base, "home", ".gitignore"), "mine\n")
  symlinkSync(join(base, "home"), join(project, ".opencode", "superagents"))
  const problem = /^Results lie in .*superagents, and that is a link to .*home\. Make it a folder of the project\.$/
  await expect(new ResultFolder(() => project, SIGNER).keep("bg_a", "[1]")).rejects.toThrow(problem)
  const folder = new ResultFolder(() => project, SIGNER)
  await expect(folder.write(folder.rowsOf("bg_a"), "")).rejects.toThrow(problem)
  expect(readdirSync(join(base, "home"))).toEqual([".gitignore"])
  expect(readFileSync(join(base, "home", ".gitignore"), "utf8")).toBe("mine\n")
})

test("a .gitignore of the results folder that is a symbolic link is not written through", async () => {
  writeFileSync(join(base, "mine"), "mine\n")
  mkdirSync(join(project, ".opencode", "superagents"))
  symlinkSync(join(base, "mine"), join(project, ".opencode", "superagents", ".gitignore"))
  await new ResultFolder(() => project, SIGNER).keep("bg_a", "[1]")
  expect(readFileSync(join(base, "mine"), "utf8")).toBe("mine\n")
})

test.each(["link", "pipe"])(
  "a %s in place of a value file or row file is neither written to nor read",
  async (what) => {
    const outside = join(base, "mine")
    writeFileSync(outside, "mine\n")
    const put = (file: string) => {
      rmSync(file, { force: true })
      if (what === "link") symlinkSync(outside, file)
      else execFileSync("mkfifo", [file])
    }
    const folder = new ResultFolder(() => project, SIGNER)
    const rows = folder.rowsOf("bg_a")
    const value = folder.valueOf("bg_a")
    await folder.write(rows, "{}\n")
    put(rows)
    await expect(folder.append(rows, "{}\n")).rejects.toThrow()
    expect(await folder.read(rows)).toBe("")
    for (const each of [`${rows}.new`, `${value}.new`, value]) put(each)
    await folder.write(rows, "{}\n")
    await folder.keep("bg_a", "[1]")
    expect(await folder.read(rows)).toBe("{}\n")
    expect([readFileSync(value, "utf8"), readFileSync(outside, "utf8")]).toEqual(["[1]", "mine\n"])
    for (const each of [rows, value]) {
      expect(lstatSync(each).isFile()).toBe(true)
      expect(lstatSync(each).mode & 0o777).toBe(0o600)
    }
  },
)

test("a map whose rows cannot be stored fails with that reason and asks no model", async () => {
  const rig = new Rig()
  mkdirSync(join(rig.project, ".opencode"), { recursive: true })
  symlinkSync(base, join(rig.project, ".opencode", "superagents"))
  try {
    const { id } = await rig.launch({ prompt: "DO {{item}}", each: ["a", "b"] })
    const task = await rig.endedBeside(id)
    expect(task.outcome?.reason?.text).toMatch(/^Results lie in .* Make it a folder of the project\.$/)
    expect(rig.notices()[0]?.hidden).toContain("Results lie in")
    expect(existsSync(join(base, `${id}.jsonl`))).toBe(false)
    expect([...rig.opencode.database.sessions.values()]).toHaveLength(2)
  } finally {
    rmSync(rig.project, { recursive: true, force: true })
  }
})

test("a value is still valid when its file cannot be written", async () => {
  const project = join(base, "other")
  const rig = Object.assign(new Rig({ results: new ResultFolder(() => project, SIGNER) }), { project })
  mkdirSync(join(rig.project, ".opencode"), { recursive: true })
  symlinkSync(base, join(rig.project, ".opencode", "superagents"))
  try {
    const value = JSON.stringify("short")
    rig.onPrompt("FIND", { text: value })
    const { id } = await rig.launch({ schema: { type: "string" } })
    const task = await rig.endedBeside(id)
    expect(task).toMatchObject({ status: "completed", outcome: { value: { valid: true, asked: 1 } } })
    expect(task.outcome?.value).not.toHaveProperty("file")
    expect((await rig.output(id)).answer).toBe(value)
  } finally {
    rmSync(rig.project, { recursive: true, force: true })
  }
})
