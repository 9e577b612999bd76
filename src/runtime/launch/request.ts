import { realpath } from "node:fs/promises"
import { join, relative, sep } from "node:path"
import { CallError, messageOf } from "../../core/errors.ts"
import type { CallOfArgument, Feature, GroupKind } from "../../core/feature.ts"
import { modelOfName } from "../../core/limits.ts"
import type { AgentInfo, ModelFacts, Persona } from "../../core/ports.ts"
import type { Run, Schema, Task, TaskDraft } from "../../core/task.ts"
import type { Options } from "../../options/options.ts"
import { HERE, isFar, kindOf, type PlaceKind } from "../places/place.ts"
import type { Services } from "../services.ts"
import { type Caller, chooseModel, defaultsOf, findAgent, mayRead, modelNamed, modelOfAgent } from "./checks.ts"

export type LaunchRequest = {
  readonly description: string
  readonly prompt: string
  /** Optional only for a whole fork, which uses its caller's agent. */
  readonly agent?: string
  /** "whole": uncut history with the caller's agent and model, so that the provider's cache serves it. */
  readonly fork?: boolean | "whole"
  readonly model?: string
  readonly batch?: string
  readonly timeout?: number
  /** Budget of the run in US dollars. */
  readonly maxCost?: number
  /** Tasks that must complete first: ids, or a batch. */
  readonly after?: readonly string[] | string
  /** Name of a place; absent or "here" for the parent's folder. */
  readonly place?: string
  /** Merge the changes of a completed run at once. */
  readonly merge?: boolean
  /** Command that must pass before a run counts as completed. */
  readonly check?: string
  /** Globs of files that must not change. */
  readonly guard?: readonly string[]
  /** Group that an argument asks for. */
  readonly group?: GroupRequest
  /** JSON Schema for the last message, or a file with one. */
  readonly schema?: Schema | string
  /** Files of the caller's folder to attach. */
  readonly files?: readonly string[]
  /** Other arguments, which features read. */
  readonly [argument: string]: unknown
}

export type ResumeRequest = {
  readonly prompt: string
  readonly timeout?: number
  readonly maxCost?: number
  /** Absent: a task that merges automatically keeps its last check, any other task runs without a check. */
  readonly check?: string
  readonly schema?: Schema | string
  /** Merge the changes of this run, too. */
  readonly merge?: boolean
}

/** Adds the user's defaults for the agent. A whole fork always uses the caller's agent and place. */
export function withDefaults(request: LaunchRequest, options: Options, caller: Persona | undefined): LaunchRequest {
  const isWhole = request.fork === "whole"
  const { timeout, maxCost, place } = defaultsOf(options, request.agent ?? (isWhole ? caller?.agent : undefined))
  return {
    ...request,
    timeout: request.timeout ?? timeout,
    maxCost: request.maxCost ?? maxCost,
    place: request.place ?? (isWhole ? undefined : place),
  }
}

export const checkOf = ({ check }: { readonly check?: string }): Pick<Run, "check"> =>
  check === undefined ? {} : { check }

/** Group that a launch asks for, as its argument was read. */
export type GroupRequest = {
  /** Plan and place of the group. `file`: path for rows. */
  plan(common: { timeout: number; place?: Task["place"]; file: string }): Pick<TaskDraft, "group" | "place">
  /** First value of the memory of the group at work. */
  readonly state?: unknown
  /** Models that the group names beside the launch's own. */
  readonly models?: readonly string[]
  /** Asks the user before the group is launched. Throws a `CallError` where that is not allowed. */
  readonly permit?: (launch: GroupLaunch) => Promise<void>
}

/** A launch that a group is asked for in. `tasks`: all known tasks. */
export type GroupLaunch = Pick<Task, "agent" | "model"> &
  Pick<Caller, "permit"> & { readonly tasks: readonly Task[]; readonly models: ModelFacts }

/** The argument that asks for a group, with the kind of the group; undefined for none. */
export function groupArgument(features: readonly Feature[], given: object) {
  for (const { group: kind, arguments: own = {} } of features)
    for (const [name, { isGroup }] of Object.entries(own))
      if (kind && isGroup && (given as Readonly<Record<string, unknown>>)[name]) return { name, kind }
  return undefined
}

/** Values of a call's arguments, as the features have read them. */
type ReadArguments = { readonly schema?: Schema; readonly group?: GroupRequest }

/**
 * Lets features read their arguments before anything is created. Throws a `CallError` where an argument cannot be used.
 */
export async function readArguments(
  features: readonly Feature[],
  given: LaunchRequest | ResumeRequest,
  { permit, ...call }: Pick<CallOfArgument, "folder" | "options"> & Pick<Caller, "permit">,
): Promise<ReadArguments> {
  const values: Readonly<Record<string, unknown>> = given
  const found: Record<string, unknown> = {}
  for (const [name, { read, isGroup }] of features.flatMap((feature) => Object.entries(feature.arguments ?? {})))
    if (read && values[name] !== undefined)
      found[isGroup ? "group" : name] = await read(values[name], {
        ...call,
        prompt: given.prompt,
        mayRead: mayRead(permit),
      })
  return found
}

/** Whether a launch has none of these arguments. Only such launches can be identical to each other. */
export const isPlain = ({ fork, after, place, check, schema, group }: LaunchRequest): boolean =>
  !fork && after === undefined && place === undefined && check === undefined && schema === undefined && !group

