import type { CheckResult } from "./receipt.ts"

/**
 * Several runs that count as one task: tries, of which one wins, or a map with one prompt for many items. The group's
 * own session is never prompted; each member is a run with a record of its own.
 */

/** Plan of a group; the same over all of its runs except for the winner. */
export type Group = TriesPlan | ItemsPlan

export type TriesPlan = {
  readonly kind: "tries"
  /** The member's prompt, without the answers before it and the texts added after it. */
  readonly prompt: string
  readonly count: number
  /** Models, as `provider/model`, to try one after the other; absent: all tries run side by side. */
  readonly ladder?: readonly string[]
  /** Time limit of each member, in ms; 0 for none. */
  readonly timeout: number
  /** Id of the first try that passed. It is recorded before anything else follows from it. */
  readonly winner?: string
  /** Copy of the winner's check result: its own record may be lost in a crash. */
  readonly passed?: CheckResult
  /** The member, winner of an earlier run, that alone continues in a resumed run. */
  readonly again?: string
}

export type ItemsPlan = {
  readonly kind: "each"
  /** Template with `{{item}}`. */
  readonly prompt: string
  readonly total: number
  readonly timeout: number
  /** Path of the ledger: one row for each item. */
  readonly file: string
  /**
   * Where each member works, if not in its parent's folder. `merge`: its changes are merged back when it has completed.
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

/** The try whose work and answer count as the group's own: the winner of this run or an earlier one. */
export const chosenIn = (group: Group | undefined): string | undefined =>
  group?.kind === "tries" ? (group.winner ?? group.again) : undefined

export type GroupMember = {
  readonly kind: Group["kind"]
  /** Id of the group's task. Both sessions have the same parent. */
  readonly of: string
  /** Index of its try or item, from 0. */
  readonly nth: number
  /** Generation of the group's run that created it. */
  readonly run: number
  /** Session that launched the group: its slots and limits apply to each member. */
  readonly caller: string
  /** OpenCode's parent session of the member's session. */
  readonly under: string
}

export type GroupResult = TriesResult | ItemsResult

export type TriesResult = {
  readonly kind: "tries"
  /** The model of the one that won, or its number where several had that model. */
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
  /** Git ref of its changes, if there are any. */
  readonly ref?: string
  /** Whether the try left the guarded files unchanged; absent where that was not checked. */
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
