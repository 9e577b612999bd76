import { createMemo, createRoot, createSignal } from "solid-js"
import type { AgentRow } from "../wire.ts"
import { isActive } from "./select.ts"
import { ended, state } from "./state.ts"

/** Read marks for ended tasks, stored in the browser. Tasks from before the first visit count as read. */

const MOST_KEPT = 5000

type ReadMarks = { readonly since: number; readonly seen: readonly string[] }

const [version, setVersion] = createSignal(0)
const seen = new Set<string>()
let since = Number.POSITIVE_INFINITY
let project = ""

const key = () => `superagents.seen.${project}`
const markOf = ({ id, generation }: AgentRow): string => `${id}.${generation}`

/** Loads this project's read marks once; `now`: the server's time. */
export function loadReadMarks(named: string, now: number): void {
  if (named === project) return
  project = named
  const { since: first = now, seen: marks = [] }: Partial<ReadMarks> = read()
  since = first
  for (const mark of marks) seen.add(mark)
  keep()
}

/** Marks these as read. */
export function markAsRead(agents: readonly AgentRow[]): void {
  const fresh = agents.filter((agent) => !isActive(agent) && !seen.has(markOf(agent)))
  if (fresh.length === 0) return
  for (const agent of fresh) seen.add(markOf(agent))
  keep()
}

export function isUnread(agent: AgentRow): boolean {
  version()
  return !isActive(agent) && (agent.endedAt ?? 0) > since && !seen.has(markOf(agent))
}

/** Unread ended tasks, newest first, and failed ones among them. */
export const { unread, failures } = createRoot(() => {
  const unread = createMemo(() => ended().filter(isUnread))
  return { unread, failures: createMemo(() => unread().filter(({ status }) => status === "error")) }
})

function keep(): void {
  const kept: ReadMarks = { since, seen: [...seen].slice(-MOST_KEPT) }
  try {
    if (state.project !== "") localStorage.setItem(key(), JSON.stringify(kept))
  } catch {
    // Without storage the marks last until the tab is closed.
  }
  setVersion((count) => count + 1)
}

function read(): Partial<ReadMarks> {
  try {
    return JSON.parse(localStorage.getItem(key()) ?? "{}")
  } catch {
    return {}
  }
}
