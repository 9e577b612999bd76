import { DAY_MS } from "../../../core/bill.ts"
import type { AgentRow } from "../wire.ts"
import { grouped, ofLastDay } from "./select.ts"

/** Cost of the last 24 hours without children, which count themselves. */

const HOUR_MS = 3_600_000

export type Sum = { readonly cost: number; readonly atLeast: boolean }

const NOTHING: Sum = { cost: 0, atLeast: false }

/** Total cost in the 24 hours before `now`, as of each row's last change. */
export function costOfLastDay(agents: readonly AgentRow[], now: number): Sum {
  return ofLastDay(agents, now).reduce(
    (sum, { dayCost, dayAtLeast }) => ({ cost: sum.cost + dayCost, atLeast: sum.atLeast || dayAtLeast }),
    NOTHING,
  )
}

/** By name, highest cost first. */
export function costBy(
  agents: readonly AgentRow[],
  now: number,
  nameOf: (agent: AgentRow) => string,
): (Sum & { readonly name: string; readonly runs: number })[] {
  return grouped(ofLastDay(agents, now), nameOf)
    .map(({ name, rows }) => ({ name, runs: rows.length, ...costOfLastDay(rows, now) }))
    .sort((a, b) => b.cost - a.cost || (a.name < b.name ? -1 : 1))
}

/** Cost for 24 full hours, oldest first. A run's cost is spread over its duration. */
export function costByHour(agents: readonly AgentRow[], now: number): { readonly at: number; readonly cost: number }[] {
  const end = Math.floor(now / HOUR_MS) * HOUR_MS + HOUR_MS
  const hours = Array.from({ length: 24 }, (_, index) => ({ at: end - (24 - index) * HOUR_MS, cost: 0 }))
  for (const { startedAt, createdAt, endedAt = now, dayCost } of ofLastDay(agents, now)) {
    const from = Math.max(startedAt ?? createdAt, now - DAY_MS, end - DAY_MS)
    const length = Math.max(1, endedAt - from)
    for (const hour of hours) {
      const part = Math.min(endedAt, hour.at + HOUR_MS) - Math.max(from, hour.at)
      // A run without duration belongs to one hour.
      const share = length === 1 ? Number(from >= hour.at && from < hour.at + HOUR_MS) : Math.max(0, part) / length
      hour.cost += dayCost * share
    }
  }
  return hours
}
