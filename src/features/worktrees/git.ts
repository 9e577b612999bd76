import { existsSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { runBounded } from "../../runtime/places/process.ts"

/** A git that did not do as it was told. `text` is what it wrote about it, for a reader. */
export class GitError extends Error {
  override readonly name = "GitError"
  readonly missing: boolean
  constructor(args: readonly string[], text: string, missing = false) {
    const command = args.find((arg, nth) => arg !== "-c" && args[nth - 1] !== "-c")
    super(`git ${command ?? ""}: ${text}`)
    this.missing = missing
  }
}

export type GitOptions = {
  /** Where git runs. It looks for the repository from here, unless `gitDir` names one. */
  readonly cwd: string
  /** The repository and its checkout, given outright: nothing is looked for. */
  readonly gitDir?: string
  /** Another index than the checkout's own. */
  readonly index?: string
  readonly input?: string
  /** In its place: the rest of a file, from this byte on. */
  readonly inputFrom?: { readonly file: string; readonly start: number }
  /** Input and output are bytes, each a character of its own; else they are UTF-8. */
  readonly bytes?: boolean
  /** Gets the output as it comes, in place of the answer. Where it rejects, git is stopped and the answer is `cut`. */
  readonly take?: (chunk: Buffer) => Promise<void>
  /** In whose name, and when: for what is put back as it was. */
  readonly committer?: { readonly name: string; readonly email: string; readonly date?: string }
  /** Exit codes besides 0 that are answers and no failures. */
  readonly accept?: readonly number[]
  /** In ms. */
  readonly timeLimit?: number
  /** Most bytes of output that are wanted: git is stopped when there are more. */
  readonly mostBytes?: number
}

export type GitAnswer = {
  readonly code: number
  readonly out: string
  readonly cut: boolean
  /** What it complained of without failing. */
  readonly complaints: string
}

const TIME_LIMIT_MS = 120_000
/** A clean-up of the user's removes folders that are empty: one that git has just made for an object, too. */
const SWEPT = /unable to create temporary file: No such file or directory/
/** How often is tried what fails because somebody else is in the middle of something. */
const ATTEMPTS = 5
/** The longest complaint of git that is handed on. */
const MOST_ERROR_CHARS = 600

/**
 * For every command: no hook of the user's, no helper that stays, no clean-up, no second file for an index, files one
 * after the other, texts and names as they are, patience with a git of the user's that packs refs.
 */
const ALWAYS = [
  "core.hooksPath=/dev/null",
  "core.fsmonitor=false",
  "core.splitIndex=false",
  "gc.auto=0",
  "maintenance.auto=false",
  "checkout.workers=1",
  "submodule.recurse=false",
  "core.safecrlf=false",
  "core.quotePath=false",
  "diff.ignoreSubmodules=none",
  "i18n.commitEncoding=UTF-8",
  "i18n.logOutputEncoding=UTF-8",
  "core.filesRefLockTimeout=10000",
  "core.packedRefsTimeout=30000",
  "advice.detachedHead=false",
  "advice.addEmbeddedRepo=false",
]
const SETTINGS = ALWAYS.flatMap((setting) => ["-c", setting])

/** Commits are made in our own name: the user's may not be set, and is not ours to use. */
const IDENTITY: { readonly name: string; readonly email: string; readonly date?: string } = {
  name: "superagents",
  email: "superagents@localhost",
}

/**
 * Runs git, and is the only one to do so: as a process of its own with a time limit, its arguments never through a
 * shell, with an environment in which nobody has redirected it and nothing can ask on a terminal. Rejects with a
 * `GitError`.
 */
export const git = (args: readonly string[], options: GitOptions): Promise<GitAnswer> =>
  patiently(SWEPT, () => withoutAbsent(args, options))

/** Files whose program is not there stay what git stores of them; git alone would refuse to do anything. */
async function withoutAbsent(args: readonly string[], options: GitOptions): Promise<GitAnswer> {
  try {
    return await runGit(args, options)
  } catch (error) {
    if (!(error instanceof GitError && FILTER_FAILED.test(error.message))) throw error
    const drivers = await absentFilters(options)
    if (drivers.length === 0) throw error
    const off = drivers.flatMap((driver) =>
      ["clean=", "smudge=", "process=", "required=false"].flatMap((setting) => ["-c", `filter.${driver}.${setting}`]),
    )
    return runGit([...off, ...args], options)
  }
}

/** A program that serves many files at once may be missed in several ways, all after the shell's own word. */
const FILTER_FAILED = /(?:clean|smudge) filter .+ failed|hung up unexpectedly|: (?:command )?not found$/m
const PROGRAM = /^\s*(?:"([^"$`\\]+)"|'([^']+)'|([\w./+~-]+))(?=\s|$)(?:\s+([\w-]+))?/

/** The filters of a repository whose program is not installed, by their names. */
export async function absentFilters(options: GitOptions): Promise<readonly string[]> {
  const {
    index: _index,
    input: _input,
    inputFrom: _from,
    mostBytes: _most,
    bytes: _bytes,
    take: _take,
    ...where
  } = options
  const wanted = ["config", "--null", "--get-regexp", "^filter\\..*\\.(clean|smudge|process)$"]
  const settings = (await runGit(wanted, { ...where, accept: [1] })).out.split("\0").filter(Boolean)
  const absent = new Set<string>()
  for (const setting of settings) {
    const end = setting.indexOf("\n")
    const [driver, command] = [setting.slice("filter.".length, setting.lastIndexOf(".", end)), setting.slice(end + 1)]
    if (end > 0 && command !== "" && !(await isInstalled(command, where))) absent.add(driver)
  }
  return [...absent]
}

/** Whether there is a program that a command line begins with; what else a shell may make of it counts as there. */
async function isInstalled(command: string, where: GitOptions): Promise<boolean> {
  const [, double, single, plain, next] = PROGRAM.exec(command) ?? []
  const program = double ?? single ?? plain
  if (program === undefined || program.startsWith("~")) return true
  if (!(await isKnown(program, where))) return false
  if (program !== "git" || next === undefined || (await isKnown(`git-${next}`, where))) return true
  const own = (await runGit(["--list-cmds=builtins,alias"], where)).out.split("\n")
  return own.includes(next)
}

/** Whether a shell of git's knows this word: a program, or a part of its own language. */
async function isKnown(word: string, where: GitOptions): Promise<boolean> {
  const asked = 'PATH="$(git --exec-path):$PATH"; command -v "$1"'
  const told = await runBounded("sh", ["-c", asked, "sh", word], {
    cwd: where.cwd,
    env: environment(where),
    timeLimit: TIME_LIMIT_MS,
  })
  return told.kind !== "exited" || told.code === 0
}

/**
 * Does the work, and does it again where it fails in a way that passes: with a text that fits. Each time it waits
 * `pauseMs` longer.
 */
export async function patiently<Value>(passing: RegExp, work: () => Promise<Value>, pauseMs = 0): Promise<Value> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work()
    } catch (error) {
      if (attempt === ATTEMPTS || !passing.test(String(error))) throw error
      if (pauseMs > 0) await sleep(pauseMs * attempt)
    }
  }
}

async function runGit(args: readonly string[], options: GitOptions): Promise<GitAnswer> {
  const { cwd, input, inputFrom, bytes, take, accept = [], timeLimit = TIME_LIMIT_MS, mostBytes } = options
  const ended = await runBounded("git", [...SETTINGS, ...caseOf(options), ...args], {
    cwd,
    env: environment(options),
    input,
    inputFrom,
    bytes,
    take,
    timeLimit,
    mostBytes,
  })
  if (ended.kind === "not started") {
    // A folder that is gone looks just like a program that is not there.
    if (!existsSync(cwd)) throw new GitError(args, `the folder ${cwd} does not exist`)
    throw new GitError(args, ended.missing ? "git is not installed" : ended.text, ended.missing)
  }
  if (ended.kind === "timed out") throw new GitError(args, `did not end within ${timeLimit / 1000} s and was stopped`)
  const { code, out, cut, errors } = ended
  if (cut || code === 0 || accept.includes(code)) return { code, out, cut, complaints: errors }
  throw new GitError(args, errors.trim().slice(-MOST_ERROR_CHARS) || `exit code ${code}`)
}

/**
 * A repository may come from a disk that takes `a` and `A` for one name, and still say so. Where that is not true of the
 * checkout's own, git would take a file that was renamed so for one that has gone.
 */
const caseOf = ({ cwd, gitDir }: GitOptions): readonly string[] =>
  gitDir !== undefined && gitDir !== cwd && !existsSync(join(cwd, ".GIT")) ? ["-c", "core.ignoreCase=false"] : []

/** The same, for an answer of one line. */
export const gitLine = async (args: readonly string[], options: GitOptions): Promise<string> =>
  (await git(args, options)).out.trimEnd()

/** The same, for names or records that are closed by NUL. */
export const gitList = async (args: readonly string[], options: GitOptions): Promise<string[]> =>
  (await git(args, options)).out.split("\0").filter((item) => item !== "")

/** Of git's variables those are handed on that say where the user's configuration is, and how a remote is spoken to. */
const isOurs = (name: string): boolean => !name.startsWith("GIT_") || HANDED_ON.test(name)
const HANDED_ON = /^GIT_(CONFIG_(?!PARAMETERS$)|LFS_|SSH|SSL_)/

/** Variables by which whoever started the host has told git which repository, files or index to take. */
const REDIRECTING = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"]

/** The variable that sends each git of an agent's to the same place, wherever it is run; undefined where none does. */
export const redirected = (): string | undefined => REDIRECTING.find((name) => process.env[name])

function environment({ cwd, gitDir, index, committer = IDENTITY }: GitOptions): Record<string, string> {
  const inherited = Object.entries(process.env).filter(([name]) => isOurs(name))
  return {
    ...(Object.fromEntries(inherited) as Record<string, string>),
    LC_ALL: "C",
    LANGUAGE: "",
    GIT_TERMINAL_PROMPT: "0",
    GIT_OPTIONAL_LOCKS: "0",
    GIT_PAGER: "cat",
    GIT_EDITOR: "true",
    GIT_AUTHOR_NAME: IDENTITY.name,
    GIT_AUTHOR_EMAIL: IDENTITY.email,
    GIT_COMMITTER_NAME: committer.name,
    GIT_COMMITTER_EMAIL: committer.email,
    ...(committer.date === undefined ? {} : { GIT_COMMITTER_DATE: committer.date }),
    ...(gitDir === undefined ? {} : { GIT_DIR: gitDir, GIT_WORK_TREE: cwd }),
    ...(index === undefined ? {} : { GIT_INDEX_FILE: index }),
  }
}

/** The oldest git that merges two trees without a checkout. */
const OLDEST = [2, 38] as const

/** What is wrong with the git that is installed, for a reader; undefined where it will do. */
export async function gitProblem(cwd: string): Promise<string | undefined> {
  const wanted = `git ${OLDEST.join(".")} or newer`
  try {
    const text = await gitLine(["--version"], { cwd })
    const [, major, minor] = /(\d+)\.(\d+)/.exec(text) ?? []
    const [wantedMajor, wantedMinor] = OLDEST
    const enough = Number(major) > wantedMajor || (Number(major) === wantedMajor && Number(minor) >= wantedMinor)
    return enough ? undefined : `needs ${wanted}; installed is "${text.slice(0, 60)}"`
  } catch (error) {
    if (error instanceof GitError && error.missing) return `needs ${wanted}; no git was found`
    throw error
  }
}
