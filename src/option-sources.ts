import { isAbsolute, normalize } from "node:path"
import { isDeepStrictEqual } from "node:util"
import { budget } from "./lib/money.ts"
import { complete, DEFAULTS, type Given, type Options, readOptions } from "./options.ts"

/**
 * How a user's own options meet those of a project. OpenCode gives a plugin the options of one entry alone, the
 * project's where it has one; what the user allows everywhere would be gone without a word.
 */
export type Met = {
  readonly options: Options
  readonly problems: readonly string[]
  /** What the project alone turns on, by name. */
  readonly turnedOn: readonly string[]
  /** The budgets that the project sets wider than they are by default, where the user sets none. */
  readonly widened: readonly string[]
  /** What the project set and only its user may set: one sentence each. It does not hold. */
  readonly refused: readonly string[]
  /** The user's limits that hold against the project's, one line each. */
  readonly held: readonly string[]
}

/** What holds of two values: the user's own and the project's. */
type Rule = (own: unknown, theirs: unknown) => unknown

const theirs: Rule = (_own, theirs) => theirs
/** Of two limits the lower, where 0 is none. */
const lower: Rule = (own, theirs) => {
  if (own === 0 || theirs === 0) return own || theirs
  return Math.min(own as number, theirs as number)
}
/** Of two counts the lower, where 0 is the lowest. */
const fewer: Rule = (own, theirs) => Math.min(own as number, theirs as number)
const lowerOfEach: Rule = (own, theirs) => {
  const [mine, others] = [own, theirs] as [Given, Given]
  const limits = { ...mine, ...others }
  for (const key of Object.keys(mine)) if (key in others) limits[key] = lower(mine[key], others[key])
  return limits
}
const owns: Rule = (own) => own
/** Of each agent its limits the lower, all else the project's. */
const ofEachAgent: Rule = (own, theirs) => {
  const [mine, others] = [own, theirs] as [Record<string, Given>, Record<string, Given>]
  const agents: Record<string, Given> = { ...mine, ...others }
  for (const [name, other] of Object.entries(others)) {
    const limits = Object.hasOwn(mine, name) ? (mine[name] ?? {}) : {}
    const lowered = AGENT_LIMITS.filter((key) => key in limits && key in other)
    agents[name] = {
      ...limits,
      ...other,
      ...Object.fromEntries(lowered.map((key) => [key, lower(limits[key], other[key])])),
    }
  }
  return agents
}
const AGENT_LIMITS = ["timeout", "maxCost", "maxConcurrent"] as const
/** Of two lists what is in both, where null is everything. */
const both: Rule = (own, theirs) => {
  if (own === null || theirs === null) return own ?? theirs
  return (own as string[]).filter((each) => (theirs as string[]).includes(each))
}

/** Of two purses the project's, with no more money than the user's own has. */
const withLower: Rule = (own, theirs) => {
  const [mine, other] = [own, theirs] as [{ max: number }, { max: number }]
  return { ...other, max: Math.min(mine.max, other.max) }
}

/** The exact gate wraps a function of the host's: no project turns it on against its user's word. */
const notExact: Rule = (own, theirs) => (theirs === "exact" ? own : theirs)

type Group = "fork" | "each" | "worktree" | "board" | "web"
type Rules = { readonly [Key in Exclude<keyof Options, Group>]: Rule } & {
  readonly [Key in Group]: { readonly [Inner in keyof NonNullable<Options[Key]>]: Rule }
}

/** For each option, what holds where both set it. One that only one of them sets is as that one has it. */
const RULES: Rules = {
  enabled: theirs,
  pollInterval: theirs,
  maxConcurrentTasks: lower,
  maxConcurrentPerModel: lowerOfEach,
  agents: ofEachAgent,
  maxDepth: lower,
  maxLaunchesPerMinute: lower,
  taskTimeout: lower,
  stallTimeout: lower,
  maxTokensPerTask: lower,
  maxTokensPerSession: lower,
  maxCostPerTask: lower,
  maxCostPerSession: lower,
  maxCostPerDay: lower,
  lastWord: theirs,
  permissionTimeout: lower,
  todoGrace: theirs,
  resultCacheTTL: theirs,
  maxHistory: theirs,
  reuseIdentical: theirs,
  allowModelOverride: theirs,
  resumable: theirs,
  cacheHold: theirs,
  nativeTask: theirs,
  wake: theirs,
  notifyAnswerChars: theirs,
  childPrompt: theirs,
  verbose: theirs,
  toasts: theirs,
  osNotifications: theirs,
  checkTimeout: lower,
  checkRetries: fewer,
  gate: notExact,
  fallbackModels: theirs,
  maxParked: lower,
  schemaRetries: fewer,
  fork: { maxTokens: lower, maxToolResultChars: theirs, whole: theirs },
  worktree: { setup: theirs, copy: theirs, keepDays: theirs, dropUnmerged: theirs },
  each: { ask: lower, most: lower },
  board: { dir: theirs, agents: both, schedule: theirs, maxConcurrentRuns: lower, purse: withLower },
  web: { port: theirs, host: theirs },
  hosts: owns,
}

