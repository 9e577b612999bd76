import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../../lib/format.ts"
import type { AgentRow } from "../wire.ts"
import { costOfLastDay, oldestFirst } from "./select.ts"

const QUARTER_MS = 900_000
/** Smallest gap between two bars of a line, as a share of the width. */
const GAP = 0.004
const MOST_TICKS = 8
const TICKS_MS = [QUARTER_MS, 2 * QUARTER_MS, HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS]

/** A task's bar. `line`: number among the agent's lines; `from` and `to`: ends of the bar, from 0 to 1. */
export type Bar = { readonly id: string; readonly line: number; readonly from: number; readonly to: number }

export type TimelineLane = {
  readonly agent: string
  /** Cost of the last 24 hours, without children, because their agents have rows of their own. */
  readonly cost: number
  readonly atLeast: boolean
  readonly lines: number
  readonly bars: readonly Bar[]
}

export type Span = { readonly from: number; readonly to: number }

/**
 * Part of the last day that is displayed. Begins and ends at quarters of an hour, so that bars do not move all the
 * time.
 */
export function spanOf(agents: readonly AgentRow[], now: number): Span {
  const to = Math.ceil((now + 1) / QUARTER_MS) * QUARTER_MS
  const first = Math.min(now, ...agents.map((agent) => Math.max(agent.startedAt ?? agent.createdAt, now - DAY_MS)))
  const from = Math.floor(Math.min(first, to - HOUR_MS) / QUARTER_MS) * QUARTER_MS
  return { from, to }
}

/** Timeline with the lines of each agent. Bars that overlap are in lines of their own. */
export function lanesOf(agents: readonly AgentRow[], span: Span, now: number): TimelineLane[] {
  const names = [...new Set(agents.map(({ agent }) => agent))].sort()
  return names.map((agent) => {
    const own = agents.filter((each) => each.agent === agent)
    const bars = pack(own.toSorted(oldestFirst), span, now)
    const lines = Math.max(1, ...bars.map(({ line }) => line + 1))
    return { agent, ...costOfLastDay(own, now), lines, bars }
  })
}

function pack(agents: readonly AgentRow[], span: Span, now: number): Bar[] {
  const ends: number[] = []
  return agents.map((agent) => {
    const from = part(agent.startedAt ?? agent.createdAt, span)
    const to = Math.max(from, part(agent.endedAt ?? now, span))
    const free = ends.findIndex((end) => end + GAP <= from)
    const line = free < 0 ? ends.length : free
    // The bar of a running task keeps its line occupied up to the end.
    ends[line] = agent.endedAt === undefined ? 1 : to
    return { id: agent.id, line, from, to }
  })
}

const part = (at: number, { from, to }: Span): number => Math.min(1, Math.max(0, (at - from) / (to - from)))

/** Times that are marked on the axis. */
export function ticksOf(span: Span): number[] {
  const step = TICKS_MS.find((each) => (span.to - span.from) / each <= MOST_TICKS) ?? 6 * HOUR_MS
  const offset = new Date(span.from).getTimezoneOffset() * MINUTE_MS
  const first = Math.ceil((span.from - offset) / step) * step + offset
  const ticks = []
  // Times near the edges are left out, because their labels would be cut.
  for (let at = first; at < span.to - step / 3; at += step) if (at > span.from + step / 3) ticks.push(at)
  return ticks
}

/** A letter for each named batch, in the order in which the batches began. */
export function batchMarks(agents: readonly AgentRow[]): Map<string, string> {
  const names = new Set(agents.toSorted(oldestFirst).flatMap(({ batch }) => batch ?? []))
  return new Map([...names].map((name, index) => [name, String.fromCharCode(65 + (index % 26))]))
}
