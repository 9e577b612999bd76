import { execFileSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Worktrees } from "../../src/features/worktrees/worktrees.ts"
import { openSession } from "../../test/support/drive.ts"
import { PACKAGE } from "../../test/support/plugin.ts"
import { type Case, collector } from "../support/case.ts"
import { type Contender, inTurn, superagents, withBenches } from "../support/contender.ts"
import { atMostTimes } from "../support/rows.ts"
import { childAskedAt, handOver, jobsOf } from "../support/turn.ts"

/** How many of the files the user has changed, and how many the task. */
const CHANGED_FILES = 20
const FILES_IN_FOLDER = 100
const LIMIT_MS = 120_000

/** Making a worktree ready and bringing its work home, in a large repository, beside what git alone takes. */
export const worktreesCase: Case = async ({ runs, short, built, progress }) => {
  const files = short ? 500 : 20_000
  const bytes = short ? 1000 : 15_000
  const found = collector()
  const folder = mkdtempSync(join(tmpdir(), "superagents-bench-"))
  try {
    const packages = short ? 300 : 30_000
    const project = withPackages(join(folder, "packages"), packages)
    progress(`worktrees: ${packages} files of dependencies`)
    for (let run = 1; run <= runs; run++) await measureDependencies(folder, project, run, found)
    progress(`worktrees: a repository of ${files} files and ${Math.round((files * bytes) / 1e6)} MB`)
    const top = repositoryOf(join(folder, "project"), files, bytes)
    for (let run = 1; run <= runs; run++) {
      progress(`worktrees: run ${run} of ${runs}`)
      await measure(folder, top, run, found)
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  for (let run = 1; run <= runs; run++) {
    progress(`worktrees: a project with .opencode/, run ${run} of ${runs}`)
    await measureFirstRequest(built.folder, run, found)
  }
  const row = (figure: string, against: string, unit: "ms" | "s" | "MB" = "ms") => ({
    case: "worktrees",
    figure,
    unit,
    against,
    ...found.of(figure),
  })
  return [
    row(READY, "git worktree add"),
    row(AWAY, "git worktree remove --force"),
    row(HOME, "git stash, and git stash apply"),
    row(DEPENDENCIES, "cp -a of them", "s"),
    row(ON_DISK, "the originals", "MB"),
    { ...row(FIRST_REQUEST, "the same without .opencode/"), goal: atMostTimes(1.2) },
  ]
}

const READY = "worktree ready, uncommitted work included"
const AWAY = "state kept, worktree removed"
const HOME = "merged into changed files"
const DEPENDENCIES = "worktree ready with 30,000 files of dependencies"
const ON_DISK = "what these take on disk, at most"
const FIRST_REQUEST = "launch → first request in a worktree, with .opencode/"

/** A project as `opencode plugin` leaves it: what OpenCode has installed there is ignored by git. */
const withFolder = (plugin: Contender): Contender => ({
  ...plugin,
  async start(model) {
    const opencode = await plugin.start(model)
    const folder = join(opencode.directory, ".opencode")
    const packages = join("node_modules", "@opencode-ai")
    cpSync(join(PACKAGE, packages), join(folder, packages), { recursive: true, dereference: true })
    const lock = { packages: { "": { dependencies: { "@opencode-ai/plugin": "*" } } } }
    writeFileSync(join(folder, "package-lock.json"), JSON.stringify(lock))
    writeFileSync(join(folder, "package.json"), JSON.stringify({ dependencies: { "@opencode-ai/plugin": "*" } }))
    writeFileSync(join(folder, ".gitignore"), "node_modules\npackage.json\npackage-lock.json\nbun.lock\n.gitignore\n")
    writeFileSync(join(folder, "opencode.json"), "{}")
    return opencode
  },
})

/** One task in a worktree on each of two hosts, the one with that folder in its project and the one without. */
async function measureFirstRequest(plugin: string, run: number, found: ReturnType<typeof collector>) {
  const contenders = [{ ...superagents(plugin), name: "native" as const }, withFolder(superagents(plugin))]
  await withBenches(inTurn(contenders, run), async (benches) => {
    for (const bench of benches) {
      const jobs = jobsOf(1).map((job) => ({ ...job, place: "worktree" as const }))
      const turn = await handOver(bench, await openSession(bench.opencode), jobs)
      const [launched] = turn.launched
      if (!launched) continue
      const askedAt = await childAskedAt(bench, launched.child)
      found.add(FIRST_REQUEST, bench.contender.name, askedAt - launched.startedAt)
      // The events of a task in a worktree are not those of the project, so the parent's model tells its end.
      const { description } = launched.job
      await bench.model.waitFor((each) => each.sessionID === turn.sessionID && each.lastUser.includes(description), {
        timeout: LIMIT_MS,
      })
    }
  })
}

/** A project of npm's with so many files in its node_modules, of 4,000 bytes each. */
function withPackages(top: string, files: number): string {
  mkdirSync(top, { recursive: true })
  git(top, "init", "--quiet")
  writeFileSync(join(top, "package.json"), "{}")
  writeFileSync(join(top, ".gitignore"), "node_modules\n")
  git(top, "add", "--all")
  git(top, "commit", "--quiet", "--message", "start")
  for (let index = 0; index < files; index++) {
    const folder = join(top, "node_modules", `package-${Math.floor(index / FILES_IN_FOLDER)}`)
    if (index % FILES_IN_FOLDER === 0) mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, `file-${index}.js`), randomBytes(2000).toString("hex"))
  }
  return top
}

async function measureDependencies(folder: string, top: string, run: number, found: ReturnType<typeof collector>) {
  const taskID = `bg_${String(run).padStart(8, "0")}`
  const worktrees = new Worktrees({ root: join(folder, "worktrees"), ...portsOf() })
  const [source, copy] = [join(top, "node_modules"), join(folder, "copied")]
  found.add(DEPENDENCIES, "native", (await timed(() => execFileSync("cp", ["-a", source, copy]))) / 1000)
  rmSync(copy, { recursive: true })
  let directory = ""
  const ready = async () => {
    await worktrees.capture(taskID, top)
    directory = (await worktrees.enter({ taskID, folder: top, timeLimit: 0 })).directory
  }
  found.add(DEPENDENCIES, "plugin", (await timed(ready)) / 1000)
  const size = (of: string) => Number.parseInt(execFileSync("du", ["-sk", of], { encoding: "utf8" }), 10) / 1000
  found.add(ON_DISK, "native", size(source))
  found.add(ON_DISK, "plugin", size(join(directory, "node_modules")))
  await worktrees.archive(taskID, top)
}

const portsOf = () => ({
  settings: { setup: "", copy: [], dependencies: "auto" as const },
  ownerMark: () => ({ instance: "bench" }),
  isOthers: () => false,
  processes: { self: { place: "here", pid: process.pid, started: "" }, isAlive: () => true },
})

async function measure(folder: string, top: string, run: number, found: ReturnType<typeof collector>) {
  const taskID = `bg_${String(run).padStart(8, "0")}`
  const worktrees = new Worktrees({ root: join(folder, "worktrees"), ...portsOf() })
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
  found.add(AWAY, "plugin", await timed(() => worktrees.archive(taskID, top)))
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
