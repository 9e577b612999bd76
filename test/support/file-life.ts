import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { dirname, join, relative } from "node:path"
import type { Random } from "../simulation/random.ts"
import { Repository } from "./repository.ts"

/** Random repositories, and hands that change files in them at random: whatever a user or an agent may do. */

const PATHS = [
  "a",
  "b.txt",
  "c.sh",
  "d/x",
  "d/y.txt",
  "d/e/z",
  "deep/er/and/deeper",
  "with space",
  "ünï",
  "bin",
  "link",
  "loop",
  "win.crlf",
  "kept.ours",
  "taken.theirs",
  "both.union",
  "never.fail",
  "through.flt",
  "new-1",
  "new-2/inside",
  "ignored.log",
  "sub",
  'quo"ted',
  "ta\tb\\ed",
  "stored.lfs",
] as const

const ATTRIBUTES = [
  "*.crlf text eol=crlf",
  "*.ours merge=ours",
  "*.theirs merge=theirs",
  "*.union merge=union",
  "*.fail merge=fail",
  "*.flt filter=quoted",
  "*.lfs filter=lfs -text",
  "bin binary",
]
const SETTINGS = [
  ["merge.ours.driver", "true"],
  ["merge.theirs.driver", "cp %B %A"],
  ["merge.fail.driver", "false"],
  ["filter.quoted.clean", "sed 's/^> //'"],
  ["filter.quoted.smudge", "sed 's/^/> /'"],
] as const

/** Links out of the project, and within it by a whole path. */
const LEADS_OUT = ["../outside", "/nowhere/at/all", "/"]

const LINES = 24

type Owner = "base" | "user" | "agent"

/** One who changes files in a checkout. Each line that it writes is its own, and found again wherever it goes. */
export class UserActions {
  readonly #repository: Repository
  readonly #random: Random
  readonly #owner: Owner
  #written = 0

  constructor(repository: Repository, random: Random, owner: Owner) {
    this.#repository = repository
    this.#random = random
    this.#owner = owner
  }

  /** Makes a few changes, of files alone. */
  change(times: number): void {
    for (let turn = 0; turn < times; turn++) this.#once(this.#random.pick(PATHS))
  }

