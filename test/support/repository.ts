import { execFileSync } from "node:child_process"
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { processLives, processMark } from "../../src/host/record/owner.ts"
import type { Processes } from "../../src/lib/lock.ts"
import { find } from "../../src/place/worktree/checkout.ts"
import { isUnmerged, remembered } from "../../src/place/worktree/refs.ts"
import { Worktrees } from "../../src/place/worktree/worktrees.ts"

/** Git as a user runs it, under a configuration of the test's own. */
function userGit(cwd: string, ...args: string[]): string {
  const inherited = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("GIT_")))
  const env = {
    ...inherited,
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_AUTHOR_NAME: "user",
    GIT_AUTHOR_EMAIL: "user@localhost",
    GIT_COMMITTER_NAME: "user",
    GIT_COMMITTER_EMAIL: "user@localhost",
  }
  return execFileSync("git", ["-c", "protocol.file.allow=always", ...args], {
    cwd,
    env,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  })
}

/** A repository of a user's in a folder of its own, with helpers to fill it and to look at it. */
export class Repository {
  readonly top: string

  constructor(top: string) {
    mkdirSync(top, { recursive: true })
    this.top = realpathSync(top)
  }

  static init(top: string): Repository {
    const repository = new Repository(top)
    repository.git("init", "--quiet", "--initial-branch=main")
    return repository
  }

  git(...args: string[]): string {
    return userGit(this.top, ...args)
  }

  write(name: string, content: string | Buffer, mode?: number): this {
    const file = join(this.top, name)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, content)
    if (mode !== undefined) chmodSync(file, mode)
    return this
  }

  link(name: string, target: string): this {
    symlinkSync(target, join(this.top, name))
    return this
  }

  remove(name: string): this {
    rmSync(join(this.top, name), { recursive: true })
    return this
  }

  read(name: string): string {
    return readFileSync(join(this.top, name), "utf8")
  }

  has(name: string): boolean {
    return existsSync(join(this.top, name))
  }

  commit(message = "a commit"): string {
    this.git("add", "--all")
    this.git("commit", "--quiet", "--allow-empty", "--message", message)
    return this.git("rev-parse", "HEAD").trim()
  }

  /** Everything of the user's: each file, and what the repository says, our own refs left out. */
  state(): Record<string, string> {
    return { ...this.files(), ...this.repositoryState() }
  }

  /** Each file's content, kind and mode. */
  files(): Record<string, string> {
    const found: Record<string, string> = {}
    const walk = (folder: string) => {
      for (const name of readdirSync(join(this.top, folder))) {
        const path = folder === "" ? name : `${folder}/${name}`
        if (path === ".git" || path.endsWith("/.git")) continue
        const file = join(this.top, path)
        const stat = lstatSync(file)
        if (stat.isDirectory()) walk(path)
        else if (stat.isSymbolicLink()) found[path] = `-> ${readlinkSync(file)}`
        else found[path] = `${(stat.mode & 0o7777).toString(8)} ${readFileSync(file).toString("base64")}`
      }
    }
    walk("")
    return found
  }

  /** HEAD, branches, tags, stash, worktrees, index and configuration. */
  repositoryState(): Record<string, string> {
    const folder = this.git("rev-parse", "--absolute-git-dir").trim()
    const common = this.git("rev-parse", "--path-format=absolute", "--git-common-dir").trim()
    const read = (file: string) => (existsSync(file) ? readFileSync(file).toString("base64") : "none")
    const refs = this.git("for-each-ref").split("\n")
    return {
      "(HEAD)": read(join(folder, "HEAD")),
      "(index)": read(join(folder, "index")),
      "(config)": read(join(common, "config")),
      "(refs)": refs.filter((line) => !line.includes("refs/superagents")).join("\n"),
      "(stash)": this.git("stash", "list"),
    }
  }

  /** The refs of ours. */
  ours(): string[] {
    return this.git("for-each-ref", "--format=%(refname)")
      .split("\n")
      .filter((name) => name.includes("superagents"))
  }

  worktrees(): number {
    return this.git("worktree", "list").trim().split("\n").length
  }
}

/** The task that most tests are about. */
export const ID = "bg_aaaaaaaa"

/** Forty lines, of which these are changed. */
export const text = (changed: Record<number, string> = {}): string =>
  Array.from({ length: 40 }, (_, at) => `${changed[at] ?? `line ${at}`}\n`).join("")

export const PROCESSES: Processes = { self: processMark, isAlive: processLives }

type Ports = Partial<ConstructorParameters<typeof Worktrees>[0]>
type Wanted = { id?: string; folder?: string; again?: boolean; timeLimit?: number }

/** A folder for a test, a user's repository and worktrees made in it. */
export class Bench {
  readonly folder = realpathSync(mkdtempSync(join(tmpdir(), "superagents-place-")))
  readonly root = join(this.folder, "worktrees")
  readonly user = this.repository("project")
  places = this.worktrees()

  repository(name: string): Repository {
    return Repository.init(join(this.folder, name))
  }

  worktrees(ports: Ports = {}): Worktrees {
    return new Worktrees({
      root: this.root,
      settings: { setup: "", copy: [] },
      keeper: () => ({ pid: process.pid, startedAt: 0, instance: "test", seenAt: 0 }),
      isOthers: () => false,
      processes: PROCESSES,
      ...ports,
    })
  }

  /** A task's worktree: a first one, or `again` at what its last run left. */
  async ready({ id = ID, folder = this.user.top, again = false, timeLimit = 0 }: Wanted = {}): Promise<Repository> {
    if (!again) await this.places.capture(id, folder)
    return new Repository((await this.places.ready({ taskID: id, folder, timeLimit })).directory)
  }

  /** A whole run of a task in a worktree. */
  async worked(work: (child: Repository) => void, wanted: Wanted = {}) {
    work(await this.ready(wanted))
    return this.places.putAway(wanted.id ?? ID, wanted.folder ?? this.user.top)
  }

  /** The tasks whose work is kept and not merged. */
  async unmerged(): Promise<string[]> {
    const home = await find(this.user.top)
    return home ? (await remembered(home)).filter(isUnmerged).map(({ taskID }) => taskID) : []
  }

  /** What is left in the folder of the worktrees. */
  leftovers(): string[] {
    if (!existsSync(this.root)) return []
    return readdirSync(this.root).flatMap((room) => readdirSync(join(this.root, room)))
  }

  close(): void {
    rmSync(this.folder, { recursive: true, force: true })
  }
}
