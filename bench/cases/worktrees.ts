import { execFileSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Worktrees } from "../../src/place/worktree/worktrees.ts"
import { type Case, collector } from "../support/case.ts"

/** How many of the files the user has changed, and how many the task. */
const CHANGED_FILES = 20
const FILES_IN_FOLDER = 100

/** Making a worktree ready and bringing its work home, in a large repository, beside what git alone takes. */
export const worktreesCase: Case = async ({ runs, short, progress }) => {
  const files = short ? 500 : 20_000
  const bytes = short ? 1000 : 15_000
  const found = collector()
  const folder = mkdtempSync(join(tmpdir(), "superagents-bench-"))
  try {
    progress(`worktrees: a repository of ${files} files and ${Math.round((files * bytes) / 1e6)} MB`)
    const top = repositoryOf(join(folder, "project"), files, bytes)
    for (let run = 1; run <= runs; run++) {
      progress(`worktrees: run ${run} of ${runs}`)
      await measure(folder, top, run, found)
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  const row = (figure: string, against: string) => ({
    case: "worktrees",
    figure,
    unit: "ms" as const,
    against,
    ...found.of(figure),
  })
  return [
    row(READY, "git worktree add"),
    row(AWAY, "git worktree remove --force"),
    row(HOME, "git stash, and git stash apply"),
  ]
}

const READY = "worktree ready, uncommitted work included"
const AWAY = "state kept, worktree removed"
const HOME = "merged into changed files"

async function measure(folder: string, top: string, run: number, found: ReturnType<typeof collector>) {
  const taskID = `bg_${String(run).padStart(8, "0")}`
  const keeper = () => ({ instance: "bench" })
  const self = { place: "here", pid: process.pid, started: "" }
  const ports = {
    settings: { setup: "", copy: [], dependencies: "auto" as const },
    keeper,
    isOthers: () => false,
    processes: { self, isAlive: () => true },
  }
  const worktrees = new Worktrees({ root: join(folder, "worktrees"), ...ports })
  change(top, 0, `the user's ${run}`)
  let directory = ""
  const native = join(folder, "native")
  found.add(READY, "native", await timed(() => git(top, "worktree", "add", "--detach", native)))
  const ready = async () => {
    await worktrees.capture(taskID, top)
    directory = (await worktrees.enter({ taskID, folder: top, timeLimit: 0 })).directory
  }
  found.add(READY, "plugin", await timed(ready))
  change(directory, CHANGED_FILES, `the task's ${run}`)
  found.add(AWAY, "native", await timed(() => git(top, "worktree", "remove", "--force", native)))
  found.add(AWAY, "plugin", await timed(() => worktrees.putAway(taskID, top)))
  const stash = () => {
    git(top, "stash", "--include-untracked")
    git(top, "stash", "pop")
  }
  found.add(HOME, "native", await timed(stash))
  found.add(HOME, "plugin", await timed(() => worktrees.merge(taskID, top)))
  git(top, "reset", "--quiet", "--hard")
}

async function timed(work: () => unknown): Promise<number> {
  const begin = performance.now()
  await work()
  return performance.now() - begin
}

const nameOf = (index: number): string => join(`folder-${Math.floor(index / FILES_IN_FOLDER)}`, `file-${index}.txt`)

function change(top: string, from: number, text: string): void {
  for (let index = from; index < from + CHANGED_FILES; index++) writeFileSync(join(top, nameOf(index)), `${text}\n`)
}

function repositoryOf(top: string, files: number, bytes: number): string {
  mkdirSync(top, { recursive: true })
  git(top, "init", "--quiet")
  // Else git packs the 20,000 objects in the background, beside what is measured and beyond its end.
  git(top, "config", "gc.auto", "0")
  for (let index = 0; index < files; index++) {
    if (index % FILES_IN_FOLDER === 0) mkdirSync(join(top, `folder-${index / FILES_IN_FOLDER}`))
    writeFileSync(join(top, nameOf(index)), `${randomBytes(bytes / 2).toString("hex")}\n`)
  }
  git(top, "add", "--all")
  git(top, "commit", "--quiet", "--message", "start")
  return top
}

function git(cwd: string, ...args: string[]): void {
  const identity = {
    GIT_AUTHOR_NAME: "b",
    GIT_AUTHOR_EMAIL: "b@b",
    GIT_COMMITTER_NAME: "b",
    GIT_COMMITTER_EMAIL: "b@b",
  }
  const env = { ...process.env, GIT_CONFIG_GLOBAL: "/dev/null", ...identity }
  execFileSync("git", args, { cwd, env, stdio: "ignore" })
}
