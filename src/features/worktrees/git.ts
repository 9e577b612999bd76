import { existsSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { runBounded } from "../../runtime/places/process.ts"

/** Git failed. `text`: its message for a reader. */
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
  /** Working directory, from which git finds the repository unless `gitDir` names it. */
  readonly cwd: string
  /** Explicit repository, without a search. */
  readonly gitDir?: string
  /** Index file in place of the checkout's own. */
  readonly index?: string
  readonly input?: string
  /** Input from a file, starting at this byte. */
  readonly inputFrom?: { readonly file: string; readonly start: number }
  /** Input and output as bytes, one per character, instead of UTF-8. */
  readonly bytes?: boolean
  /** Receives output in chunks. A rejection stops git, and the result is `cut`. */
  readonly take?: (chunk: Buffer) => Promise<void>
  /** Name and time of a restored commit. */
  readonly committer?: { readonly name: string; readonly email: string; readonly date?: string }
  /** Exit codes besides 0 that are results, not failures. */
  readonly accept?: readonly number[]
  /** In ms. */
  readonly timeLimit?: number
  /** Most bytes of output: more stops git. */
  readonly mostBytes?: number
}

export type GitAnswer = {
  readonly code: number
  readonly out: string
  readonly cut: boolean
  /** Warnings without a failure. */
  readonly complaints: string
}

const TIME_LIMIT_MS = 120_000
/** Cleaners remove empty folders, even one that git has just made for an object. */
const SWEPT = /unable to create temporary file: No such file or directory/
/** Attempts where others use the repository. */
const ATTEMPTS = 5
/** Longest message of git passed on. */
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
const IDENTITY: { readonly name: string; readonly email: string; readonly date?: string } = {
  name: "superagents",
  email: "superagents@localhost",
}

/**
 * The only function that runs git: with a time limit, without a shell, redirecting variables or terminal prompts.
 * Rejects with a `GitError`.
 */
export const git = (args: readonly string[], options: GitOptions): Promise<GitAnswer> =>
  retryOn(SWEPT, () => withoutAbsent(args, options))

/** Disables filters whose program is missing, so that their files stay as stored: git itself would fail. */
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

/** A missing long-running filter shows in several ways, all after the shell's message. */
const FILTER_FAILED = /(?:clean|smudge) filter .+ failed|hung up unexpectedly|: (?:command )?not found$/m
const PROGRAM = /^\s*(?:"([^"$`\\]+)"|'([^']+)'|([\w./+~-]+))(?=\s|$)(?:\s+([\w-]+))?/

/** Names of filters whose program is not installed. */
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

/** Whether a command line's program exists; more complex lines count as existing. */
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

/** Repeats work that fails with a matching temporary error, after a delay longer by `pauseMs` each time. */
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
    // A missing folder looks like a missing program.
    if (!existsSync(cwd)) throw new GitError(args, `the folder ${cwd} does not exist`)
    throw new GitError(args, ended.missing ? "git is not installed" : ended.text, ended.missing)
  }
  if (ended.kind === "timed out") throw new GitError(args, `did not end within ${timeLimit / 1000} s and was stopped`)
  const { code, out, cut, errors } = ended
  if (cut || code === 0 || accept.includes(code)) return { code, out, cut, complaints: errors }
  throw new GitError(args, errors.trim().slice(-MOST_ERROR_CHARS) || `exit code ${code}`)
}

/**
 * A repository from a case-insensitive disk may be configured wrongly: git would then take a rename in case only for a
 * removal.
 */
const caseOf = ({ cwd, gitDir }: GitOptions): readonly string[] =>
  gitDir !== undefined && gitDir !== cwd && !existsSync(join(cwd, ".GIT")) ? ["-c", "core.ignoreCase=false"] : []

/** Runs git for a single line. */
export const gitLine = async (args: readonly string[], options: GitOptions): Promise<string> =>
  (await git(args, options)).out.trimEnd()

/** Runs git for NUL-separated names or records. */
export const gitList = async (args: readonly string[], options: GitOptions): Promise<string[]> =>
  (await git(args, options)).out.split("\0").filter((item) => item !== "")

/** Passes on only those GIT_ variables that name the user's configuration or concern remotes. */
const isOurs = (name: string): boolean => !name.startsWith("GIT_") || HANDED_ON.test(name)
const HANDED_ON = /^GIT_(CONFIG_(?!PARAMETERS$)|LFS_|SSH|SSL_)/

/** Variables that redirect git to another repository, files or index. */
const REDIRECTING = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"]

/** Set variable that redirects every git of an agent to one place; undefined for none. */
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

/** Fault of the installed git, for a reader; undefined for none. */
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
