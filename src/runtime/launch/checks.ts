import { createHash } from "node:crypto"
import { CallError, candidatesText, listed, messageOf, nearest } from "../../core/errors.ts"
import type { Pauser } from "../../core/feature.ts"
import { modelKey, modelOfName } from "../../core/limits.ts"
import { type AgentInfo, isListed, type OpencodeApi, type Rule, type SessionInfo } from "../../core/ports.ts"
import { hasEnded } from "../../core/run/active-run.ts"
import type { Model, Task } from "../../core/task.ts"
import { capital } from "../../lib/text.ts"
import type { Options } from "../../options/options.ts"
import type { Services } from "../services.ts"
import type { TaskStore } from "../tasks/store.ts"

/** Checks before a launch or resume changes anything. Each throws a `CallError` that says what was expected. */
type CheckPorts = { readonly opencode: OpencodeApi; readonly options: Options; readonly store: TaskStore }

export type Caller = {
  readonly sessionID: string
  readonly messageID: string
  /** Aborted when the user stops the calling turn. */
  readonly abort?: AbortSignal
  /** Rejects where the user or the calling agent's rules forbid to launch this agent. */
  readonly authorize?: (agent: string, description: string) => Promise<void>
  /** Rejects where the user or the calling agent's rules forbid this action. */
  readonly permit?: (what: Permit) => Promise<void>
}

/** Action that needs permission. `files`: files that will change, as far as known. */
export type Permit =
  | { readonly kind: "run"; readonly command: string }
  | { readonly kind: "edit"; readonly files: readonly string[] }
  | { readonly kind: "read"; readonly file: string }
  /** Permission of a feature. `what`: text for the user. */
  | { readonly kind: "own"; readonly permission: string; readonly what: string }

/** Tools denied to a child at the depth limit. The child can launch no tasks, so these tools are of no use to it. */
const USELESS_AT_LIMIT = [
  "superagents_task",
  "superagents_output",
  "superagents_list",
  "superagents_cancel",
  "superagents_clear",
  "task",
] as const

/**
 * OpenCode offers this tool to some agents only. The option `childQuestions` allows the tool to all children; without
 * the option, no child gets it.
 */
export const QUESTIONS = "question"

/**
 * True where nobody would look after a new task: the caller's turn was stopped, its session was deleted, or the task of
 * the calling session has ended.
 */
export function isStopped({ store }: Pick<CheckPorts, "store">, { sessionID, abort }: Caller): boolean {
  const task = store.bySession(sessionID)
  const run = task && store.run(task.id)
  if (abort?.aborted || store.wasDeleted(sessionID)) return true
  return run !== undefined && hasEnded(run) && run.calls > 0
}

/** Argument of a call that names a model, or models in a list. */
type ModelArgument = { readonly name: string; readonly isList?: boolean }

const MODEL: ModelArgument = { name: "model" }

/** Model named by a call. Rejects where it does not exist. */
export async function chooseModel(ports: CheckPorts, wanted: string, argument = MODEL): Promise<Model> {
  refuseOverride(ports, argument)
  return findModel(ports, wanted, `argument \`${argument.name}\``)
}

function refuseOverride({ options }: Pick<CheckPorts, "options">, { name, isList }: ModelArgument): void {
  if (options.allowModelOverride) return
  const what = isList ? `Models in argument \`${name}\` are` : `Argument \`${name}\` is`
  throw new CallError(
    `${what} not allowed here (option allowModelOverride is false). Leave ${isList ? "them" : "it"} out to use the agent's or your own model.`,
  )
}

/** Finds `provider/model` or `provider/model#variant`. `where`: source of the name, for the error. */
async function findModel({ opencode }: Pick<CheckPorts, "opencode">, wanted: string, where: string): Promise<Model> {
  const models = await opencode.models()
  if (!models.includes(wanted)) {
    const close = nearest(wanted, models)
    const hint = close.length > 0 ? `Did you mean: ${listed(close)}?` : candidatesText(models)
    throw new CallError(`No model "${wanted}" (${where}, as provider/model or provider/model#variant). ${hint}`)
  }
  const model = modelOfName(wanted)
  // The id of a model may end like a variant of another.
  return models.includes(modelKey(model)) ? model : { provider: model.provider, id: `${model.id}#${model.variant}` }
}

/** Model that the user's options or OpenCode's configuration give an agent; undefined for none. */
export async function modelOfAgent(ports: CheckPorts, { name, model }: AgentInfo): Promise<Model | undefined> {
  const { model: set } = defaultsOf(ports.options, name)
  return set === undefined ? model : findModel(ports, set, `option agents.${name}.model`)
}

