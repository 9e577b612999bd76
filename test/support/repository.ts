import { execFileSync } from "node:child_process"
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { dirname, join } from "node:path"

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
  return execFileSync("git", ["-c", "protocol.file.allow=always", "-c", "safe.directory=*", ...args], {
    cwd,
    env,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  })
}

type Note = { readonly names: string[]; usedGit: boolean; stop(): void }
const notes = new Map<string, Set<Note>>()

/** Of a repository's own folder: what git makes of all that is stored, and what is ours. Refs are compared as git tells them. */
const NOT_THE_USERS = /^(objects|worktrees|modules|refs|packed-refs)$|^superagents|^logs\/refs\/superagents/

/** A repository of a user's in a folder of its own, with helpers to fill it and to look at it. */
export class Repository {
  readonly top: string

  constructor(top: string, make = true) {
    if (make) mkdirSync(top, { recursive: true })
    this.top = realpathSync(top)
  }

  /** What is done through a repository of this folder from here on. */
  noteOwn(): { readonly names: readonly string[]; readonly usedGit: boolean; stop(): void } {
    const note: Note = { names: [], usedGit: false, stop: () => void notes.get(this.top)?.delete(note) }
    notes.set(this.top, (notes.get(this.top) ?? new Set()).add(note))
    return note
  }

  #noted(name: string): void {
    for (const note of notes.get(this.top) ?? []) note.names.push(name)
  }

  static init(top: string): Repository {
    const repository = new Repository(top)
    repository.git("init", "--quiet", "--initial-branch=main")
    return repository
  }

  git(...args: string[]): string {
    for (const note of notes.get(this.top) ?? []) note.usedGit = true
    return userGit(this.top, ...args)
  }

  /** A command line of an agent's, in this folder. */
  sh(command: string): void {
    execFileSync("sh", ["-c", command], { cwd: this.top, stdio: ["ignore", "pipe", "pipe"] })
  }

  write(name: string, content: string | Buffer, mode?: number): this {
    this.#noted(name)
    const file = join(this.top, name)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, content)
    if (mode !== undefined) chmodSync(file, mode)
    return this
  }

  link(name: string, target: string): this {
    this.#noted(name)
    symlinkSync(target, join(this.top, name))
    return this
  }

  remove(name: string): this {
    this.#noted(name)
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
    return bytesBelow(this.top, (path) => path === ".git" || path.endsWith("/.git"))
  }

  /** HEAD, branches, tags, stash with its log, worktrees' index, configuration, hooks: all that is not ours or an object. */
  repositoryState(): Record<string, string> {
    const folders = userGit(this.top, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
    const [own = "", common = ""] = folders.trim().split("\n")
    const refs = userGit(this.top, "for-each-ref").split("\n")
    const named = (where: string, files: Record<string, string>) =>
      Object.fromEntries(Object.entries(files).map(([name, content]) => [`(${where} ${name})`, content]))
    return {
      "(refs)": refs.filter((line) => !line.includes("refs/superagents")).join("\n"),
      ...named(
        "git",
        bytesBelow(common, (path) => NOT_THE_USERS.test(path)),
      ),
      ...(own === common
        ? {}
        : named(
            "own",
            bytesBelow(own, (path) => NOT_THE_USERS.test(path)),
          )),
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

/** Forty lines, of which these are changed. */
export const text = (changed: Record<number, string> = {}): string =>
  Array.from({ length: 40 }, (_, at) => `${changed[at] ?? `line ${at}`}\n`).join("")

/** A larger file is compared by its size and time. */
const MOST_COMPARED = 64 * 1024 * 1024

/** Each file below a folder by its path: its mode and bytes, or where a link leads. */
function bytesBelow(top: string, skip: (path: string) => boolean): Record<string, string> {
  const found: Record<string, string> = {}
  const walk = (folder: string) => {
    for (const name of readdirSync(join(top, folder))) {
      const path = folder === "" ? name : `${folder}/${name}`
      if (skip(path)) continue
      const file = join(top, path)
      const stat = lstatSync(file)
      if (stat.isDirectory()) walk(path)
      else if (stat.isSymbolicLink()) found[path] = `-> ${readlinkSync(file)}`
      else if (stat.size > MOST_COMPARED)
        found[path] = `${(stat.mode & 0o7777).toString(8)} ${stat.size} of ${stat.mtimeMs}`
      else if (stat.isFile())
        found[path] = `${(stat.mode & 0o7777).toString(8)} ${readFileSync(file).toString("base64")}`
    }
  }
  if (existsSync(top)) walk("")
  return found
}
