import type { Parked } from "./record.ts"

/** Known parts of a provider's refusal; events of OpenCode often carry the message alone. */
export type Refusal = {
  readonly message: string
  readonly status?: number
  /** Headers of the response by name, in lower case. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** Time of OpenCode's own next attempt, and number of attempts so far. */
  readonly next?: number
  readonly attempt?: number
  readonly unreachable?: boolean
}

/** Temporary condition of a provider. */
export type PassingKind = NonNullable<Parked["kind"]>

/** Words that describe a model to a reader. */
const CONDITIONS: Readonly<Record<PassingKind, string>> = {
  limit: "is at its limit",
  overload: "is overloaded",
  unreachable: "cannot be reached",
}

/** Example: `is at its limit`, also where the kind is not known. */
export const conditionOf = (kind: PassingKind = "limit"): string => CONDITIONS[kind]
