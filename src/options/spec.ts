import { z } from "zod"
import { MAX_TIMER_MS } from "../core/ports.ts"

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

// zod sets its English texts by a side effect that the bundler drops: without them, every problem reads "Invalid input".
z.config(z.locales.en())

/** A text of an argument. */
export const text = (most: number) => z.string().trim().min(1).max(most)

export const milliseconds = () => z.int().min(0).max(MAX_TIMER_MS)
export const count = () => z.int().min(0)
export const dollars = () => z.number().min(0)

/** One option. Its schema is built for a value that somebody wrote, and for the documentation. */
export type Option<T = unknown> = {
  readonly schema: () => z.ZodType<T>
  readonly byDefault: T
  readonly text: string
  /** Decides between a user's and a project's value. */
  readonly rule: MergeRule
  /** Reads the entries of an object each by itself, in place of the schema. */
  readonly read?: (value: Readonly<Record<string, unknown>>, problems: string[]) => unknown
}

/** Options that are read each by itself; a part is off unless it is there. */
export type OptionGroup<Inner extends Specs = Specs, IsPart extends boolean = boolean> = {
  readonly text: string
  readonly isPart: IsPart
  readonly options: Inner
}

export type Specs = { readonly [name: string]: Option | OptionGroup }

export const option = <T>(
  schema: () => z.ZodType<T>,
  byDefault: NoInfer<T>,
  text: string,
  rule: MergeRule,
): Option<T> => ({
  schema,
  byDefault,
  text,
  rule,
})

export const group = <Inner extends Specs>(text: string, options: Inner): OptionGroup<Inner, false> => ({
  text,
  isPart: false,
  options,
})

export const part = <Inner extends Specs>(text: string, options: Inner): OptionGroup<Inner, true> => ({
  text,
  isPart: true,
  options,
})

type ValueOf<Spec> =
  Spec extends OptionGroup<infer Inner, boolean> ? ValuesOf<Inner> : Spec extends Option<infer T> ? T : never

type IsOff<Spec> =
  Spec extends OptionGroup<Specs, infer IsPart>
    ? IsPart
    : Spec extends Option<infer T>
      ? undefined extends T
        ? true
        : false
      : false

type MaybeOff<S> = {
  [Name in keyof S]: IsOff<S[Name]> extends true ? Name : never
}[keyof S]

/** The values of options, by name. */
export type ValuesOf<S> = { [Name in Exclude<keyof S, MaybeOff<S>>]: ValueOf<S[Name]> } & {
  [Name in MaybeOff<S>]?: ValueOf<S[Name]>
}

export const isGroup = (spec: Option | OptionGroup): spec is OptionGroup => "options" in spec

/** The schema of an option or a group, with its default and its text. */
export function schemaOf(spec: Option | OptionGroup): z.ZodType {
  const { text } = spec
  if (!isGroup(spec)) {
    const { byDefault } = spec
    const schema = spec.schema()
    return (byDefault === undefined ? schema : schema.default(byDefault)).describe(text)
  }
  const schema = schemaOfAll(spec.options)
  return (spec.isPart ? schema.optional() : schema.prefault({})).describe(text)
}

export const schemaOfAll = (specs: Specs) =>
  z.strictObject(Object.fromEntries(Object.entries(specs).map(([name, spec]) => [name, schemaOf(spec)])))

export const isPlainObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

export const shownValue = (value: unknown): string => JSON.stringify(value)?.slice(0, 60) ?? String(value)