/** Parses a model's name without looking it up: a remote machine has models of its own. */
export function modelNamed(ports: Pick<CheckPorts, "options">, wanted: string, argument = MODEL): Model {
  refuseOverride(ports, argument)
  return modelOfName(wanted)
}

/** User's defaults for an agent. A timeout among them never exceeds the timeout for all tasks. */
export function defaultsOf({ agents, taskTimeout }: Options, agent = ""): Options["agents"][string] {
  const { timeout, ...set } = Object.hasOwn(agents, agent) ? (agents[agent] ?? {}) : {}
  if (!timeout) return set
  return { ...set, timeout: taskTimeout === 0 ? timeout : Math.min(timeout, taskTimeout) }
}

/** Depth of a task launched in the session. Throws above the limit. */
export async function depthBelow(
  ports: CheckPorts,
  sessionID: string,
  session: SessionInfo | undefined,
): Promise<number> {
  const depth = (await depthOf(ports, sessionID, session)) + 1
  const { maxDepth } = ports.options
  if (maxDepth === 0 || depth <= maxDepth) return depth
  throw new CallError(
    `No task can be launched here: this session is ${depth - 1} deep already, and the option maxDepth allows ${maxDepth}. Do the work yourself.`,
  )
}

async function depthOf(ports: CheckPorts, sessionID: string, session?: SessionInfo): Promise<number> {
  const known = ports.store.bySession(sessionID)
  if (known) return known.depth
  const info = session ?? (await ports.opencode.parent(sessionID))
  if (info?.record) return info.record.task.depth
  return info?.parentID ? (await depthOf(ports, info.parentID)) + 1 : 0
}

export function refuseUnlessResumable(task: Task, resumable: Options["resumable"]): void {
  const { id, status, group } = task
  // No agent reads messages to a group.
  const tell = group ? [] : [`say it now with superagents_task(tell="${id}", prompt)`]
  if (status === "resumed") throw alreadyResumed(id, tell)
  const allowed: readonly string[] = resumable
  if (allowed.includes(status)) return
  const which = allowed.length > 0 ? `Only ${allowed.join(" or ")} tasks can be resumed` : NOTHING_RESUMABLE
  const wait = allowed.length > 0 || group ? ["wait until it has finished"] : []
  const next = status === "running" ? capital([...tell, ...wait].join(", or ")) : "Start a new superagents_task instead"
  throw new CallError(`${which}; task ${id} is ${status}. ${next}.`)
}

/** Throws where the task was launched without `merge`: a resume cannot change the place that the launch chose. */
export function refuseUnlessMerging({ id, group, place = group?.place }: Task): void {
  if (place?.merge) return
  throw new CallError(
    place
      ? `Task ${id} was launched without \`merge: true\`: resume it without \`merge\`, and when it has ended call superagents_task(merge="${id}").`
      : `Task ${id} works in your own folder, where its work is already: resume it without \`merge\`.`,
  )
}

const NOTHING_RESUMABLE = "No task can be resumed (option resumable)"

/** `instead`: what else the caller may do now. */
export const alreadyResumed = (id: string, instead: readonly string[] = []): CallError => {
  const next = [...instead, "wait until that has finished, then resume it again"].join(", or ")
  return new CallError(`Task ${id} is currently being resumed. ${capital(next)}.`)
}

export async function authorize(caller: Caller, agent: string, description: string): Promise<void> {
  try {
    await caller.authorize?.(agent, description)
  } catch (error) {
    throw new CallError(
      `Launching agent "${agent}" was not allowed: ${messageOf(error)} Nothing was launched. Ask the user, or do it yourself.`,
    )
  }
}

/**
 * Rejects where the caller may not launch the task's agent: then the caller may not send messages to the task either.
 */
export async function authorizeTell(ports: Pick<CheckPorts, "store">, caller: Caller, task: Task): Promise<void> {
  const { id, agent, description } = task
  try {
    await caller.authorize?.(agent, description)
  } catch (error) {
    throw new CallError(`Telling agent "${agent}" was not allowed: ${messageOf(error)} Task ${id} was told nothing.`)
  }
  if (isStopped(ports, caller)) throw new CallError(`The call was stopped: task ${id} was told nothing.`)
}