/**
 * The options that hold. `own`: the user's, undefined where there are none; `project`: undefined where the project has
 * none of its own.
 */
export function meet(own: unknown, project: unknown): Met {
  const mine = readOptions(own)
  const other = readOptions(project, own === undefined ? undefined : complete(mine.given))
  const held: string[] = []
  const { allowed, refused } = sift(mine.given, other.given)
  const options = complete(met(RULES, mine.given, allowed, "", held))
  const problems = [...mine.problems, ...other.problems]
  const changed = { turnedOn: turnedOn(mine.given, allowed), widened: widened(mine.given, allowed) }
  return { options, problems, ...changed, refused, held }
}

/** Takes out of a project's options what would run as its user, or write outside of it, with nobody but it asking. */
function sift(own: Given, project: Given): { readonly allowed: Given; readonly refused: readonly string[] } {
  const refused: string[] = []
  const { hosts, ...others } = project
  const allowed: Record<string, unknown> = others
  const mine = (own.hosts ?? {}) as Given
  const known = Object.entries((hosts ?? {}) as Given).filter(([name]) => Object.hasOwn(mine, name))
  if (known.length > 0) allowed.hosts = Object.fromEntries(known)
  for (const name of Object.keys((hosts ?? {}) as Given))
    if (!Object.hasOwn(mine, name))
      refused.push(
        `This project's configuration names the host "${name}" (option "hosts"). It is left out: a host is reached by a command that runs as you, so only your own configuration can name one. ${TO_ALLOW}`,
      )
  const board = allowed.board as Given | undefined
  const dir = board?.dir as string | undefined
  if (board && dir !== undefined && isOutside(dir) && dir !== (own.board as Given | undefined)?.dir) {
    const { dir: _outside, ...rest } = board
    allowed.board = rest
    refused.push(
      `This project's configuration puts the board's files outside of the project: option "board.dir" is ${JSON.stringify(dir)}. It is left out, so they lie where they do without it. Only your own configuration can name such a folder. ${TO_ALLOW}`,
    )
  }
  return { allowed, refused }
}

const TO_ALLOW =
  "If you want it, write it into the options of opencode-superagents in ~/.config/opencode/opencode.json."

const isOutside = (folder: string): boolean => isAbsolute(folder) || /^\.\.([/\\]|$)/.test(normalize(folder))

function met(rules: object, own: Given, project: Given, path: string, held: string[]): Given {
  const result: Record<string, unknown> = { ...own, ...project }
  for (const [key, rule] of Object.entries(rules) as [string, Rule | object][]) {
    const [mine, other] = [own[key], project[key]]
    if (mine === undefined || other === undefined) continue
    if (typeof rule === "function") {
      result[key] = rule(mine, other)
      const told = `${path}${key}: your ${JSON.stringify(mine)} holds, not the project's ${JSON.stringify(other)}`
      if (!isDeepStrictEqual(result[key], other)) held.push(told)
    } else result[key] = met(rule, mine as Given, other as Given, `${key}.`, held)
  }
  return result
}

const BUDGETS = [
  "maxTokensPerTask",
  "maxTokensPerSession",
  "maxCostPerTask",
  "maxCostPerSession",
  "maxCostPerDay",
] as const

const widened = (own: Given, project: Given): string[] =>
  BUDGETS.filter((key) => {
    if (own[key] !== undefined || project[key] === undefined) return false
    return lower(DEFAULTS[key], project[key]) !== project[key]
  }).map((key) => `${key} ${project[key]}`)

type Purse = { readonly max: number } | undefined

/** What only the project has switched on: a purse that spends its user's money, a switch that is off for the user, a command, or a part of the plugin. */
function turnedOn(own: Given, project: Given): string[] {
  const switches = ["enabled", "allowModelOverride"].filter((key) => own[key] === false && project[key] === true)
  const parts = ["board", "web"].filter((key) => own[key] === undefined && project[key] !== undefined)
  const [mine, other] = [own, project].map(({ worktree }) => (worktree as Given | undefined)?.setup ?? "")
  const [purse, nightly] = [own, project].map(({ board }) => (board as Given | undefined)?.purse) as [Purse, Purse]
  const night = nightly && !purse ? [`board.purse: ${budget(nightly.max)} each night`] : []
  const exact = own.gate === undefined && project.gate === "exact" ? ["gate: exact"] : []
  return [...switches, ...exact, ...parts, ...night, ...(other !== "" && other !== mine ? ["worktree.setup"] : [])]
}
