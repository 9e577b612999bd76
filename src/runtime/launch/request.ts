import type { CallOfArgument, Feature } from "../../core/feature.ts"
import type { Persona } from "../../core/ports.ts"
import type { Run, Schema, Task, TaskDraft } from "../../core/task.ts"
import type { Options } from "../../options/options.ts"
import { type Caller, defaultsOf, mayRead } from "./checks.ts"

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
  /** Number of parallel tries, or models to try in turn: the first that passes its check wins. */
  readonly tries?: number | readonly string[]
  /** Items, or a file of them: the prompt is run once for each. */
  readonly each?: readonly unknown[] | string
  /** Group that an argument asks for. */
  readonly group?: GroupRequest
  /** JSON Schema for the last message, or a file with one. */
  readonly schema?: Schema | string
  /** Files of the caller's folder to attach. */
  readonly files?: readonly string[]
}

export type ResumeRequest = {
  readonly prompt: string
  readonly timeout?: number
  readonly maxCost?: number
  /** Absent: a task that merges automatically keeps its last check; any other runs without one. */
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
  /** Its plan, and its place. `file`: its ledger, where it has items. */
  plan(common: { timeout: number; place?: Task["place"]; file: string }): Pick<TaskDraft, "group" | "place">
  readonly items?: Items
}

export type Items = {
  readonly all: readonly unknown[]
  /** The user is asked before so many begin. */
  readonly ask: boolean
  /** Common text of their prompts, and their own texts together. */
  texts(): readonly [common: string, own: string]
}

/** Values that features have read. */
type ReadArguments = { readonly schema?: Schema; readonly tries?: GroupRequest; readonly each?: GroupRequest }

/** Lets features read their arguments before anything is created. Throws a `CallError` where one is of no use. */
export async function readArguments(
  features: readonly Feature[],
  given: LaunchRequest | ResumeRequest,
  { permit, ...call }: Pick<CallOfArgument, "folder" | "options"> & Pick<Caller, "permit">,
): Promise<ReadArguments> {
  const values: Readonly<Record<string, unknown>> = given
  const found: Record<string, unknown> = {}
  for (const [name, { read }] of features.flatMap((feature) => Object.entries(feature.arguments ?? {})))
    if (read && values[name] !== undefined)
      found[name] = await read(values[name], { ...call, prompt: given.prompt, mayRead: mayRead(permit) })
  return found
}

/** Only such launches can be identical to each other. */
export const isPlain = ({ fork, after, place, check, schema, group }: LaunchRequest): boolean =>
  !fork && after === undefined && place === undefined && check === undefined && schema === undefined && !group