/** Asks permission for what a launch or resume does in the caller's name, now or at its end. */
export async function permit(
  caller: Caller,
  { check, merge }: { readonly check?: string; readonly merge?: boolean },
): Promise<void> {
  try {
    if (check !== undefined) await caller.permit?.({ kind: "run", command: check })
  } catch (error) {
    throw new CallError(
      `Running the check \`${check}\` was not allowed: ${messageOf(error)} Nothing was launched. Name another check, or ask the user.`,
    )
  }
  try {
    if (merge) await caller.permit?.({ kind: "edit", files: [] })
  } catch (error) {
    throw new CallError(`Merging what it changes was not allowed: ${messageOf(error)} Nothing was launched.`)
  }
}

/** Returns a function that rejects where the caller may not read a file that an argument names. */
export const mayRead =
  (permitted: Caller["permit"]) =>
  async (file: string): Promise<void> => {
    try {
      await permitted?.({ kind: "read", file })
    } catch (error) {
      throw new CallError(`Reading ${file} was not allowed: ${messageOf(error)} Nothing was launched.`)
    }
  }

/** Asks the caller's permission to change these files by a merge. */
export async function permitEdit(caller: Caller, id: string, files: readonly string[]): Promise<void> {
  try {
    await caller.permit?.({ kind: "edit", files })
  } catch (error) {
    throw new CallError(`Merging task ${id} was not allowed: ${messageOf(error)} Nothing was changed.`)
  }
}

export function findAgent(name: string, agents: readonly AgentInfo[]): AgentInfo {
  const agent = agents.find((candidate) => candidate.name === name)
  if (agent) return agent
  const names = agents.filter(isListed).map((candidate) => candidate.name)
  throw new CallError(`No agent "${name}" (argument \`agent\`). ${candidatesText(names, 20)}`)
}

/**
 * The parent session's deny rules and its rules for external directories apply to every child, as for OpenCode's own
 * tasks. At the depth limit, tools for tasks are denied.
 */
export function rulesFor(
  { options: { childQuestions } }: Pick<CheckPorts, "options">,
  parent: SessionInfo | undefined,
  denied: readonly string[],
): readonly Rule[] {
  const rule = (permission: string, action: "allow" | "deny") => ({ permission, pattern: "*", action })
  const inherited = parent?.rules.filter(isInherited) ?? []
  const offered = childQuestions ? [rule(QUESTIONS, "allow")] : []
  return [...offered, ...inherited, ...denied.map((permission) => rule(permission, "deny"))]
}

type DenialPorts = Pick<Services, "opencode" | "options" | "deniedTools">

/** Tools denied at this depth; a trailing `*` matches any ending. */
export const deniedAt = (
  { opencode, deniedTools, options: { maxDepth, childQuestions } }: DenialPorts,
  depth: number,
): readonly string[] => [
  ...(maxDepth > 0 && depth >= maxDepth ? USELESS_AT_LIMIT : []),
  ...deniedTools,
  ...(childQuestions ? [] : [QUESTIONS]),
  ...opencode.primaryTools(),
]

const SHARED_TOOL_REFUSAL =
  "Refused: you are a background agent; these tools are here only because your parent has them. Do the work yourself."

/**
 * Returns why a task may not call a tool that OpenCode offers the task only because its parent has the tool; undefined
 * where the task may.
 */
export function refusalTo(ports: DenialPorts, { fork, depth }: Task, tool: string): string | undefined {
  if (!fork?.whole) return undefined
  const isDenied = deniedAt(ports, depth).some((name) =>
    name.endsWith("*") ? tool.startsWith(name.slice(0, -1)) : name === tool,
  )
  return isDenied ? SHARED_TOOL_REFUSAL : undefined
}

const isInherited = (rule: Rule): boolean => rule.action === "deny" || rule.permission === "external_directory"

/** Equal for two launches with the same agent, model and prompt. */
export function fingerprint(agent: string, model: Model | undefined, prompt: string): string {
  const key = JSON.stringify([agent, model ? modelKey(model) : "", model?.variant ?? "", prompt])
  return createHash("sha256").update(key).digest("base64url").slice(0, 22)
}

/**
 * Throws where requests to none of the models that a run would ask can be paid. If only some of them can, a try that
 * cannot gives way to the next.
 */
export function refuseUnpaid(
  { options, pauser }: Pick<CheckPorts, "options"> & { readonly pauser?: Pauser | undefined },
  models: readonly Model[],
  task?: Task,
): void {
  const whys = models.flatMap((model) => pauser?.refusesModel(model, task) ?? [])
  if (whys.length === 0 || whys.length < models.length) return
  const why = [...new Set(whys)].map((each) => each.replace(/\.$/, "")).join("; ")
  const next = options.allowModelOverride ? "Launch a new task with another model, or tell the user." : "Tell the user."
  throw new CallError(`Nothing was launched: ${why}. This does not pass by waiting. ${next}`)
}
