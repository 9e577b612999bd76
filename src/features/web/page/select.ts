import { grouped } from "../../../lib/collections.ts"
import { DAY_MS, HOUR_MS, MINUTE_MS, ticking } from "../../../lib/format.ts"
import { ENDS, FETCHING_WORK, isInQueue, phaseText, tokensText } from "../../../present/words.ts"
import type { AgentRow } from "../wire.ts"
import type { PagePart } from "./page-part.ts"

/** Derives data from the page's state. All functions are pure. */

export const isActive = ({ status }: Pick<AgentRow, "status">): boolean => status === "running" || status === "resumed"

/** Everything that waits for a user: questions, needs of parts, and failures that these do not show. */
export function waitingFor(
  agents: readonly AgentRow[],
  failures: readonly AgentRow[],
  parts: readonly Pick<PagePart, "needs">[],
) {
  const asking = agents.filter((agent) => isActive(agent) && agent.asks.length > 0).sort(oldestFirst)
  const others = parts.map((part) => part.needs(asking))
  const failed = failures.filter((agent) => !others.some((each) => each.shows(agent)))
  const asks = asking.reduce((sum, agent) => sum + agent.asks.length, 0)
  const count = others.reduce((sum, each) => sum + each.count, asks + failed.length)
  return { asking, failed, notices: others.flatMap(({ notices }) => notices), count }
}

export const newestFirst = (a: AgentRow, b: AgentRow): number =>
  (b.endedAt ?? b.createdAt) - (a.endedAt ?? a.createdAt) || (a.id < b.id ? -1 : 1)

export const oldestFirst = (a: AgentRow, b: AgentRow): number => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1)

export const agentTexts = (agent: AgentRow): (string | undefined)[] => [
  agent.id,
  agent.description,
  agent.agent,
  agent.batch,
  agentState(agent).text,
  agent.model,
  agent.reason,
]

/** Active in the 24 hours before `now`. Not since midnight, because neither work nor budgets end at midnight. */
export const ofLastDay = (agents: readonly AgentRow[], now: number): AgentRow[] =>
  agents.filter((agent) => isActive(agent) || (agent.endedAt ?? agent.createdAt) > now - DAY_MS)

/** Time that counts since the run began. */
export const ranFor = ({ startedAt, createdAt, endedAt, stoppedSince }: AgentRow, now: number): string =>
  ticking((endedAt ?? stoppedSince ?? now) - (startedAt ?? createdAt))

/** Tokens of a task. `limit`: of each run alone, 0 for none. */
export function tokensOf({ tokens, runTokens, cachedTokens, atLeast }: AgentRow, limit: number): string {
  const isOneRun = runTokens === tokens
  const whole = tokensText(tokens, cachedTokens, atLeast, isOneRun ? limit : 0, "")
  if (isOneRun || runTokens === undefined || limit === 0) return whole
  return `${whole}, ${tokensText(runTokens, 0, atLeast, limit, "")} in this run`
}

type AgentState = { readonly tone: RowTone; readonly text: string; readonly mark?: string }

/** State of an agent in a word. For a group, its counts are added. */
export function agentState(agent: AgentRow): AgentState {
  const own = ownState(agent)
  return agent.counts === undefined ? own : { ...own, text: `${own.text}, ${agent.counts}` }
}

/** State of an agent in a word, without the counts of a group. */
export function ownState(agent: AgentRow): AgentState {
  if (isActive(agent)) {
    if (agent.asks.length > 0) return { tone: "needs", text: agent.phase ?? "waiting" }
    const waits = isInQueue(agent.phase) || agent.stands !== undefined
    if (agent.startedAt === undefined || waits) return { tone: "rest", text: phaseText(agent.phase ?? "queued") }
    if (agent.retry) return { tone: "needs", text: "retrying" }
    return { tone: "run", text: agent.phase ?? "running" }
  }
  const { text, mark } = ENDS[agent.end]
  const more = agent.merging ? ", merging" : agent.fetching ? `, ${FETCHING_WORK}` : ""
  return { tone: TONES[agent.end], mark, text: `${text}${more}` }
}

const TONES = { completed: "done", unanswered: "rest", error: "fail", cancelled: "rest", refused: "rest" } as const

export type RowTone = "run" | "needs" | "done" | "fail" | "rest"

/** Filters for answers. */
export const OUTCOMES: readonly string[] = ["unread", ...Object.values(ENDS).map(({ text }) => text)]

