import type { Group } from "./record.ts"

export type { Group, GroupResult } from "./record.ts"

/**
 * Several runs that count as one task. In some groups one member is chosen, whose work and answer are the group's. The
 * group's own session is never prompted; each member is a run with a record of its own.
 */

/** Display name of a member, `bg_k3x9f2q1/1`: counted from 1. */
export const memberName = (id: string, nth: number): string => `${id}/${nth + 1}`

export function memberNames(id: string, group: Group): string {
  const last = plannedIn(group) - 1
  return last === 0 ? memberName(id, 0) : `${memberName(id, 0)} to ${memberName(id, last)}`
}

/** Number of members that were planned. */
export const plannedIn = ({ count, total = 0 }: Group): number => count ?? total

/** Number of members of the present run. */
export const sizeOf = (group: Group): number => (group.again === undefined ? plannedIn(group) : 1)

/** The chosen member of the present run. */
export const winnerIn = (group: Group | undefined): string | undefined => group?.winner

/** The member whose work and answer count as the group's own: that chosen in this run or in an earlier run. */
export const chosenIn = (group: Group | undefined): string | undefined => group?.winner ?? group?.again
