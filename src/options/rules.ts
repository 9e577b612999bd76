import { z } from "zod"

/** How a user's own value of an option and a project's meet. */
export type Rule = {
  /** Which value holds where both set it. */
  readonly meet: (own: unknown, theirs: unknown) => unknown
  /** Of a limit: whether a project that alone sets it allows more than the default does. */
  readonly widens?: (theirs: unknown, byDefault: unknown) => boolean
}

type Values = Readonly<Record<string, unknown>>

/** The rule of each option, by its schema. */
export const meets = z.registry<Rule>()

/** Of two limits the lower, where 0 is none. */
const lower = (own: unknown, theirs: unknown): unknown => {
  if (own === 0 || theirs === 0) return own || theirs
  return Math.min(own as number, theirs as number)
}

/** The project's value holds. */
export const projects: Rule = { meet: (_own, theirs) => theirs }

/** The user's value holds. */
export const users: Rule = { meet: (own) => own }

/** The lower of two limits holds, where 0 is none. */
export const stricter: Rule = { meet: lower, widens: (theirs, byDefault) => lower(byDefault, theirs) !== theirs }

/** The same, where null leaves it to the plugin. */
export const stricterIfSet: Rule = {
  meet: (own, theirs) => (own === null || theirs === null ? (own ?? theirs) : lower(own, theirs)),
}

/** The lower of two counts holds, where 0 is the lowest. */
export const fewer: Rule = { meet: (own, theirs) => Math.min(own as number, theirs as number) }

/** Limits by name: of each the lower. */
export const stricterOfEach: Rule = {
  meet(own, theirs) {
    const [mine, others] = [own, theirs] as [Values, Values]
    const limits: Record<string, unknown> = { ...mine, ...others }
    for (const key of Object.keys(mine)) if (key in others) limits[key] = lower(mine[key], others[key])
    return limits
  },
}

const AGENT_LIMITS = ["timeout", "maxCost", "maxConcurrent"] as const

/** Settings by agent: of each its limits the lower, all else the project's. */
export const stricterOfEachAgent: Rule = {
  meet(own, theirs) {
    const [mine, others] = [own, theirs] as [Record<string, Values>, Record<string, Values>]
    const agents: Record<string, Values> = { ...mine, ...others }
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
  },
}

/** Of two lists what is in both holds, where null is everything. */
export const inBoth: Rule = {
  meet(own, theirs) {
    if (own === null || theirs === null) return own ?? theirs
    return (own as string[]).filter((each) => (theirs as string[]).includes(each))
  },
}

/** Of two purses the project's holds, with no more money than the user's own has. */
export const withLessMoney: Rule = {
  meet(own, theirs) {
    const [mine, other] = [own, theirs] as [{ max: number }, { max: number }]
    return { ...other, max: Math.min(mine.max, other.max) }
  },
}

/** The project's holds, but for "exact": that wraps a function of the host's, so the user alone turns it on. */
export const exactByUser: Rule = { meet: (own, theirs) => (theirs === "exact" ? own : theirs) }
