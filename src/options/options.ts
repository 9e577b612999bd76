import { isDeepStrictEqual } from "node:util"
import { z } from "zod"
import {
  count,
  dollars,
  isGroup,
  isPlainObject,
  milliseconds,
  option,
  projectSwitch,
  projectWins,
  type Specs,
  schemaOf,
  shownValue,
  stricter,
  stricterIfSet,
  stricterOfEach,
  stricterOfEachAgent,
  type ValuesOf,
} from "./spec.ts"

/**
 * Options that belong to no feature, written as the second element of the plugin's tuple in opencode.json. Times are
 * milliseconds, and 0 turns a limit off.
 */
const options = {
  enabled: option(() => z.boolean(), true, "Offer the tools at all.", projectSwitch),
  pollInterval: option(
    () => milliseconds().nullable(),
    null,
    "Time between two looks at OpenCode while a task runs, for events that were missed. 0: events alone. null: 12 s, and 2 s while nothing was heard of a task.",
    projectWins,
  ),
  maxConcurrentTasks: option(count, 10, "Tasks of one session that run at once. More wait their turn.", stricter),
  maxConcurrentPerModel: option(
    () => z.record(z.string(), count()),
    {},
    "Tasks that use one model at once, by provider/model.",
    stricterOfEach,
  ),
  agents: option(
    () =>
      z.record(
        z.string().min(1),
        z.strictObject({
          model: z.string().min(1).optional().describe("provider/model or provider/model#variant."),
          timeout: milliseconds().optional().describe("Longest duration of a run, where the call gives none."),
          maxCost: dollars().optional().describe("What a run may cost in US dollars, where the call gives nothing."),
          place: z.string().min(1).optional().describe("Where it works, where the call does not say."),
          maxConcurrent: count().optional().describe("Tasks of this agent that run at once, in all sessions."),
        }),
      ),
    {},
    'Defaults of single agents, for what a call does not say: {"explore": {"model", "timeout", "maxCost", "place", "maxConcurrent"}}, each of them optional.',
    stricterOfEachAgent,
  ),
  maxDepth: option(count, 1, "How deep tasks may launch tasks of their own. 1: they may not; 0: any depth.", stricter),
  maxLaunchesPerMinute: option(count, 60, "Launches of one session in a minute. More are refused.", stricter),
  taskTimeout: option(
    milliseconds,
    1_800_000,
    "Longest duration of a run, and the largest timeout a call may ask for. Waiting in the queue does not count.",
    stricter,
  ),
  stallTimeout: option(
    milliseconds,
    600_000,
    "Longest silence. Three times that while an agent writes a tool call. A running tool, an open question, a retry and tasks of its own are no silence.",
    stricter,
  ),
  maxRepeats: option(
    count,
    12,
    "Equal calls of an agent in a row with equal results: after so many it is told so, after twice as many it is asked for its last word (see lastWord) and ended. A call that took over 10 s does not count.",
    stricter,
  ),
  maxTokensPerTask: option(
    count,
    2_000_000,
    "Input, output, reasoning and cache write tokens of a run; cache reads do not count.",
    stricter,
  ),
  maxTokensPerSession: option(
    count,
    0,
    "The same tokens, of all tasks of a session and of those below them, ended ones too.",
    stricter,
  ),
  maxCostPerTask: option(
    dollars,
    0,
    "What a task may cost in US dollars, all its runs and its own tasks together.",
    stricter,
  ),
  maxCostPerSession: option(
    dollars,
    10,
    "What all tasks of a session, and those below them, may cost in US dollars, ended ones too.",
    stricter,
  ),
  maxCostPerDay: option(
    dollars,
    0,
    "What all tasks of the project may cost in US dollars within 24 hours, restarts or not.",
    stricter,
  ),
  lastWord: option(
    milliseconds,
    60_000,
    "How long before its time limit an agent is asked for its last word, a final answer without tools; a third of that limit at most. 0: it is never asked, whatever the limit.",
    projectWins,
  ),
  permissionTimeout: option(
    () => milliseconds().nullable(),
    null,
    "How long an agent's permission or other question may stay open before it is refused. null: 5 minutes, an hour where OpenCode's own terminal or the plugin's page is open, and in any case until an hour after a person last wrote; meanwhile no time of the task counts.",
    stricterIfSet,
  ),
  todoGrace: option(
    milliseconds,
    5000,
    "How long an idle agent with open todos is waited for before it counts as done.",
    projectWins,
  ),
  resultCacheTTL: option(
    milliseconds,
    300_000,
    "How long an answer is kept in memory, and an identical task is reused.",
    projectWins,
  ),
  maxHistory: option(count, 200, "Ended tasks kept for one session. Those that were read go first.", projectWins),
  reuseIdentical: option(
    () => z.boolean(),
    false,
    "The same prompt for the same agent and model, while it runs or within resultCacheTTL, returns the earlier task.",
    projectWins,
  ),
  allowModelOverride: option(() => z.boolean(), true, "Let the calling model choose a task's model.", projectSwitch),
  resumable: option(
    () => z.array(z.enum(["completed", "error", "cancelled"])),
    ["completed"],
    'Statuses that can be resumed; also "error" and "cancelled". Tries and maps that are not done always can.',
    projectWins,
  ),
  nativeTask: option(
    () => z.boolean(),
    true,
    "Offer OpenCode's own task tool, too. false takes it out of all requests, but for the turn of a message that mentions an agent.",
    projectWins,
  ),
  wake: option(
    () => z.enum(["each", "last", "never"]),
    "each",
    'Which notifications start the parent\'s model: "each", the "last" of a batch, or "never".',
    projectWins,
  ),
  notifyAnswerChars: option(
    () => z.int().min(0).max(20_000),
    4000,
    "Longest answer that comes whole with the notification; of a longer one the beginning. 0: none.",
    projectWins,
  ),
  childPrompt: option(
    () => z.union([z.boolean(), z.string().trim().min(1).max(10_000)]),
    true,
    "What a fresh agent's system prompt says of working in the background: your text, or false for nothing.",
    projectWins,
  ),
  childQuestions: option(
    () => z.boolean(),
    false,
    "Offer agents OpenCode's `question` tool, to ask the user with: all of them. false: none.",
    projectWins,
  ),
  verbose: option(
    () => z.boolean(),
    false,
    "Log every call to OpenCode, every transition, every notification; no prompt and no secret.",
    projectWins,
  ),
  toasts: option(() => z.boolean(), true, "Toasts at launch, at the end and when a question waits.", projectWins),
}

