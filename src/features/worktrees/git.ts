import { existsSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { type ProcessOptions, runBounded } from "./process.ts"

/** Test hook with the name of a step at which the process is killed. */
export type Fault = (step: string) => void

/** Error of a git command. `text`: git's message for a reader. */
export class GitError extends Error {
  override readonly name = "GitError"
  readonly missing: boolean
  constructor(args: readonly string[], text: string, missing = false) {
    const command = args.find((arg, nth) => arg !== "-c" && args[nth - 1] !== "-c")
    super(`git ${command ?? ""}: ${text}`)
    this.missing = missing
  }
}

/** Git searches the repository from `cwd`, unless `gitDir` names it. Output that is cut off is a result. */
export type GitOptions = Omit<ProcessOptions, "env" | "signal" | "timeLimit"> & {
  readonly gitDir?: string
  /** Index file in place of the checkout's own. */
  readonly index?: string
  /** Committer's name and time, for a commit that is restored. */
  readonly committer?: { readonly name: string; readonly email: string; readonly date?: string }
  /** Exit codes besides 0 that are results, not failures. */
  readonly accept?: readonly number[]
  readonly timeLimit?: number
}

export type GitOutput = {
  readonly code: number
  readonly out: string
  readonly cut: boolean
  /** Warnings that git wrote although it succeeded. */
  readonly warnings: string
}

const TIME_LIMIT_MS = 120_000
/** Time limit of commands that read or write many or large files, in ms. */
export const LONG_MS = 900_000
/**
 * Git's message if a cleaner has removed a folder that git had just made for an object. The command is then repeated.
 */
const SWEPT = /unable to create temporary file: No such file or directory/
/** Attempts for a command that other users of the repository may disturb. */
const ATTEMPTS = 5
/** Most characters of git's message that an error repeats. */
const MOST_ERROR_CHARS = 600

/**
 * Options of every command: no hooks, no background helpers, no maintenance, one index, sequential checkout, unquoted
 * names, and patience with locks.
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

/** Author of the plugin's commits. The user's own name may be missing, and the plugin must not commit under it. */
const IDENTITY: NonNullable<GitOptions["committer"]> = {
  name: "superagents",
  email: "superagents@localhost",
}

/**
 * The only function that runs git. Sets a time limit, and uses no shell, no redirecting variables and no terminal
 * prompts; rejects with a `GitError`.
 */
export const git = (args: readonly string[], options: GitOptions): Promise<GitOutput> =>
  retryOn(SWEPT, () => withoutAbsent(args, options))

/**
 * Runs git. If a filter's program is missing, git fails, so the command is repeated without this filter: the filter's
 * files stay as stored.
 */
async function withoutAbsent(args: readonly string[], options: GitOptions): Promise<GitOutput> {
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

/**
 * Messages of a failed filter. A missing program of a long-running filter shows in several ways, always after the
 * shell's message.
 */
const FILTER_FAILED = /(?:clean|smudge) filter .+ failed|hung up unexpectedly|: (?:command )?not found$/m
const PROGRAM = /^\s*(?:"([^"$`\\]+)"|'([^']+)'|([\w./+~-]+))(?=\s|$)(?:\s+([\w-]+))?/

/** Names of filters whose program is not installed. */
export async function absentFilters(options: GitOptions): Promise<readonly string[]> {
  const { cwd, gitDir, timeLimit } = options
  const where = { cwd, gitDir, timeLimit }
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

/** Whether the program of a command line exists. A more complex command line counts as existing. */
async function isInstalled(command: string, where: GitOptions): Promise<boolean> {
  const [, double, single, plain, next] = PROGRAM.exec(command) ?? []
  const program = double ?? single ?? plain
  if (program === undefined || program.startsWith("~")) return true
  if (!(await isKnown(program, where))) return false
  if (program !== "git" || next === undefined || (await isKnown(`git-${next}`, where))) return true
  const own = (await runGit(["--list-cmds=builtins,alias"], where)).out.split("\n")
  return own.includes(next)
}

/** Whether git's shell knows this word, as a program or as its own. */
async function isKnown(word: string, where: GitOptions): Promise<boolean> {
  const asked = 'PATH="$(git --exec-path):$PATH"; command -v "$1"'
  const ended = await runBounded("sh", ["-c", asked, "sh", word], {
    cwd: where.cwd,
    env: environment(where),
    timeLimit: TIME_LIMIT_MS,
  })
  return ended.kind !== "exited" || ended.code === 0
}

/** Repeats work that fails with a matching temporary error. Each delay is longer than the last by `pauseMs`. */
export async function retryOn<Value>(passing: RegExp, work: () => Promise<Value>, pauseMs = 0): Promise<Value> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work()
    } catch (error) {
      if (attempt === ATTEMPTS || !passing.test(String(error))) throw error
      if (pauseMs > 0) await sleep(pauseMs * attempt)
    }
  }
}

async function runGit(args: readonly string[], options: GitOptions): Promise<GitOutput> {
  const { cwd, accept = [], timeLimit = TIME_LIMIT_MS } = options
  const all = [...SETTINGS, ...caseOf(options), ...args]
  const ended = await runBounded("git", all, { ...options, env: environment(options), timeLimit })
  if (ended.kind === "not started") {
    // If the folder is missing, the error looks as if the program were missing.
    if (!existsSync(cwd)) throw new GitError(args, `the folder ${cwd} does not exist`)
    throw new GitError(args, ended.missing ? "git is not installed" : ended.text, ended.missing)
  }
  if (ended.kind === "timed out") throw new GitError(args, `did not end within ${timeLimit / 1000} s and was stopped`)
  const { code, out, cut, errors } = ended
  if (cut || code === 0 || accept.includes(code)) return { code, out, cut, warnings: errors }
  throw new GitError(args, errors.trim().slice(-MOST_ERROR_CHARS) || `exit code ${code}`)
}

/**
 * Setting for a repository from a case-insensitive disk, whose configuration may be wrong: without it, git takes a
 * rename in case only for a removal.
 */
const caseOf = ({ cwd, gitDir }: GitOptions): readonly string[] =>
  gitDir !== undefined && gitDir !== cwd && !existsSync(join(cwd, ".GIT")) ? ["-c", "core.ignoreCase=false"] : []

/** Runs git and returns its output, a single line. */
export const gitLine = async (args: readonly string[], options: GitOptions): Promise<string> =>
  (await git(args, options)).out.trimEnd()

/** Runs git and returns its output, a list of NUL-separated names or records. */
export const gitList = async (args: readonly string[], options: GitOptions): Promise<string[]> =>
  (await git(args, options)).out.split("\0").filter((item) => item !== "")

/**
 * Whether git gets a variable of the environment. Of the GIT_ variables, only those that name the user's configuration
 * or concern remotes are passed on.
 */
const isOurs = (name: string): boolean => !name.startsWith("GIT_") || HANDED_ON.test(name)
const HANDED_ON = /^GIT_(CONFIG_(?!PARAMETERS$)|LFS_|SSH|SSL_)/

/** Variables that redirect git to another repository, files or index. */
const REDIRECTING = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"]

/**
 * Name of a set variable because of which each git command of an agent would work in another place; undefined if none
 * is set.
 */
export const redirectingVariable = (): string | undefined => REDIRECTING.find((name) => process.env[name])

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

/** Oldest git that merges trees without a checkout. */
const OLDEST = [2, 38] as const
export const WANTED_VERSION = `${OLDEST.join(".")} or newer`

/** Whether a version of git, on this or another machine, is new enough. */
export function isNewEnough(version: string): boolean {
  const [, major, minor] = /(\d+)\.(\d+)/.exec(version) ?? []
  return Number(major) > OLDEST[0] || (Number(major) === OLDEST[0] && Number(minor) >= OLDEST[1])
}

/** Sentence part that says why the installed git cannot be used; undefined if it can. */
export async function gitProblem(cwd: string): Promise<string | undefined> {
  const wanted = `git ${WANTED_VERSION}`
  try {
    const text = await gitLine(["--version"], { cwd })
    return isNewEnough(text) ? undefined : `needs ${wanted}; installed is "${text.slice(0, 60)}"`
  } catch (error) {
    if (error instanceof GitError && error.missing) return `needs ${wanted}; no git was found`
    throw error
  }
}