/** Agent and model of a task that is not a whole fork. Throws a `CallError` for an unknown one. */
export async function chosenBy(
  services: Services,
  kinds: readonly PlaceKind[],
  { agent: name = "", model, place }: LaunchRequest,
  agents: readonly AgentInfo[],
  persona: Persona | undefined,
): Promise<Persona> {
  // A remote place checks its own agents and models.
  if (isFar(kinds, place)) {
    const { model: set } = defaultsOf(services.options, name)
    const own = set === undefined ? agents.find((each) => each.name === name)?.model : modelOfName(set)
    return { agent: name, model: model === undefined ? (own ?? persona?.model) : modelNamed(services, model) }
  }
  const agent = findAgent(name, agents)
  if (model) return { agent: agent.name, model: await chooseModel(services, model) }
  return { agent: agent.name, model: (await modelOfAgent(services, agent)) ?? persona?.model }
}

/**
 * Throws a `CallError` for an unknown model in the list that asks for a group; `name`: this argument. A remote place
 * checks its own models.
 */
export async function refuseUnknownModels(
  services: Services,
  kinds: readonly PlaceKind[],
  { group, place }: LaunchRequest,
  name = "",
): Promise<void> {
  const isElsewhere = isFar(kinds, place)
  const argument = { name, isList: true }
  for (const model of group?.models ?? [])
    await (isElsewhere ? modelNamed(services, model, argument) : chooseModel(services, model, argument))
}

/**
 * Name of the launch's place, undefined for the parent's folder. Throws a `CallError` for an unknown one. `group`: the
 * argument that asks for a group.
 */
export function placeIn(
  kinds: readonly PlaceKind[],
  { place: asked, guard, fork }: LaunchRequest,
  group: { readonly name: string; readonly kind: GroupKind } | undefined,
): string | undefined {
  const picksOne = group?.kind.picksOne
  // "here" can only be an agent's default then: a call that says so itself is refused before.
  const wanted = picksOne && asked === HERE ? undefined : asked
  const place = wanted ?? (picksOne ? kinds.find(({ isShared }) => isShared)?.names[0] : HERE)
  if (place === undefined || place === HERE) return undefined
  const what = picksOne ? group?.name : guard && "guard"
  const fits = ({ isShared, guards }: PlaceKind) => (picksOne ? isShared : guards)
  if (what && !fits(kindOf(kinds, place)))
    throw new CallError(
      `\`${what}\` cannot be had in the place "${place}". Use \`place: "${kinds.find(fits)?.names[0]}"\`, or leave \`${what}\` out. Nothing was launched.`,
    )
  if (isFar(kinds, place) && fork) throw new CallError(NO_FORK)
  return place
}

const NO_FORK =
  "An agent on another machine cannot start from this conversation: leave out `fork`, and say in the prompt what it needs to know."

/** Finds the names after `@` in a prompt, with the pattern that OpenCode uses for prompts. */
const MENTION = /(?<![\w`])@(\.?[^\s`,.]*(?:\.[^\s`,.]+)*)/g
/** Most files attached to a prompt, because a prompt may quote any text. */
const MOST_FILES = 20
/** Most names after `@` that are checked, because few of them are files. */
const MOST_NAMES = 500

type Naming = Pick<LaunchRequest, "prompt" | "place" | "group">

/**
 * Files to attach to a launch's prompt. Remote places get none, because they have files of their own, and groups get
 * none, because their members have prompts of their own.
 */
export function filesOf(
  { prompt, place = HERE, group }: Naming,
  kinds: readonly PlaceKind[],
  folder: string,
  permit: Caller["permit"],
): Promise<readonly string[]> | readonly string[] {
  if (group || !prompt.includes("@") || isFar(kinds, place)) return []
  return filesNamed(prompt, folder, permit)
}

/** Names after `@`, without duplicates, up to the limit. */
export const namesIn = (prompt: string): readonly string[] =>
  [...new Set([...prompt.matchAll(MENTION)].flatMap(([, name]) => (name ? [name] : [])))].slice(0, MOST_NAMES)

/**
 * Files of the caller's folder that a prompt names as `@path`, to be attached. Throws a `CallError` where the caller
 * may not read one.
 */
async function filesNamed(prompt: string, folder: string, permit: Caller["permit"]): Promise<readonly string[]> {
  const names = namesIn(prompt)
  if (names.length === 0) return []
  const root = await realpath(folder).catch(() => folder)
  const found: string[] = []
  for (const name of names) {
    const file = await realpath(join(folder, name)).catch(() => undefined)
    if (file === undefined || !file.startsWith(root + sep) || found.length === MOST_FILES) continue
    try {
      await permit?.({ kind: "read", file: relative(root, file) })
    } catch (error) {
      throw new CallError(`Attaching @${name} was not allowed: ${messageOf(error)} Nothing was launched.`)
    }
    found.push(relative(root, file))
  }
  return found
}

/** Existing files, as paths in the task's folder. Links that lead out of the folder are left out. */
export async function attachedIn(files: readonly string[], folder: string): Promise<readonly string[]> {
  const root = await realpath(folder).catch(() => folder)
  const there = await Promise.all(files.map((file) => realpath(join(folder, file)).catch(() => "")))
  return files.map((file) => join(folder, file)).filter((_file, nth) => there[nth]?.startsWith(root + sep))
}