/** All options: each feature adds its own to this type. */
export interface Options extends ValuesOf<typeof options> {}

export const optionsOf = (features: readonly { readonly options?: Specs }[]): Specs =>
  Object.assign({ ...options }, ...features.map((feature) => feature.options))

/** Valid options that were set explicitly. */
export type GivenOptions = Readonly<Record<string, unknown>>

export const fillDefaults = (specs: Specs, given: GivenOptions): Options => filled(specs, given) as unknown as Options

function filled(specs: Specs, given: GivenOptions): GivenOptions {
  const values: Record<string, unknown> = {}
  for (const [key, spec] of Object.entries(specs)) {
    const value = given[key]
    if (!isGroup(spec)) values[key] = value === undefined ? spec.byDefault : value
    else if (value !== undefined || !spec.isPart) values[key] = filled(spec.options, (value ?? {}) as GivenOptions)
    if (values[key] === undefined) delete values[key]
  }
  return values
}

/**
 * Reads the options that a user wrote, without the defaults. Each wrong value or unknown key adds a line to `problems`;
 * instead of a wrong value, the value in `own` or else the default is used.
 */
export function readOptions(
  specs: Specs,
  input: unknown,
  own?: GivenOptions,
): { given: GivenOptions; problems: string[] } {
  if (input === undefined || input === null) return { given: {}, problems: [] }
  if (!isPlainObject(input))
    return { given: {}, problems: [`The options must be an object, not ${shownValue(input)}. Using the defaults.`] }
  const problems: string[] = []
  const instead = { word: own ? "Using" : "Using the default,", values: filled(specs, own ?? {}) }
  return { given: readObject(specs, input, instead, "", problems), problems }
}

