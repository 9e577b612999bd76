import { createMemo, createRoot, createSignal } from "solid-js"
import type { AgentRow } from "../wire.ts"
import { isActive } from "./select.ts"
import { ended, state } from "./state.ts"

/** What the reader has seen of what ended, kept by the browser. What had ended before the first visit counts as seen. */

const MOST_KEPT = 5000

type Archive = { readonly since: number; readonly seen: readonly string[] }

const [version, setVersion] = createSignal(0)
const seen = new Set<string>()
let since = Number.POSITIVE_INFINITY
let project = ""

const key = () => `superagents.seen.${project}`
const markOf = ({ id, generation }: AgentRow): string => `${id}.${generation}`

/** Reads what was kept for this project, once; `now` is the server's time. */
export function recall(named: string, now: number): void {
  if (named === project) return
  project = named
  const { since: first = now, seen: marks = [] }: Partial<Archive> = read()
  since = first
  for (const mark of marks) seen.add(mark)
  keep()
}

/** Each of these was looked at, or put aside. */
export function see(agents: readonly AgentRow[]): void {
  const fresh = agents.filter((agent) => !isActive(agent) && !seen.has(markOf(agent)))
  if (fresh.length === 0) return
  for (const agent of fresh) seen.add(markOf(agent))
  keep()
}

export function isUnread(agent: AgentRow): boolean {
  version()
  return !isActive(agent) && (agent.endedAt ?? 0) > since && !seen.has(markOf(agent))
}

/** What has ended and was not looked at, newest first; and of that, what failed. */
export const { unread, failures } = createRoot(() => {
  const unread = createMemo(() => ended().filter(isUnread))
  return { unread, failures: createMemo(() => unread().filter(({ status }) => status === "error")) }
})

function keep(): void {
  const kept: Archive = { since, seen: [...seen].slice(-MOST_KEPT) }
  try {
    if (state.project !== "") localStorage.setItem(key(), JSON.stringify(kept))
  } catch {
    // A browser that keeps nothing: until the tab is closed it is known here.
  }
  setVersion((count) => count + 1)
}

function read(): Partial<Archive> {
  try {
    return JSON.parse(localStorage.getItem(key()) ?? "{}")
  } catch {
    return {}
  }
}
