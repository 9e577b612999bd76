import { CallError } from "../core/errors.ts"
import type { Argument, Feature } from "../core/feature.ts"
import { ANY_PAUSE } from "../core/pause.ts"
import type { Options } from "../options/options.ts"
import { HERE } from "../runtime/places/here.ts"

/**
 * Modes of superagents_task with required and optional arguments. The argument with a mode's name selects it; without
 * one, the call launches a new task.
 */
const MODES = {
  new: {
    needs: ["prompt", "description", "agent"],
    takes: ["model", "batch", "timeout", "max_cost", "after", "place", "merge"],
    because: "",
  },
  resume: {
    needs: [],
    // Required except for tries and items; the optional ones were always accepted.
    takes: ["prompt", "timeout", "max_cost", "merge", "description"],
    because: "a resumed task keeps its own",
  },
  tell: {
    needs: ["prompt"],
    takes: [],
    because: "a task at work keeps what it was launched with",
  },
  unpark: {
    needs: [],
    takes: ["model"],
    because: `it only tries a ${ANY_PAUSE} task now`,
  },
  merge: {
    needs: [],
    takes: ["description"],
    because: "it brings what an ended task has changed into your files",
  },
} as const satisfies Record<string, Mode>

type Mode = { readonly needs: readonly string[]; readonly takes: readonly string[]; readonly because: string }

export type ModeName = keyof typeof MODES

type Features = readonly Feature[]

export const argumentsIn = (features: Features): readonly (readonly [string, Argument])[] =>
  features.flatMap((feature) => Object.entries(feature.arguments ?? {}))

/** Arguments of a mode, with those of features. */
function takenBy(name: ModeName, features: Features): readonly string[] {
  const own = name === "new" || name === "resume" ? argumentsIn(features) : []
  return [...MODES[name].takes, ...own.flatMap(([each, { resumes }]) => (name === "new" || resumes ? [each] : []))]
}

/** Explanation for a missing argument. */
const MISSING: Readonly<Record<string, string>> = {
  description: "3 to 5 words for the user",
  agent: "the name of the agent that does the work",
  prompt: "what the agent shall do, or what it is told",
}

/** Effect of each mode that names a task. */
const DOES: Readonly<Record<Exclude<ModeName, "new">, string>> = {
  resume: "an ended task is resumed",
  tell: "a task at work is told",
  unpark: `a ${ANY_PAUSE} task is tried now`,
  merge: "the work of an ended task is merged",
}

/** Error for arguments that do not fit together; checked before all others. */
export function argumentsRefusal(
  args: Readonly<Record<string, unknown>>,
  features: Features,
  options: Options,
): CallError | undefined {
  const { merge } = args
  if (merge === "true" || merge === "false")
    return new CallError(
      `Argument \`merge\`: true or false without quotes, or the id of a task that is to be merged now. Got "${merge}".`,
    )
  const given = givenIn(args)
  const asked = given.filter((name) => name !== "merge" || merge !== true)
  const modes = (Object.keys(DOES) as (keyof typeof DOES)[]).filter((mode) => asked.includes(mode))
  if (modes.length > 1)
    return new CallError(
      `${quoted(modes)} are mutually exclusive: ${modes.map((mode) => DOES[mode]).join(", ")}. Use one of them. Nothing was done.`,
    )
  const own = argumentsIn(features).flatMap(([one, { excludes = {} }]) =>
    Object.entries(excludes).map(([other, why]) => [one, other, why] as const),
  )
  const pair = own.find(([one, other]) => asked.includes(one) && asked.includes(other))
  const name = nameIn(args, given)
  if (!pair) return othersIn(name, given, features) ?? (name === "new" ? refusalOf(args, features, options) : undefined)
  const [one, other, why] = pair
  return new CallError(
    `\`${one}\` and \`${other}\` are mutually exclusive: ${why}. Use one of them. Nothing was launched.`,
  )
}

/** Mode of a call. Throws a `CallError` where a required argument is missing, or one does not fit. */
export function modeOf(args: Readonly<Record<string, unknown>>, features: Features, options: Options): ModeName {
  const refusal = argumentsRefusal(args, features, options)
  if (refusal) throw refusal
  const given = givenIn(args)
  const name = nameIn(args, given)
  // A whole fork uses its caller's agent.
  const isKnown = (argument: string) => given.includes(argument) || (argument === "agent" && args.fork === "whole")
  const missing = MODES[name].needs.filter((each) => !isKnown(each))
  if (missing.length === 0) return name
  throw new CallError(missing.map((each) => `Argument \`${each}\` is missing: ${MISSING[each]}.`).join(" "))
}

/** Models send null, false and empty texts for absent arguments. */
const givenIn = (args: Readonly<Record<string, unknown>>): readonly string[] =>
  Object.keys(args).filter((name) => ![undefined, null, false, ""].includes(args[name] as undefined))

/** `merge` names a task to merge now, or is a flag of another mode. */
const nameIn = ({ merge }: Readonly<Record<string, unknown>>, given: readonly string[]): ModeName =>
  (Object.keys(MODES) as ModeName[]).find((mode) => given.includes(mode) && !(mode === "merge" && merge === true)) ??
  "new"

/** Error for an argument of a new task that needs another one, or an option. */
function refusalOf(
  args: Readonly<Record<string, unknown>>,
  features: Features,
  options: Options,
): CallError | undefined {
  for (const { refuses } of features) {
    const why = refuses?.(args, options)
    if (why !== undefined) return new CallError(`${why} Nothing was launched.`)
  }
  return args.tries ? undefined : withoutPlace(args)
}

const hasPlace = (place: unknown): boolean => ![undefined, null, "", HERE].includes(place as string)

function withoutPlace({ merge, place }: Readonly<Record<string, unknown>>): CallError | undefined {
  if (merge !== true || hasPlace(place)) return undefined
  return new CallError(
    '`merge: true` goes with `place: "worktree"`: what is done in your own folder is there already. To merge an ended task, give `merge` its id. Nothing was launched.',
  )
}

function othersIn(name: ModeName, given: readonly string[], features: Features): CallError | undefined {
  const { needs, because }: Mode = MODES[name]
  const takes = takenBy(name, features)
  // Those of no mode are told of elsewhere.
  const modes = Object.keys(MODES) as ModeName[]
  const known = new Set(modes.flatMap((mode) => [...MODES[mode].needs, ...takenBy(mode, features)]))
  const isOther = (each: string) => each !== name && !needs.includes(each) && !takes.includes(each)
  const others = given.filter((each) => known.has(each) && isOther(each))
  if (others.length === 0) return undefined
  const allowed = [...needs, ...takes.filter((each) => each !== "description")]
  const takesWhat =
    allowed.length === 0 ? "stands alone" : `takes ${quoted(allowed)}${allowed.length === 1 ? " alone" : ""}`
  return new CallError(`With \`${name}\`, leave out ${quoted(others)}: ${because}. It ${takesWhat}.`)
}

const quoted = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(", ")
