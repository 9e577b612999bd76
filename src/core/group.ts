import type { CheckResult } from "./receipt.ts"

/**
 * Several runs that count as one task: tries, of which one wins, or a map with one prompt for many items. The group's
 * own session is never prompted; each member is a run with a record of its own.
 */

/** Plan of a group. Only the winner changes between the runs of the group. */
export type Group = TriesPlan | ItemsPlan

export type TriesPlan = {
  readonly kind: "tries"
  /** Prompt of each member, without the answers that precede it and the texts that follow it. */
  readonly prompt: string
  readonly count: number
  /** Models, as `provider/model`, to try one after the other; absent where all tries run side by side. */
  readonly ladder?: readonly string[]
  /** Time limit of each member, in ms; 0 for none. */
  readonly timeout: number
  /** Id of the first try that passed. The id is recorded before the group acts on it. */
  readonly winner?: string
  /** Copy of the winner's check result, because a crash may lose the winner's own record. */
  readonly passed?: CheckResult
  /** Id of the member that won an earlier run. Only this member continues in a resumed run. */
  readonly again?: string
}

export type ItemsPlan = {
  readonly kind: "each"
  /** Template of the members' prompts, with `{{item}}` for the item. */
  readonly prompt: string
  readonly total: number
  readonly timeout: number
  /** Path of the ledger: one row for each item. */
  readonly file: string
  /**
   * Where each member works, if not in the parent's folder. `merge`: the changes of a completed member are merged back.
   */
  readonly place?: { readonly kind: string; readonly folder: string; readonly merge: boolean }
}

/** Display name of a member, `bg_k3x9f2q1/1`: counted from 1. */
export const memberName = (id: string, nth: number): string => `${id}/${nth + 1}`

export function memberNames(id: string, group: Group): string {
  const last = (group.kind === "each" ? group.total : group.count) - 1
  return last === 0 ? memberName(id, 0) : `${memberName(id, 0)} to ${memberName(id, last)}`
}

export const sizeOf = (group: Group): number =>
  group.kind === "each" ? group.total : group.again === undefined ? group.count : 1

export const winnerIn = (group: Group | undefined): string | undefined =>
  group?.kind === "tries" ? group.winner : undefined

/** The try whose work and answer count as the group's own: the winner of this run or of an earlier run. */
export const chosenIn = (group: Group | undefined): string | undefined =>
  group?.kind === "tries" ? (group.winner ?? group.again) : undefined

export type GroupMember = {
  readonly kind: Group["kind"]
  /** Id of the group's task. */
  readonly of: string
  /** Index of the member's try or item, from 0. */
  readonly nth: number
  /** Generation of the group's run that created this member. */
  readonly run: number
  /** Session that launched the group: its slots and limits apply to each member. */
  readonly caller: string
  /** OpenCode's parent session of the member's session. */
  readonly under: string
}

export type GroupResult = TriesResult | ItemsResult

export type TriesResult = {
  readonly kind: "tries"
  /** Model of the winning try, or the number of this try where several tries had that model. */
  readonly won?: string
  readonly cost: number
  /** One row for each planned try. */
  readonly rows: readonly TryRow[]
}

export type TryRow = {
  readonly model?: string
  /** Examples: `won`, `stopped`, `not begun`, `check did not pass (exit code 1)`. */
  readonly how: string
  readonly ms: number
  readonly cost: number
  readonly task?: string
  readonly session?: string
  /** Git ref of the try's changes, if there are any. */
  readonly ref?: string
  /** Whether the try left the guarded files unchanged; absent where no check has looked at them. */
  readonly guard?: "held" | "broken"
}

export type ItemsResult = {
  readonly kind: "each"
  readonly total: number
  readonly valid: number
  readonly failed: number
  readonly notBegun: number
  /** Items that completed in places of their own, and whose changes are not merged. */
  readonly unmerged?: number
  readonly cost: number
  readonly file: string
  /** Failed items by reason, most frequent first. */
  readonly groups: readonly { readonly why: string; readonly count: number; readonly first: readonly number[] }[]
}
