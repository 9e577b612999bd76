import { CallError } from "../core/errors.ts"
import { ANY_PAUSE } from "../core/pause.ts"
import { HERE } from "../runtime/places/here.ts"

/**
 * The modes of superagents_task, each with the arguments that it needs and those that it takes beside them. A mode is
 * asked for by the argument of its name; without one, a new task is meant.
 */
const MODES = {
  new: {
    needs: ["prompt", "description", "agent"],
    takes: [
      "fork",
      "model",
      "batch",
      "timeout",
      "max_cost",
      "after",
      "place",
      "merge",
      "check",
      "schema",
      "guard",
      "tries",
      "each",
    ],
    because: "",
  },
  resume: {
    needs: [],
    // Needed but for tries and items; and what it does not use but was always let pass.
    takes: ["prompt", "timeout", "max_cost", "check", "schema", "merge", "description"],
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
    because: "it brings home what an ended task has done",
  },
} as const satisfies Record<string, Mode>

type Mode = { readonly needs: readonly string[]; readonly takes: readonly string[]; readonly because: string }

export type ModeName = keyof typeof MODES

/** Every argument of some mode: what is none is told of elsewhere. */
const ARGUMENTS = new Set(Object.values<Mode>(MODES).flatMap(({ needs, takes }) => [...needs, ...takes]))

/** What somebody who left an argument out has to know of it. */
const MISSING: Readonly<Record<string, string>> = {
  description: "3 to 5 words for the user",
  agent: "the name of the agent that does the work",
  prompt: "what the agent shall do, or what it is told",
}

/** Two arguments of which a call can have one, and why. */
const EXCLUSIVE = [
  ["fork", "resume", "a resumed task keeps its own history, a fork starts from yours"],
  ["tell", "fork", "a running task is told, a fork is a new one"],
  ["tries", "each", "each item is done once"],
  ["each", "fork", "each item starts fresh"],
  ["tries", "fork", "each try starts from the same files and nothing else"],
] as const

/** What each mode that names a task does with it. */
const DOES: Readonly<Record<Exclude<ModeName, "new">, string>> = {
  resume: "an ended task is resumed",
  tell: "a task at work is told",
  unpark: `a ${ANY_PAUSE} task is tried now`,
  merge: "the work of an ended task is merged",
}

/** What of a call's arguments does not go together, whatever else may be wrong with them. */
export function refusalOf(args: Readonly<Record<string, unknown>>): CallError | undefined {
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
  const pair = EXCLUSIVE.find(([one, other]) => asked.includes(one) && asked.includes(other))
  const name = nameIn(args, given)
  if (!pair) return othersIn(name, given) ?? (name === "new" ? withoutNeeded(args) : undefined)
  const [one, other, why] = pair
  return new CallError(
    `\`${one}\` and \`${other}\` are mutually exclusive: ${why}. Use one of them. Nothing was launched.`,
  )
}

/** The mode of a call. Throws a `CallError` where an argument that it needs is missing, or one does not go with it. */
export function modeOf(args: Readonly<Record<string, unknown>>): ModeName {
  const refusal = refusalOf(args)
  if (refusal) throw refusal
  const given = givenIn(args)
  const name = nameIn(args, given)
  // A fork that rides on the caller's cache is of the caller's own agent.
  const isKnown = (argument: string) => given.includes(argument) || (argument === "agent" && args.fork === "whole")
  const missing = MODES[name].needs.filter((each) => !isKnown(each))
  if (missing.length === 0) return name
  throw new CallError(missing.map((each) => `Argument \`${each}\` is missing: ${MISSING[each]}.`).join(" "))
}

/** Models send null, false and empty texts for what they leave out. */
const givenIn = (args: Readonly<Record<string, unknown>>): readonly string[] =>
  Object.keys(args).filter((name) => ![undefined, null, false, ""].includes(args[name] as undefined))

/** `merge` names a task that is to be merged now, or says of another mode's task that it shall be when completed. */
const nameIn = ({ merge }: Readonly<Record<string, unknown>>, given: readonly string[]): ModeName =>
  (Object.keys(MODES) as ModeName[]).find((mode) => given.includes(mode) && !(mode === "merge" && merge === true)) ??
  "new"

/** What an argument of a new task needs beside it. */
function withoutNeeded(args: Readonly<Record<string, unknown>>): CallError | undefined {
  const { tries, guard, check, place, model } = args
  const refused = (why: string) => new CallError(`${why} Nothing was launched.`)
  if (tries && !check) return refused("`tries` needs `check`: nothing else tells which of them is good.")
  if (tries && place === HERE)
    return refused(
      '`tries` and `place: "here"` do not go together: each try has a worktree of its own. Leave `place` out.',
    )
  if (Array.isArray(tries) && model)
    return refused("`model` and a list of models in `tries` do not go together. Leave `model` out.")
  if (guard && !check) return refused("`guard` needs `check`: who changes a guarded file does not pass it.")
  if (guard && !tries && !hasPlace(place))
    return refused(
      '`guard` needs `place: "worktree"` (or `tries`): in your own folder nobody can tell who changed a file.',
    )
  return tries ? undefined : withoutPlace(args)
}

const hasPlace = (place: unknown): boolean => ![undefined, null, "", HERE].includes(place as string)

function withoutPlace({ merge, place }: Readonly<Record<string, unknown>>): CallError | undefined {
  if (merge !== true || hasPlace(place)) return undefined
  return new CallError(
    '`merge: true` goes with `place: "worktree"`: what is done in your own folder is there already. To merge an ended task, give `merge` its id. Nothing was launched.',
  )
}

function othersIn(name: ModeName, given: readonly string[]): CallError | undefined {
  const { needs, takes, because }: Mode = MODES[name]
  const isOther = (each: string) => each !== name && !needs.includes(each) && !takes.includes(each)
  const others = given.filter((each) => ARGUMENTS.has(each) && isOther(each))
  if (others.length === 0) return undefined
  const allowed = [...needs, ...takes.filter((each) => each !== "description")]
  const takesWhat =
    allowed.length === 0 ? "stands alone" : `takes ${quoted(allowed)}${allowed.length === 1 ? " alone" : ""}`
  return new CallError(`With \`${name}\`, leave out ${quoted(others)}: ${because}. It ${takesWhat}.`)
}

const quoted = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(", ")
