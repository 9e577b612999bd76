import type { CheckResult } from "./receipt.ts"

/**
 * Several runs that stand as one task: tries at one thing of which one comes home, or one prompt for many items. The
 * task's own session is never prompted; each part is a run with a record of its own, which says what it has come to.
 */

/** What a team was launched for; the same over all of its runs but for the winner. */
export type Group = TriesPlan | ItemsPlan

export type TriesPlan = {
  readonly kind: "tries"
  /** What each is asked, without what goes before or behind it. */
  readonly prompt: string
  readonly count: number
  /** One after the other with these models, as `provider/model`; absent: side by side. */
  readonly ladder?: readonly string[]
  /** How long each may take, in ms; 0 for any. */
  readonly timeout: number
  /** The id of the part that passed first: written down before anything else follows from it. */
  readonly winner?: string
  /** What its check came to: the winner's own record may be lost in a crash. */
  readonly passed?: CheckResult
  /** The part that a later run goes on with, and no other: it had won an earlier one. */
  readonly again?: string
}

export type ItemsPlan = {
  readonly kind: "each"
  /** With `{{item}}`. */
  readonly prompt: string
  readonly total: number
  readonly timeout: number
  /** The ledger: a row for each item. */
  readonly file: string
  /** Where each works, if not in its parent's folder; `merge`: what it changed comes home when it has completed. */
  readonly place?: { readonly kind: string; readonly folder: string; readonly merge: boolean }
}

/** How a group's member is called beside its own id, `bg_k3x9f2q1/1`: tries and items are counted from 1. */
export const memberName = (id: string, nth: number): string => `${id}/${nth + 1}`

/** The names of all members of a group. */
export const memberNames = (id: string, team: Group): string =>
  `${memberName(id, 0)} to ${memberName(id, (team.kind === "each" ? team.total : team.count) - 1)}`

/** How many parts a run of it has. */
export const sizeOf = (team: Group): number =>
  team.kind === "each" ? team.total : team.again === undefined ? team.count : 1

/** The try that has passed in this run. */
export const winnerIn = (team: Group | undefined): string | undefined =>
  team?.kind === "tries" ? team.winner : undefined

/** The part whose work and answer are the team's own: the one that has won, in this run or an earlier one. */
export const chosenIn = (team: Group | undefined): string | undefined =>
  team?.kind === "tries" ? (team.winner ?? team.again) : undefined

/** Whose part a task is. */
export type GroupMember = {
  readonly kind: Group["kind"]
  /** The task that it is a part of; that one's session is this one's parent. */
  readonly of: string
  /** Its try or item, from 0. */
  readonly nth: number
  /** The team's run in which it was begun. */
  readonly run: number
  /** The session whose slots it takes, and whose rules it has: that which launched the team. */
  readonly caller: string
  /** The session below which the host has its own. */
  readonly under: string
}

/** What a team has come to, for readers. */
export type GroupResult = TriesResult | ItemsResult

export type TriesResult = {
  readonly kind: "tries"
  /** The model of the one that won, or its number where several had that model. */
  readonly won?: string
  readonly cost: number
  /** Each that there was to be. */
  readonly rows: readonly TryRow[]
}

export type TryRow = {
  readonly model?: string
  /** `won`, `stopped`, `not begun`, `check did not pass (exit code 1)`, or what else failed. */
  readonly how: string
  readonly ms: number
  readonly cost: number
  readonly task?: string
  readonly session?: string
  /** Where its work lies, if it has changed anything. */
  readonly ref?: string
  /** Whether it left alone what it was not to change; absent where nobody looked. */
  readonly guard?: "held" | "broken"
}

export type ItemsResult = {
  readonly kind: "each"
  readonly total: number
  readonly valid: number
  readonly failed: number
  readonly notBegun: number
  readonly cost: number
  readonly file: string
  /** Those that failed, by why they did, the most frequent first. */
  readonly groups: readonly { readonly why: string; readonly count: number; readonly first: readonly number[] }[]
}
