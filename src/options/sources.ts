import { isDeepStrictEqual } from "node:util"
import { fillDefaults, type GivenOptions, type Options, readOptions } from "./options.ts"
import { isGroup, type Specs } from "./spec.ts"

/**
 * A user's options merged with a project's. OpenCode passes on one entry only, the project's if there is one, so the
 * user's would be lost.
 */
export type MergedOptions = {
  readonly options: Options
  readonly problems: readonly string[]
  /** Options that only the project turns on. */
  readonly turnedOn: readonly string[]
  /** Limits that the project raises above the default, where the user sets none. */
  readonly widened: readonly string[]
  /** Project options that only the user may set, one sentence each. They are ignored. */
  readonly refused: readonly string[]
  /** The user's limits that win against the project's, one line each. */
  readonly held: readonly string[]
}

/** Merges both; either is undefined where absent. */
export function mergeOptions(specs: Specs, own: unknown, project: unknown): MergedOptions {
  const mine = readOptions(specs, own)
  const other = readOptions(specs, project, own === undefined ? undefined : mine.given)
  const told: Told = { turnedOn: [], widened: [], refused: [], held: [] }
  const options = fillDefaults(specs, met(specs, mine.given, other.given, "", told))
  return { options, problems: [...mine.problems, ...other.problems], ...told }
}

type Told = { readonly [Name in "turnedOn" | "widened" | "refused" | "held"]: string[] }

function met(specs: Specs, own: GivenOptions, project: GivenOptions, path: string, told: Told): GivenOptions {
  const result: Record<string, unknown> = { ...own }
  for (const [key, spec] of Object.entries(specs)) {
    const name = path + key
    const [mine, given] = [own[key], project[key]]
    if (given === undefined) continue
    if (isGroup(spec)) {
      if (spec.isPart && mine === undefined) told.turnedOn.push(name)
      result[key] = met(spec.options, (mine ?? {}) as GivenOptions, given as GivenOptions, `${name}.`, told)
      continue
    }
    const { rule, byDefault } = spec
    const { allowed: other, refused } = rule.sift?.(mine, given) ?? { allowed: given, refused: [] }
    told.refused.push(...refused)
    if (other === undefined) continue
    const on = rule.turnsOn?.(mine, other, name)
    if (on !== undefined) told.turnedOn.push(on)
    if (mine === undefined) {
      result[key] = other
      if (rule.widens?.(other, byDefault)) told.widened.push(`${name} ${other}`)
      continue
    }
    result[key] = rule.meet(mine, other)
    const holds = `${name}: your ${JSON.stringify(mine)} holds, not the project's ${JSON.stringify(other)}`
    if (!isDeepStrictEqual(result[key], other)) told.held.push(holds)
  }
  return result
}
