import { moment } from "../lib/moment.ts"
import { isActive, isParked, isQueued, type Parked, type Phase, type Task } from "./task.ts"

/** When parked tasks go on, for readers. Times are milliseconds since the epoch. */

/**
 * What is known of when a parked task goes on: of all that wait for its model, the one that was parked last has it from
 * the provider's newest refusal.
 */
export function newsOf({ run: { parked } }: Task, others: Iterable<Task>): Parked | undefined {
  if (!parked) return undefined
  let newest = parked
  for (const other of others) {
    const theirs = isParked(other) ? other.run.parked : undefined
    if (theirs?.model === parked.model && theirs.at > newest.at) newest = theirs
  }
  return newest
}

/** `until 07:12`, or `next try 07:12` where the provider told no time; undefined where that has come. */
export function whenOf(
  { until, next }: Pick<Parked, "until" | "next">,
  now: number,
): { readonly text: string; readonly in: number } | undefined {
  const at = until ?? next ?? 0
  if (at <= now) return undefined
  return { text: `${until === undefined ? "next try" : "until"} ${moment(at, now)}`, in: at - now }
}

/** Since when all tasks at work of these are parked, or stand still since theirs are; undefined where one is not, or none is. */
export function allParkedSince(tasks: readonly Task[]): number | undefined {
  const times = tasks.flatMap((task) => {
    const { run } = task
    return isActive(task) && !isQueued(task) ? [run.parked?.at ?? run.stillSince ?? Number.POSITIVE_INFINITY] : []
  })
  const since = Math.max(...times)
  return Number.isFinite(since) ? since : undefined
}

/** `parked until 07:12`, `parked, next try 07:12`, or `parked` alone where it is about to go on. */
export function parkedText(parked: Pick<Parked, "until" | "next">, now: number): Phase {
  const when = whenOf(parked, now)
  if (!when) return "parked"
  return `parked${parked.until === undefined ? "," : ""} ${when.text}`
}
