import type { Group } from "./record.ts"

export type {
  Group,
  GroupResult,
  ItemsPlan,
  ItemsResult,
  TriesPlan,
  TriesResult,
  TryRow,
} from "./record.ts"

/**
 * Several runs that count as one task: tries, of which one wins, or a map with one prompt for many items. The group's
 * own session is never prompted; each member is a run with a record of its own.
 */

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
