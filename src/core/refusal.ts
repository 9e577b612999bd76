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

/** Temporary conditions of a provider, with the words that describe its model to a reader. */
const CONDITIONS = { limit: "is at its limit", overload: "is overloaded", unreachable: "cannot be reached" } as const

/**
 * `limit`: requests or tokens in a time; `overload`: the provider has no capacity; `unreachable`: the connection
 * failed.
 */
export type PassingKind = keyof typeof CONDITIONS
export const PASSING_KINDS = Object.keys(CONDITIONS) as [PassingKind, ...PassingKind[]]

/** Example: `is at its limit`. Records without a kind come from an earlier version. */
export const conditionOf = (kind: PassingKind = "limit"): string => CONDITIONS[kind]
