import { z } from "zod"
import { CallError, messageOf } from "../core/errors.ts"
import { type Argument, type Feature, groupKinds } from "../core/feature.ts"
import type { Group } from "../core/group.ts"
import { type AgentInfo, isListed, MAX_TIMER_MS, type ToolResult } from "../core/ports.ts"
import { addBounded } from "../lib/collections.ts"
import { duration } from "../lib/format.ts"
import { capital, count, cut, oneLine } from "../lib/text.ts"
import type { Options } from "../options/options.ts"
import { text } from "../options/spec.ts"
import { renderLaunch, renderResume, renderTold, renderUnparked } from "../present/launch.ts"
import { renderMerges } from "../present/list.ts"
import { renderMerge } from "../present/output.ts"
import type { TaskView } from "../present/view.ts"
import { defaultsOf } from "../runtime/launch/checks.ts"
import { groupArgument } from "../runtime/launch/request.ts"
import { HERE, kindOf, type PlaceKind } from "../runtime/places/place.ts"
import type { TaskManager } from "../runtime/task-manager.ts"
import { type CallContext, defineTool, MOST_BATCH_CHARS, MOST_ID_CHARS, type Tool } from "./tool.ts"

/**
 * Modes of superagents_task, with required and optional arguments. An argument with a mode's name selects this mode; a
 * call without such an argument launches a new task.
 */
