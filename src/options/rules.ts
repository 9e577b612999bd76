/** How a user's and a project's value of an option meet. */
export type MergeRule = {
  /** The effective value where both set it. */
  readonly meet: (own: unknown, theirs: unknown) => unknown
  /** For a limit: whether a project's value allows more than the default. */
  readonly widens?: (theirs: unknown, byDefault: unknown) => boolean
  /** Names what a project alone turns on, for its user to be told. */
  readonly turnsOn?: (own: unknown, theirs: unknown, name: string) => string | undefined
  /** Takes out of a project's value what only its user may set: what would run as the user, or write elsewhere. */
  readonly sift?: (own: unknown, theirs: unknown) => { readonly allowed: unknown; readonly refused: readonly string[] }
}

/** Ends a sentence of what was refused. */
export const TO_ALLOW =
  "If you want it, write it into the options of opencode-superagents in ~/.config/opencode/opencode.json."

type Values = Readonly<Record<string, unknown>>

/** Lower of two limits, where 0 is none. */
const lower = (own: unknown, theirs: unknown): unknown => {
  if (own === 0 || theirs === 0) return own || theirs
  return Math.min(own as number, theirs as number)
}

/** The project's value wins. */
export const projectWins: MergeRule = { meet: (_own, theirs) => theirs }

/** The project's value holds, and its user is told where it switches on what the user has off. */
export const projectSwitch: MergeRule = {
  ...projectWins,
  turnsOn: (own, theirs, name) => (own === false && theirs === true ? name : undefined),
}

/** The lower limit wins, where 0 is none. */
export const stricter: MergeRule = { meet: lower, widens: (theirs, byDefault) => lower(byDefault, theirs) !== theirs }

/** The lower limit wins; null leaves it to the plugin. */
export const stricterIfSet: MergeRule = {
  meet: (own, theirs) => (own === null || theirs === null ? (own ?? theirs) : lower(own, theirs)),
}

/** The lower count wins, where 0 is the lowest. */
export const fewer: MergeRule = { meet: (own, theirs) => Math.min(own as number, theirs as number) }

/** Limits by name: the lower of each wins. */
export const stricterOfEach: MergeRule = {
  meet(own, theirs) {
    const [mine, others] = [own, theirs] as [Values, Values]
    const limits: Record<string, unknown> = { ...mine, ...others }
    for (const key of Object.keys(mine)) if (key in others) limits[key] = lower(mine[key], others[key])
    return limits
  },
}

const AGENT_LIMITS = ["timeout", "maxCost", "maxConcurrent"] as const

/** Settings by agent: the lower of each limit wins, otherwise the project's value. */
export const stricterOfEachAgent: MergeRule = {
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
