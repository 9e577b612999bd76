import { DAY_MS } from "../../core/bill.ts"
import type { AgentRow, TaskRow } from "../wire.ts"

/** What is picked out of the state for each part of the page; pure, so that it can be looked at without a page. */

export const isActive = ({ status }: Pick<AgentRow, "status">): boolean => status === "running" || status === "resumed"

/** What goes no further without a person. A board task whose run asks is that run's question, and no second one. */
export function waitingFor(agents: readonly AgentRow[], tasks: readonly TaskRow[]) {
  const asking = agents.filter((agent) => isActive(agent) && agent.asks.length > 0).sort(oldestFirst)
  const asked = new Set(asking.map(({ boardTask }) => boardTask))
  const waiting = tasks.filter((task) => needsSomebody(task) && !asked.has(task.id)).sort(byId)
  return { asking, waiting, count: waiting.length + asking.reduce((sum, { asks }) => sum + asks.length, 0) }
}

/** `waiting for a person`: another hand has changed it, and it goes on when a person has started it. */
const needsSomebody = ({ state }: Pick<TaskRow, "state">): boolean =>
  state === "needs you" || state === "waiting for a person"

export type Column = "needs you" | "working" | "waiting" | "draft"

export const COLUMNS: readonly { readonly key: Column; readonly title: string; readonly empty: string }[] = [
  { key: "needs you", title: "Needs you", empty: "Nobody waits for you." },
  { key: "working", title: "At work", empty: "Nothing runs." },
  { key: "waiting", title: "Waiting", empty: "Nothing waits." },
  { key: "draft", title: "Drafts", empty: "No drafts." },
]

export function columnOf(task: Pick<TaskRow, "state">): Column {
  const { state } = task
  if (needsSomebody(task)) return "needs you"
  if (state === "draft") return state
  return state === "running" || state === "queued" ? "working" : "waiting"
}

/** By number, newest last: a task keeps its place while it works. */
export const byId = (a: { readonly id: string }, b: { readonly id: string }): number => Number(a.id) - Number(b.id)

export const newestFirst = (a: AgentRow, b: AgentRow): number =>
  (b.endedAt ?? b.createdAt) - (a.endedAt ?? a.createdAt) || (a.id < b.id ? -1 : 1)

export const oldestFirst = (a: AgentRow, b: AgentRow): number => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1)

/** Whether all words of a filter occur in the texts. `#5` finds that number, not `#50`. */
export function matches(filter: string, texts: readonly (string | undefined)[]): boolean {
  const hay = texts.join("\n").toLowerCase()
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => (/^#\d+$/.test(word) ? new RegExp(`${word}(?!\\d)`).test(hay) : hay.includes(word)))
}

export const taskTexts = (task: TaskRow): string[] => [`#${task.id}`, task.title, task.owner, task.stateText]

export const agentTexts = (agent: AgentRow): (string | undefined)[] => [
  agent.id,
  agent.description,
  agent.agent,
  agent.batch,
  agent.status,
  agent.model,
]

/** Those that were at work in the 24 hours before `now`: a night's work is not over at midnight, nor is its budget. */
export const ofLastDay = (agents: readonly AgentRow[], now: number): AgentRow[] =>
  agents.filter((agent) => isActive(agent) || (agent.endedAt ?? agent.createdAt) > now - DAY_MS)

/** What tasks have cost together in the 24 hours before `now`. A row says it as of its last change. */
export function costOfLastDay(
  agents: readonly AgentRow[],
  now: number,
): { readonly cost: number; readonly atLeast: boolean } {
  const counted = ofLastDay(agents, now)
  return {
    cost: counted.reduce((sum, { dayCost }) => sum + dayCost, 0),
    atLeast: counted.some(({ dayAtLeast }) => dayAtLeast),
  }
}

/** A word for what an agent is doing or how it ended. */
export function agentState(agent: AgentRow): { readonly tone: Tone; readonly text: string } {
  if (isActive(agent)) {
    if (agent.asks.length > 0) return { tone: "needs", text: agent.phase ?? "waiting" }
    if (agent.phase === "queued") return { tone: "rest", text: "queued" }
    if (agent.retry) return { tone: "needs", text: "retrying" }
    return { tone: "run", text: agent.phase ?? "running" }
  }
  if (agent.status === "completed") return { tone: "done", text: "completed" }
  return agent.status === "error" ? { tone: "fail", text: "failed" } : { tone: "rest", text: "cancelled" }
}

export type Tone = "run" | "needs" | "done" | "fail" | "rest"

export function taskTone(task: Pick<TaskRow, "state">): Tone {
  const { state } = task
  if (state === "running") return "run"
  if (needsSomebody(task)) return "needs"
  return state === "done" ? "done" : "rest"
}