  /** A text of lines that say who wrote them. */
  write(path: string): void {
    const lines = Array.from({ length: LINES }, (_, at) => (at % 3 === 0 ? this.#line() : `line ${at}`))
    this.#put(path, `${lines.join("\n")}\n`)
  }

  binary(path: string): void {
    this.#put(path, Buffer.from([0, 255, this.#random.below(256), this.#random.below(256), this.#written++, 0]))
  }

  link(path: string, target: string): void {
    symlinkSync(target, this.#room(path))
  }

  #once(path: string): void {
    const random = this.#random
    const file = this.#at(path)
    const kind = kindOf(file)
    const acts = [
      { weight: 8, act: () => (kind === "file" ? this.#edit(path) : this.write(path)) },
      { weight: 2, act: () => (path === "bin" ? this.binary(path) : this.write(path)) },
      { weight: 2, act: () => this.#remove(path) },
      { weight: 2, act: () => this.#rename(path, random.pick(PATHS)) },
      { weight: 2, act: () => kind === "file" && chmodSync(file, random.pick([0o755, 0o644, 0o600, 0o700])) },
      {
        weight: 1,
        act: () =>
          this.link(path, random.pick(["a", "nowhere", "d", "loop", path.split("/").at(-1) ?? "", ...LEADS_OUT])),
      },
      { weight: 1, act: () => this.write(`${path}/below`) },
      { weight: 1, act: () => this.#moveFolder() },
      { weight: 1, act: () => mkdirSync(this.#room(path), { recursive: true }) },
      { weight: 0.4, act: () => this.#nest(path) },
    ]
    random.weighed(acts).act()
  }

  #edit(path: string): void {
    const file = this.#at(path)
    const text = readFileSync(file)
    if (text.includes(0)) return this.binary(path)
    const lines = text.toString().split(/\r?\n/).slice(0, -1)
    const at = this.#random.below(Math.max(1, lines.length))
    const instead = this.#random.pick([[this.#line()], [this.#line(), lines[at] ?? ""], [] as string[]])
    writeFileSync(file, `${lines.toSpliced(at, 1, ...instead).join("\n")}\n`)
  }

  #remove(path: string): void {
    rmSync(this.#at(path), { recursive: true, force: true })
  }

  #rename(from: string, to: string): void {
    if (kindOf(this.#at(from)) === "nothing" || `${to}/`.startsWith(`${from}/`)) return
    if (`${from}/`.startsWith(`${to}/`)) return
    renameSync(this.#at(from), this.#room(to))
  }

  #moveFolder(): void {
    const folders = readdirSync(this.#repository.top, { withFileTypes: true }).filter(
      (entry) => entry.isDirectory() && entry.name !== ".git" && entry.name !== "sub",
    )
    if (folders.length > 0) this.#rename(this.#random.pick(folders).name, `moved-${this.#random.below(2)}`)
  }

  /** A repository within. */
  #nest(path: string): void {
    const folder = this.#room(path)
    Repository.init(folder).write("inner", this.#line()).commit()
  }

  #line(): string {
    return `${this.#owner} ${this.#random.below(1_000_000_000)}-${this.#written++}`
  }

  #put(path: string, content: string | Buffer): void {
    writeFileSync(this.#room(path), content)
  }

  #at(path: string): string {
    return join(this.#repository.top, path)
  }

  /** Where a path can be made: what stands there, or above it where a folder has to be, goes. */
  #room(path: string): string {
    const parts = path.split("/")
    for (let depth = 1; depth < parts.length; depth++) {
      const above = this.#at(parts.slice(0, depth).join("/"))
      const kind = kindOf(above)
      if (kind !== "folder" && kind !== "nothing") rmSync(above, { force: true })
    }
    const file = this.#at(path)
    rmSync(file, { recursive: true, force: true })
    mkdirSync(dirname(file), { recursive: true })
    return file
  }
}

/** What stands at a path; nothing also where what is above it is no folder, or leads to itself. */
function kindOf(file: string): "file" | "folder" | "link" | "nothing" {
  try {
    const found = lstatSync(file)
    return found.isDirectory() ? "folder" : found.isSymbolicLink() ? "link" : "file"
  } catch {
    return "nothing"
  }
}

/** A user's repository with a commit, attributes and settings, and at times a submodule, a stash, a sparse checkout. */
export function madeAtRandom(user: Repository, other: () => Repository, random: Random): void {
  const userActions = new UserActions(user, random, "base")
  for (const [name, value] of SETTINGS) user.git("config", name, value)
  if (random.chance(0.3)) user.git("config", "core.autocrlf", random.pick(["true", "input"]))
  if (random.chance(0.2)) user.git("config", "merge.renames", "false")
  user.write(".gitignore", "*.log\n")
  user.write(".gitattributes", `${ATTRIBUTES.filter(() => random.chance(0.8)).join("\n")}\n`)
  for (const path of [...PATHS.slice(0, 18), ...PATHS.slice(-3)]) {
    if (path === "bin") userActions.binary(path)
    else if (path === "link" || path === "loop")
      userActions.link(path, path === "loop" ? random.pick(["a", "loop"]) : "d/x")
    else if (random.chance(0.85)) userActions.write(path)
  }
  if (existsSync(join(user.top, "c.sh"))) chmodSync(join(user.top, "c.sh"), 0o755)
  if (random.chance(0.3)) {
    const inner = other()
    inner.write("inner", "inner\n").commit()
    user.git("submodule", "--quiet", "add", inner.top, "sub")
  }
  user.commit()
  if (random.chance(0.4)) {
    user.write("a", `stashed ${random.below(1000)}\n`)
    user.git("stash", "push", "--quiet")
  }
  if (random.chance(0.2)) user.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/", "!/deep/")
}

/** Git LFS where it is not installed: from here on the user's own git may do little. */
export function withoutLfs(user: Repository, random: Random): void {
  user.git("config", "filter.lfs.clean", "superagents-no-such-program clean -- %f")
  user.git("config", "filter.lfs.smudge", "superagents-no-such-program smudge -- %f")
  if (random.chance(0.5)) user.git("config", "filter.lfs.process", "superagents-no-such-program filter-process")
  user.git("config", "filter.lfs.required", random.pick(["true", "false"]))
}

/** Has a user's repository be a submodule of the one around it, at times with its folder in the configuration of all its worktrees. */
export function madeSubmodule(user: Repository, around: Repository, random: Random): void {
  const name = relative(around.top, user.top)
  around.git("submodule", "--quiet", "add", user.top, name)
  around.git("submodule", "--quiet", "absorbgitdirs", name)
  if (random.chance(0.5)) user.git("config", "extensions.worktreeConfig", "true")
}

/** What a user may do to the index: whatever of it git takes. */
export function stageAtRandom(repository: Repository, random: Random): void {
  for (const path of PATHS) if (random.chance(0.3)) attempt(() => repository.git("add", "--", path))
}

export const attempt = (work: () => unknown): boolean => {
  try {
    work()
    return true
  } catch {
    return false
  }
}

/** A file as it is compared: its text without what settings make of line ends and filters, and who may run it. */
export type Seen = { readonly content: string; readonly mode?: number }

/** All files of a checkout but those of repositories within and those that git ignores. */
export function seenIn(repository: Repository): ReadonlyMap<string, Seen> {
  const found = new Map<string, Seen>()
  for (const [path, shown] of Object.entries(repository.files())) {
    if (path.split("/").some((name) => name.endsWith(".log")) || isWithin(repository.top, path)) continue
    if (shown.startsWith("-> ")) found.set(path, { content: shown })
    else {
      const [mode = "", base64 = ""] = shown.split(" ")
      const text = Buffer.from(base64, "base64").toString("latin1")
      found.set(path, {
        content: text.replaceAll("\r\n", "\n").replaceAll(/^> /gm, ""),
        mode: Number.parseInt(mode, 8),
      })
    }
  }
  return found
}

function isWithin(top: string, path: string): boolean {
  const parts = path.split("/")
  return parts.some((_part, depth) => depth > 0 && existsSync(join(top, ...parts.slice(0, depth), ".git")))
}

const isExecutable = ({ mode = 0 }: Seen): boolean => (mode & 0o100) !== 0

/** The same to git. */
export const isAlike = (one: Seen | undefined, other: Seen | undefined): boolean =>
  one?.content === other?.content &&
  (one === undefined || other === undefined || isExecutable(one) === isExecutable(other))