function readObject(
  specs: Specs,
  input: Record<string, unknown>,
  instead: { readonly word: string; readonly values: GivenOptions },
  path: string,
  problems: string[],
): GivenOptions {
  const result: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(input)) {
    const name = path + key
    // Editors use this key; it is no option.
    if (name === "$schema") continue
    const spec = Object.hasOwn(specs, key) ? specs[key] : undefined
    if (!spec) {
      problems.push(`Unknown option "${name}". There are: ${Object.keys(specs).join(", ")}.`)
      continue
    }
    if (isPlainObject(value) && isGroup(spec)) {
      const values = (instead.values[key] ?? filled(spec.options, {})) as GivenOptions
      result[key] = readObject(spec.options, value, { ...instead, values }, `${key}.`, problems)
      continue
    }
    if (isPlainObject(value) && !isGroup(spec) && spec.read) {
      result[key] = spec.read(value, problems)
      continue
    }
    const parsed = schemaOf(spec).safeParse(value)
    if (parsed.success) result[key] = parsed.data
    else {
      const reason = parsed.error.issues[0]?.message ?? "not valid"
      const used = `${instead.word} ${shownValue(instead.values[key])}`
      problems.push(`Option "${name}" is ${shownValue(value)}: ${reason}. ${used}.`)
    }
  }
  return result
}

/**
 * A user's options merged with a project's. OpenCode passes on only one entry, the project's if there is one, so the
 * user's options would be lost without the merge.
 */
export type MergedOptions = {
  readonly options: Options
  readonly problems: readonly string[]
  /** Options that only the project turns on. */
  readonly turnedOn: readonly string[]
  /** Limits that the project raises above the default, where the user sets none. */
  readonly widened: readonly string[]
  /** Reasons why project options are ignored that only the user may set, one sentence for each option. */
  readonly refused: readonly string[]
  /** Options whose value is not the project's, because the user's is stricter in whole or in part, one line each. */
  readonly held: readonly string[]
}

/** Merges the user's options with the project's. Either argument may be undefined. */
export function mergeOptions(specs: Specs, own: unknown, project: unknown): MergedOptions {
  const mine = readOptions(specs, own)
  const other = readOptions(specs, project, own === undefined ? undefined : mine.given)
  const notes: MergeNotes = { turnedOn: [], widened: [], refused: [], held: [] }
  const options = fillDefaults(specs, merged(specs, mine.given, other.given, "", notes))
  return { options, problems: [...mine.problems, ...other.problems], ...notes }
}

type MergeNotes = { readonly [Name in "turnedOn" | "widened" | "refused" | "held"]: string[] }

function merged(specs: Specs, own: GivenOptions, project: GivenOptions, path: string, notes: MergeNotes): GivenOptions {
  const result: Record<string, unknown> = { ...own }
  for (const [key, spec] of Object.entries(specs)) {
    const name = path + key
    const [mine, given] = [own[key], project[key]]
    if (given === undefined) continue
    if (isGroup(spec)) {
      if (spec.isPart && mine === undefined) notes.turnedOn.push(name)
      result[key] = merged(spec.options, (mine ?? {}) as GivenOptions, given as GivenOptions, `${name}.`, notes)
      continue
    }
    const { rule, byDefault } = spec
    const { allowed: other, refused } = rule.restrict?.(mine, given) ?? { allowed: given, refused: [] }
    notes.refused.push(...refused)
    if (other === undefined) continue
    const on = rule.turnsOn?.(mine, other, name)
    if (on !== undefined) notes.turnedOn.push(on)
    if (mine === undefined) {
      result[key] = other
      if (rule.widens?.(other, byDefault)) notes.widened.push(`${name} ${other}`)
      continue
    }
    result[key] = rule.merge(mine, other)
    if (!isDeepStrictEqual(result[key], other)) notes.held.push(`${name}: ${heldText(mine, other, result[key])}`)
  }
  return result
}

function heldText(mine: unknown, other: unknown, result: unknown): string {
  const [own, theirs] = [`your ${JSON.stringify(mine)}`, `the project's ${JSON.stringify(other)}`]
  if (isDeepStrictEqual(result, mine)) return `${own} holds, not ${theirs}`
  return `${JSON.stringify(result)} holds, of ${own} and ${theirs}`
}