/** Advice after a failure; empty where the reason of the failure is enough. `models`: another model may be named. */
export function adviceFor(
  code: AgentRow["reasonCode"],
  parts: readonly Pick<PagePart, "advice">[],
  models: boolean,
): string {
  const own = parts.flatMap(({ advice }) => advice[code ?? ""] ?? [])[0]
  if (own !== undefined) return own
  switch (code) {
    case "timeout":
    case "silence":
      return "Try again with less to do, or with a longer time limit."
    case "repeats":
      return `Read what it called, and try again with another prompt${models ? ", or another model" : ""}.`
    case "tokens":
      return "Try again with less to do, or raise the option maxTokensPerTask."
    case "budget":
      return "Raise its budget, or wait until the 24 hours of the budget are over."
    case "provider":
      return `Try again later${models ? ", or with another model" : ""}.`
    case "check":
      return "Read what the check said below, then resume or try again."
    case "items":
      return "Run what is left: nothing that is valid is run again."
    case "place":
      return "Its worktree could not be made ready: fix that, then try again."
    case "interrupted":
      return "Try again."
    case "after":
      return "A task that it waited for did not complete: fix that one first."
    case undefined:
    case "aborted":
    case "cancelled":
    case "deleted":
    case "parent-ended":
      return ""
    default:
      return "Try again; if it fails in the same way, OpenCode's log says more."
  }
}

export type Sum = { readonly cost: number; readonly atLeast: boolean }

const NOTHING: Sum = { cost: 0, atLeast: false }

/**
 * Total cost in the 24 hours before `now`, as of each row's last change. Each task's cost is counted without its
 * children, because children have costs of their own.
 */
export function costOfLastDay(agents: readonly AgentRow[], now: number): Sum {
  return ofLastDay(agents, now).reduce(
    (sum, { dayCost, dayAtLeast }) => ({ cost: sum.cost + dayCost, atLeast: sum.atLeast || dayAtLeast }),
    NOTHING,
  )
}

/** Costs by name, highest first. */
export function costBy(agents: readonly AgentRow[], now: number, nameOf: (agent: AgentRow) => string) {
  return [...grouped(ofLastDay(agents, now), nameOf)]
    .map(([name, rows]) => ({ name, runs: rows.length, ...costOfLastDay(rows, now) }))
    .sort((a, b) => b.cost - a.cost || (a.name < b.name ? -1 : 1))
}

/** Costs of 24 full hours, oldest hour first. The cost of a run is spread over its duration. */
export function costByHour(agents: readonly AgentRow[], now: number): { readonly at: number; readonly cost: number }[] {
  const end = Math.floor(now / HOUR_MS) * HOUR_MS + HOUR_MS
  const hours = Array.from({ length: 24 }, (_, index) => ({ at: end - (24 - index) * HOUR_MS, cost: 0 }))
  for (const { startedAt, createdAt, endedAt = now, dayCost } of ofLastDay(agents, now)) {
    const from = Math.max(startedAt ?? createdAt, now - DAY_MS, end - DAY_MS)
    const length = Math.max(1, endedAt - from)
    for (const hour of hours) {
      const part = Math.min(endedAt, hour.at + HOUR_MS) - Math.max(from, hour.at)
      // The cost of a run without duration belongs to a single hour.
      const share = length === 1 ? Number(from >= hour.at && from < hour.at + HOUR_MS) : Math.max(0, part) / length
      hour.cost += dayCost * share
    }
  }
  return hours
}

const QUARTER_MS = 900_000
/** Smallest gap between two bars of a line, as a share of the width. */
const GAP = 0.004
const MOST_TICKS = 8
const TICKS_MS = [QUARTER_MS, 2 * QUARTER_MS, HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS]

/** A task's bar. `line`: number among the agent's lines; `from` and `to`: ends of the bar, from 0 to 1. */
export type Bar = { readonly id: string; readonly line: number; readonly from: number; readonly to: number }

export type TimelineLane = ReturnType<typeof lanesOf>[number]

export type Span = { readonly from: number; readonly to: number }

/** The shown part begins and ends at quarters of an hour, so that bars do not move all the time. */
export function spanOf(agents: readonly AgentRow[], now: number): Span {
  const to = Math.ceil((now + 1) / QUARTER_MS) * QUARTER_MS
  const first = Math.min(now, ...agents.map((agent) => Math.max(agent.startedAt ?? agent.createdAt, now - DAY_MS)))
  const from = Math.floor(Math.min(first, to - HOUR_MS) / QUARTER_MS) * QUARTER_MS
  return { from, to }
}

/** Bars that overlap are in lines of their own; children have rows and costs of their own. */
export function lanesOf(agents: readonly AgentRow[], span: Span, now: number) {
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