const MODES = {
  new: {
    needs: ["prompt", "description", "agent"],
    takes: ["model", "batch", "timeout", "max_cost", "after", "place", "merge"],
    because: "",
  },
  resume: {
    needs: [],
    // `prompt` is required except for groups. The other arguments are optional and have always been accepted.
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
    because: `it only tries a parked task now`,
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

const argumentsIn = (features: Features): readonly (readonly [string, Argument])[] =>
  features.flatMap((feature) => Object.entries(feature.arguments ?? {}))

/** Optional arguments of a mode, including arguments of features. */
function takenBy(name: ModeName, features: Features): readonly string[] {
  const own = name === "new" || name === "resume" ? argumentsIn(features) : []
  return [...MODES[name].takes, ...own.flatMap(([each, { resumes }]) => (name === "new" || resumes ? [each] : []))]
}

/** Describes each required argument, for the error when it is missing. */
const MISSING: Readonly<Record<string, string>> = {
  description: "3 to 5 words for the user",
  agent: "the name of the agent that does the work",
  prompt: "what the agent shall do, or what it is told",
}

/** Says what each mode does that names a task. */
const DOES: Readonly<Record<Exclude<ModeName, "new">, string>> = {
  resume: "an ended task is resumed",
  tell: "a task at work is told",
  unpark: `a parked task is tried now`,
  merge: "the work of an ended task is merged",
}

/** The error if arguments do not fit together; undefined if they do. Checked before all other errors. */
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
  // A whole fork always uses its parent's agent, so `agent` is not required.
  const isKnown = (argument: string) => given.includes(argument) || (argument === "agent" && args.fork === "whole")
  const missing = MODES[name].needs.filter((each) => !isKnown(each))
  if (missing.length === 0) return name
  throw new CallError(missing.map((each) => `Argument \`${each}\` is missing: ${MISSING[each]}.`).join(" "))
}

/** Names of given arguments. Models send null, false and empty texts for absent arguments, so these do not count. */
const givenIn = (args: Readonly<Record<string, unknown>>): readonly string[] =>
  Object.keys(args).filter((name) => ![undefined, null, false, ""].includes(args[name] as undefined))

/**
 * Mode that the given arguments select. A `merge` with a task's id is a mode; `merge: true` is an argument of another
 * mode.
 */
const nameIn = ({ merge }: Readonly<Record<string, unknown>>, given: readonly string[]): ModeName =>
  (Object.keys(MODES) as ModeName[]).find((mode) => given.includes(mode) && !(mode === "merge" && merge === true)) ??
  "new"

/** Error for an argument of a new task that is useless without another argument or an option. */
function refusalOf(
  args: Readonly<Record<string, unknown>>,
  features: Features,
  options: Options,
): CallError | undefined {
  for (const { refuses } of features) {
    const why = refuses?.(args, options)
    if (why !== undefined) return new CallError(`${why} Nothing was launched.`)
  }
  return groupArgument(features, args)?.kind.picksOne ? undefined : withoutPlace(args)
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
  // Arguments that belong to no mode are reported elsewhere.
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

const MOST_DESCRIPTION_CHARS = 200
const MOST_PROMPT_CHARS = 100_000
const MOST_AFTER = 50
const MOST_PURPOSE_CHARS = 160

type TextOptions = Pick<Options, "notifyAnswerChars" | "wake" | "resumable" | "nativeTask">

/** `groups`: nouns for members of groups. */
const descriptionOf = (
  { notifyAnswerChars, wake, resumable, nativeTask }: TextOptions,
  groups: readonly string[],
): string =>
  `Hand work to another agent, which does it in the background while you go on; several in one message run side by side.

You get a task id at once, and an automatic message when the task ends${notifyAnswerChars > 0 ? ", with the answer (of a long one the beginning)" : "; then fetch the answer with superagents_output"}.${wake === "never" ? " It starts no turn of yours: you read it in the next one." : ""} With nothing else to do, say that you are waiting and end your turn: do not sleep, poll or ask for the status. Before your final answer, cancel what you no longer need.

If you can do nothing without the answer, ${nativeTask ? "use `task` where you have it" : "wait for it with `superagents_output` and `block: true`"}; do not delegate what one or two calls can do.

- fresh (default): it knows nothing of this conversation: put all it needs, and what to report back, into \`prompt\`.${resumable.length > 0 ? resumeMode(resumable, groups) : ""}
- \`tell\`, a task id, with \`prompt\` alone: say something to a task at work; it reads it at its next step.

Agents that write need files of their own, or \`place: "worktree"\`.`

const RESUMES: Readonly<Record<Options["resumable"][number], string>> = {
  completed: "a completed task is asked again",
  error: "a failed or interrupted one goes on",
  cancelled: "a cancelled one goes on",
}

const resumeMode = (resumable: Options["resumable"], groups: readonly string[]): string =>
  `\n- \`resume\`, a task id, with \`prompt\`: ${resumable.map((status) => RESUMES[status]).join(", ")}; it remembers its work.${groups.length > 0 ? ` ${capital(groups.join(" and "))}: what is not done yet runs, without \`prompt\`.` : ""}`

/** Most sessions for which the limits that were named last are kept. */
const MOST_SESSIONS = 256

type Given = Readonly<Record<string, unknown>>

/** Tool to launch, resume and message tasks. */
export function taskTool(manager: TaskManager, options: Options): Tool {
  const { features } = manager
  const placeOf = ({ task: { place } }: TaskView) => place && kindOf(manager.kinds, place.kind).called(place.kind)
  const begun = (view: TaskView, allowance: readonly string[]) => {
    const results = manager.resultsOf(view.task)
    return { view, allowance, results, place: placeOf(view), closed: manager.parts.waits.limitOf(view.task) }
  }
  const toldLimits = new Map<string, string>()
  /** Limits of a launched task: the time its call gave, and the others where they are news to its parent. */
  const newLimits = ({ task }: TaskView, timeout = 0): readonly string[] => {
    const limits = manager.parts.allowance.of(task)
    const isKnown = toldLimits.get(task.parentID) === limits.join()
    addBounded(toldLimits, task.parentID, limits.join(), MOST_SESSIONS)
    if (task.group) return [...groupLimits(task.group, options), ...limits]
    return [...(timeout > 0 ? [`${duration(timeout)} to run`] : []), ...(isKnown ? [] : limits)]
  }
  /** Adds the agent's default place, other than "here", to a call with `merge` or `guard` and without `place`. */
  const withPlace = (args: Given): Given => {
    const isSet = (args.merge === true || args.guard !== undefined) && args.fork !== "whole"
    const { place } = isSet ? defaultsOf(options, String(args.agent)) : {}
    return place === undefined || place === HERE || args.place ? args : { ...args, place }
  }
  return defineTool({
    description: descriptionOf(
      options,
      groupKinds(features).map(({ noun }) => noun.many),
    ),
    args: argumentsOf(options, manager),
    asGiven: argumentsIn(features).flatMap(([name, { asGiven }]) => (asGiven ? [name] : [])),
    withheld: [...(options.allowModelOverride ? [] : ["model"]), ...(options.resumable.length > 0 ? [] : ["resume"])],
    refuse: (given) => argumentsRefusal(withPlace(given), features, options),
    async run(args, caller) {
      const { prompt = "", timeout, max_cost: maxCost } = args
      const merge = args.merge === true
      const own = Object.fromEntries(argumentsIn(features).map(([name]) => [name, (args as Given)[name]]))
      const mode = modeOf(withPlace(args), features, options)
      if (mode === "merge") return mergeAll(manager, options, String(args.merge), caller)
      if (mode === "unpark")
        return renderUnparked(await manager.unpark(args.unpark ?? "", caller.sessionID, args.model))
      if (mode === "tell") return renderTold(await manager.tell(args.tell ?? "", prompt, caller))
      if (mode === "resume") {
        const request = { ...own, prompt, timeout, maxCost, merge }
        const view = await manager.resume(args.resume ?? "", request, caller)
        const times = view.task.group && timeout ? groupLimits(view.task.group, options) : []
        return renderResume(begun(view, [...times, ...manager.parts.allowance.of(view.task)]))
      }
      const { model, place } = args
      const after = typeof args.after === "string" ? oneLine(args.after) : args.after
      const { agent } = args
      const description = oneLine(args.description ?? "")
      const batch = args.batch && oneLine(args.batch)
      const asked = { description, prompt, agent, model, batch, timeout, maxCost, after, place, merge }
      const request = { ...own, ...asked }
      const launched = await manager.launch(request, caller)
      const constraints = begun(launched.view, newLimits(launched.view, timeout))
      return renderLaunch({ ...launched, ...constraints }, model !== undefined)
    },
  })
}

/** `30m for each`, `at most 10 tasks at once`. */
const groupLimits = ({ timeout }: Group, { maxConcurrentTasks }: Options): readonly string[] => [
  ...(timeout > 0 ? [`${duration(timeout)} for each`] : []),
  ...(maxConcurrentTasks > 0 ? [`at most ${count(maxConcurrentTasks, "task")} at once`] : []),
]

/**
 * Merges a task, or in order all tasks of a batch or all members of a group. Each is merged onto the result of the earlier
 * merges.
 */
async function mergeAll(
  manager: TaskManager,
  options: Options,
  reference: string,
  caller: CallContext,
): Promise<ToolResult> {
  const ids = await manager.idsOf(reference, caller.sessionID)
  const [only] = ids
  if (only !== undefined && ids.length === 1) return renderMerge(await manager.merge(only, caller), options)
  const results = new Map<string, TaskView | CallError>()
  for (const id of ids) {
    try {
      results.set(id, await manager.merge(id, caller))
    } catch (error) {
      const again = `Its merge failed (${oneLine(messageOf(error))}). superagents_task(merge="${id}") tries it again.`
      results.set(id, error instanceof CallError ? error : new CallError(again))
    }
  }
  return renderMerges(results, options)
}

/**
 * Adds the available agents to a tool's description. Their order is fixed, so that the provider's cache still serves
 * the requests.
 */
export function withAgents(description: string, agents: readonly AgentInfo[]): string {
  const sorted = agents.filter(isListed).sort((one, other) => (one.name < other.name ? -1 : 1))
  const lines = sorted.map(
    ({ name, description: purpose }) => `- ${name}: ${firstSentence(purpose) || "(no description)"}`,
  )
  return `${description}\n\nAgents:\n${lines.join("\n")}`
}

/** First sentence of an agent's description. A period after an abbreviation does not end the sentence. */
function firstSentence(text: string): string {
  const line = oneLine(text, text.length)
  const end = /[.!?](?= +["'(]?\p{Lu})|[。！？]/u.exec(line)
  return cut(end ? line.slice(0, end.index + 1) : line, MOST_PURPOSE_CHARS)
}

/** The arguments of features, in the order of the features. */
const shapeOf = (features: readonly Feature[], options: Options): z.ZodRawShape =>
  Object.fromEntries(argumentsIn(features).map(([name, { schema }]) => [name, schema(options)]))

function argumentsOf(options: Options, { kinds, features }: TaskManager) {
  const { taskTimeout: maxTimeout, maxCostPerTask } = options
  const cost = z.number().positive()
  const atMost = (most: number, option: string) => `at most ${most} is allowed (option ${option})`
  const id = text(MOST_ID_CHARS)
  return {
    description: text(MOST_DESCRIPTION_CHARS).optional().describe("3 to 5 words for the user."),
    prompt: text(MOST_PROMPT_CHARS).optional(),
    agent: text(200).optional().describe("New tasks need this and description."),
    resume: id.optional(),
    tell: id.optional(),
    unpark: id.optional().describe(`Id of a parked task (its provider is at its limit or down): try it now.`),
    model: text(200).optional().describe("provider/model[#variant]."),
    ...workArguments(kinds),
    ...shapeOf(features, options),
    batch: text(MOST_BATCH_CHARS).optional().describe("Name that groups tasks."),
    timeout: z
      .int()
      .min(1)
      .max(maxTimeout || MAX_TIMER_MS, maxTimeout > 0 ? atMost(maxTimeout, "taskTimeout") : undefined)
      .optional()
      .describe("Most ms to run."),
    max_cost: (maxCostPerTask > 0 ? cost.max(maxCostPerTask, atMost(maxCostPerTask, "maxCostPerTask")) : cost)
      .optional()
      .describe("Most US dollars."),
    after: z
      .union([z.array(id).min(1).max(MOST_AFTER), text(MOST_BATCH_CHARS)])
      .optional()
      .describe(
        "Task ids or a batch: begins when all have completed (one that does not cancels it), with their answers; it sees only merged work.",
      ),
  }
}

/** Arguments that say where a task works, and what happens to its changes. */
const workArguments = (kinds: readonly PlaceKind[]) => ({
  place: z
    .enum(kinds.flatMap(({ names }) => names))
    .optional()
    .describe(
      kinds
        .map(({ described }) => described)
        .filter(Boolean)
        .join(" "),
    ),
  merge: z
    .union([z.boolean(), text(MOST_ID_CHARS)])
    .optional()
    .describe(
      "Brings its worktree's changes into your files, uncommitted: true, once completed; a task id or batch alone, now.",
    ),
})
