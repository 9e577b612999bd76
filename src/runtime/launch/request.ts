import type { Persona } from "../../core/ports.ts"
import type { Run, Schema } from "../../core/task.ts"
import type { Options } from "../../options/options.ts"
import { type Caller, defaultsOf, mayRead } from "./checks.ts"

export type LaunchRequest = {
  readonly description: string
  readonly prompt: string
  /** May be left out of a whole fork alone: that is its caller's own. */
  readonly agent?: string
  /** "whole": with the caller's own agent and model, and its history uncut, so that the provider has it in its cache. */
  readonly fork: boolean | "whole"
  readonly model?: string
  readonly batch?: string
  readonly timeout?: number
  /** What the run may cost, in US dollars. */
  readonly maxCost?: number
  /** Tasks that have to complete before: their ids, or a batch. */
  readonly after?: readonly string[] | string
  /** Where it works, by the name of a place; absent or "here" for its parent's own folder. */
  readonly place?: string
  /** What a completed run changed there is merged at once. */
  readonly merge?: boolean
  /** The command that has to pass before a run counts as completed. */
  readonly check?: string
  /** Files that it may not change, as globs. */
  readonly guard?: readonly string[]
  /** So many at the same thing, or one after the other with these models: the first whose check passes comes home. */
  readonly tries?: number | readonly string[]
  /** Items, or a file of them: the prompt, with each in its place, is a run of its own. */
  readonly each?: readonly unknown[] | string
  /** Those that it comes to. */
  readonly items?: readonly unknown[]
  /** What its last message has to be valid against: a JSON Schema, or the name of a file with one. */
  readonly schema?: Schema | string
  /** What of the caller's folder goes with the prompt. */
  readonly files?: readonly string[]
}

export type ResumeRequest = {
  readonly prompt: string
  readonly timeout?: number
  readonly maxCost?: number
  /** Absent: a task that is merged by itself keeps that of its last run; any other runs without one. */
  readonly check?: string
  readonly schema?: Schema | string
  /** Said again of a task that was launched with it. */
  readonly merge?: boolean
}

/**
 * With what the user has set for the agent, where the call does not say. A whole fork works where its parent does, and
 * is of the `caller`'s own agent, named or not.
 */
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

/** What a schema is, before anything is made. Throws a `CallError` where it is none. */
export async function schemaOf(
  given: Schema | string | undefined,
  folder: string,
  permit: Caller["permit"],
): Promise<Schema | undefined> {
  if (given === undefined) return undefined
  const { schemaGiven } = await import("../../features/schemas/given.ts")
  return schemaGiven(given, folder, mayRead(permit))
}

/** Nothing goes with it but agent, model and prompt: one such is like another. */
export const isPlain = ({ fork, after, place, check, schema, tries, each }: LaunchRequest): boolean =>
  !fork &&
  after === undefined &&
  place === undefined &&
  check === undefined &&
  schema === undefined &&
  tries === undefined &&
  each === undefined
