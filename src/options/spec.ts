import { z } from "zod"
import { MAX_TIMER_MS } from "../core/ports.ts"
import { HOUR_MS } from "../lib/format.ts"

/** How the user's and the project's value of an option are combined. */
export type MergeRule = {
  /** The value that counts where both the user and the project set the option. */
  readonly merge: (own: unknown, theirs: unknown) => unknown
  /** For a limit: whether a project's value allows more than the default. */
  readonly widens?: (theirs: unknown, byDefault: unknown) => boolean
  /**
   * Name of an option that the project alone turns on, so that the user is warned; undefined otherwise. A value in it
   * that changes is announced again.
   */
  readonly turnsOn?: (own: unknown, theirs: unknown, name: string) => string | undefined
  /**
   * Removes the parts of a project's value that only the user may set: commands that would run as the user, and places
   * outside of the project to write to.
   */
  readonly restrict?: (
    own: unknown,
    theirs: unknown,
  ) => { readonly allowed: unknown; readonly refused: readonly string[] }
}

/** Last sentence of a message about a refused project option. */
export const TO_ALLOW =
  "If you want it, write it into the options of opencode-superagents in ~/.config/opencode/opencode.json."

type Values = Readonly<Record<string, unknown>>

/** The lower of two limits. 0 means no limit. */
const lower = (own: unknown, theirs: unknown): unknown => {
  if (own === 0 || theirs === 0) return own || theirs
  return Math.min(own as number, theirs as number)
}

/** The project's value wins. */
export const projectWins: MergeRule = { merge: (_own, theirs) => theirs }

/** The project's value counts. The user is warned if the project turns on an option that the user has turned off. */
export const projectSwitch: MergeRule = {
  ...projectWins,
  turnsOn: (own, theirs, name) => (own === false && theirs === true ? name : undefined),
}

/** The lower limit counts. 0 means no limit. */
export const stricter: MergeRule = { merge: lower, widens: (theirs, byDefault) => lower(byDefault, theirs) !== theirs }

/** The lower limit counts. null stands for an hour at most: it gives way to a shorter limit alone. */
export const stricterIfSet: MergeRule = {
  merge(own, theirs) {
    if (own !== null && theirs !== null) return lower(own, theirs)
    const set = own ?? theirs
    return lower(HOUR_MS, set) === set ? set : null
  },
  widens: (theirs) => theirs !== null && lower(HOUR_MS, theirs) !== theirs,
}

/** The lower number counts. 0 is the lowest. */
export const fewer: MergeRule = {
  merge: (own, theirs) => Math.min(own as number, theirs as number),
  widens: (theirs, byDefault) => (theirs as number) > (byDefault as number),
}

/** Limits by name. Of two limits with one name, the lower counts. */
export const stricterOfEach: MergeRule = {
  merge(own, theirs) {
    const [mine, others] = [own, theirs] as [Values, Values]
    const limits: Record<string, unknown> = { ...mine, ...others }
    for (const key of Object.keys(mine)) if (key in others) limits[key] = lower(mine[key], others[key])
    return limits
  },
}

const AGENT_LIMITS = ["timeout", "maxCost", "maxConcurrent"] as const

/** Settings by agent. The lower of two limits counts; of other settings, the project's value. */
export const stricterOfEachAgent: MergeRule = {
  merge(own, theirs) {
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

/** One option. Its schema is built only where somebody has set the option, and for the documentation. */
export type Option<T = unknown> = {
  readonly schema: () => z.ZodType<T>
  readonly byDefault: T
  readonly text: string
  /** Combines the user's value with the project's. */
  readonly rule: MergeRule
  /** Reads an object entry by entry, instead of the schema. */
  readonly read?: (value: Readonly<Record<string, unknown>>, problems: string[]) => unknown
}

/**
 * Several options under one name, each read and checked by itself. A group that is a part stays off unless the user
 * writes it.
 */
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

/** The values that belong to these options, by name. */
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
