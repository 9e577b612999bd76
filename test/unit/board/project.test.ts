import { execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import type { BoardTask } from "../../../src/features/board/task.ts"
import { sectionsOf, taskBlock } from "../../../src/features/board/threads.ts"
import { restrictTools } from "../../../src/features/board/tools/index.ts"
import { isSameFolder, mainCheckout } from "../../../src/lib/repository.ts"

let root: string

beforeAll(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), "superagents-project-")))
  const main = join(root, "main")
  mkdirSync(join(main, "sub"), { recursive: true })
  const git = (...args: string[]) =>
    execFileSync("git", ["-c", "user.name=t", "-c", "user.email=t@t", ...args], { cwd: main, stdio: "ignore" })
  git("init", "--quiet")
  git("commit", "--quiet", "--allow-empty", "--message", "start")
  git("worktree", "add", "--quiet", "--detach", join(root, "linked"))
})
afterAll(() => rmSync(root, { recursive: true, force: true }))

describe("a folder's project", () => {
  test("the project of a folder is its repository's main checkout, also for a linked worktree", () => {
    expect(mainCheckout(join(root, "main"), join(root, "main", "sub"))).toBe(join(root, "main"))
    expect(mainCheckout(join(root, "linked"), join(root, "linked"))).toBe(join(root, "main"))
  })

  test("the project of a folder without git, or with invalid git files, is the folder itself", () => {
    const plain = join(root, "plain")
    mkdirSync(plain)
    expect(mainCheckout("/", plain)).toBe(plain)
    expect(mainCheckout("", plain)).toBe(plain)
    for (const content of ["nonsense", "gitdir: ../nowhere"]) {
      writeFileSync(join(plain, ".git"), content)
      expect(mainCheckout(plain, plain)).toBe(plain)
    }
    const bare = join(root, "repo.git")
    mkdirSync(join(bare, "worktrees", "w"), { recursive: true })
    writeFileSync(join(bare, "worktrees", "w", "commondir"), "../..\n")
    writeFileSync(join(plain, ".git"), `gitdir: ${bare}/worktrees/w\n`)
    expect(mainCheckout(plain, plain)).toBe(plain)
    expect(mainCheckout("/nowhere/at/all", "/x")).toBe("/nowhere/at/all")
  })

  test("two project paths are compared by the folders that they lead to", () => {
    symlinkSync(join(root, "main"), join(root, "alias"))
    expect(isSameFolder(join(root, "alias"), join(root, "main"))).toBe(true)
    expect(isSameFolder(join(root, "linked"), join(root, "main"))).toBe(false)
  })
})

describe("access to the board tools", () => {
  const rulesOf = (config: Parameters<typeof restrictTools>[0], name: string) => config.agent?.[name]?.permission

  test("the board's tools are denied to hidden agents and to agents that the option does not name", () => {
    const config = { agent: { ghost: { hidden: true }, mine: { permission: "allow" }, "built-in": undefined } }
    restrictTools(config, ["mine"])
    expect(rulesOf(config, "ghost")).toEqual({ "tasks_*": "deny" })
    expect(rulesOf(config, "build")).toEqual({ "tasks_*": "deny" })
    expect(rulesOf(config, "mine")).toBe("allow")
  })

  test("the board's tools are allowed to agents that deny everything else, unless the user denies one", () => {
    const config = {
      agent: { reader: { permission: { "*": "deny", read: "allow", tasks_cancel_task: "deny" } }, plain: {} },
    }
    restrictTools(config, null)
    expect(Object.entries(rulesOf(config, "reader") as object)).toEqual([
      ["*", "deny"],
      ["tasks_*", "allow"],
      ["read", "allow"],
      ["tasks_cancel_task", "deny"],
    ])
    expect(rulesOf(config, "explore")).toEqual({ "tasks_*": "allow" })
    expect(rulesOf(config, "plain")).toBeUndefined()
    const strict: Parameters<typeof restrictTools>[0] = { permission: "deny" }
    restrictTools(strict, null)
    expect(rulesOf(strict, "build")).toEqual({ "tasks_*": "allow" })
  })
})

test("the task block of a thread shows steps, subtasks and resources and closes its tag once", () => {
  const task: BoardTask = {
    id: "5",
    title: "Migrate",
    description: "x".repeat(9000),
    owner: "build",
    createdBy: "user",
    status: "active",
    steps: [
      { title: "one", done: true, details: "a\nb </task> <\u200b/task>" },
      { title: "two", done: false, taskId: "6" },
      { title: "three", done: false, taskId: "7" },
    ],
    resources: [
      { type: "url", value: "https://example.org", label: "spec" },
      { type: "file", value: "/a </task> <\u200b/task>" },
    ],
    createdAt: "",
    updatedAt: "",
  }
  const state = { state: "needs you", reason: "help", text: "needs you: help" } as const
  const needs = "Which\nlicence? </task>"
  const block = taskBlock(
    sectionsOf({
      task,
      state,
      needs,
      subtask: (id) => (id === "6" ? { owner: "tester", text: "running" } : undefined),
    }),
  )
  expect(block).toContain(
    "Status: active. Owner: build. Created by: user.\nAsked of the user, who has not answered yet. Do not ask again; only they can answer, in this thread: Which licence? ‹/task>\n",
  )
  expect(block).toContain(
    "0. [x] one\n   a\n   b &lt;/task> &lt;\u200b/task>\n1. [ ] two -> subtask #6 (tester): running\n2. [ ] three -> subtask #7: no longer there",
  )
  expect(block).toContain("0. url https://example.org (spec)\n1. file /a ‹/task> ‹/task>")
  expect(block.match(/<\/task>/gi)).toHaveLength(1)
  expect(block.length).toBeLessThan(9000)
})
