import { batch, createMemo, createRoot, createSignal } from "solid-js"
import { createStore, reconcile, unwrap } from "solid-js/store"
import type { Limits } from "../ports.ts"
import type { AgentRow, Delta, PageSnapshot } from "../wire.ts"
import { parts } from "./page-part.ts"
import { isActive, newestFirst, oldestFirst, type Sum } from "./select.ts"

type Link =
  | { readonly state: "loading" }
  | { readonly state: "live" }
  | { readonly state: "lost"; readonly since: number }
  | { readonly state: "refused"; readonly message: string }

type State = {
  project: string
  agents: Record<string, AgentRow>
  threadBase?: string
  limits?: Limits
  /** Spending as the daily limit counts it; absent without such a limit. */
  spent?: Sum
}

const [state, setState] = createStore<State>({ project: "", agents: {} })
const [link, setLink] = createSignal<Link>({ state: "loading" })
const [now, setNow] = createSignal(Date.now())
/**
 * Counts the changes that concern lists: an agent appears, disappears, begins, ends, or changes after its end. Long
 * lists are computed again only then.
 */
const [roster, setRoster] = createSignal(0)
const renewRoster = () => setRoster((count) => count + 1)
/** Time of the server's clock minus the time of the browser's clock. */
let skew = 0

/** `now`: the server's time. It is updated every second while the page is connected. */
export { link, now, setLink, state }

/** Rows of agents, whose figures are not tracked. Running agents come oldest first, ended agents newest first. */
export const { running, ended } = createRoot(() => ({
  running: createMemo(() => rows().filter(isActive).sort(oldestFirst)),
  ended: createMemo(() =>
    rows()
      .filter((agent) => !isActive(agent))
      .sort(newestFirst),
  ),
}))

function rows(): AgentRow[] {
  roster()
  return Object.values(unwrap(state).agents)
}

/** Rows of the running agents. Figures are tracked: a view that calls this is updated when a figure changes. */
export const runningNow = (): AgentRow[] => running().flatMap(({ id }) => state.agents[id] ?? [])

export function tick(): void {
  if (link().state === "live") setNow(Date.now() + skew)
}

export function applyEvent(event: string, data: unknown): void {
  batch(() => {
    for (const part of [{ begin, change }, ...parts()]) {
      if (event === "state") part.begin(data as PageSnapshot)
      if (event === "change") part.change(data as Delta)
    }
    if (link().state !== "live") setLink({ state: "live" })
    tick()
  })
}

function begin({ project, now, agents, threadBase, limits, spent }: PageSnapshot): void {
  skew = now - Date.now()
  setState("agents", reconcile(Object.fromEntries(agents.map((row) => [row.id, row]))))
  renewRoster()
  setState({ project, threadBase, limits, spent })
  loadReadMarks(now)
}

function change(delta: Delta): void {
  skew = delta.now - Date.now()
  for (const row of delta.agents ?? []) takeAgent(row)
  // Setting undefined removes a key from a store.
  for (const id of delta.agentsGone ?? []) setState("agents", id, undefined as never)
  if (delta.agentsGone) renewRoster()
  if (delta.spent) setState("spent", delta.spent)
}

function takeAgent(row: AgentRow): void {
  const before = unwrap(state).agents[row.id]
  const stays = before !== undefined && isActive(before) && isActive(row)
  setState("agents", row.id, reconcile(row))
  if (!stays) renewRoster()
}

/** Keeps in the browser which ended tasks the user has read. Tasks that ended before the first visit count as read. */

const MOST_KEPT = 5000

type ReadMarks = { readonly since: number; readonly seen: readonly string[] }

const [version, setVersion] = createSignal(0)
const seen = new Set<string>()
let since = Number.POSITIVE_INFINITY
/** Project of the loaded marks. */
let project = ""

const key = () => `superagents.seen.${project}`
const markOf = ({ id, generation }: AgentRow): string => `${id}.${generation}`

/** Loads the project's read marks, once for each project: a new link may lead to another one. `now`: the server's time. */
function loadReadMarks(now: number): void {
  if (state.project === project) return
  project = state.project
  seen.clear()
  since = read().since ?? now
  keep()
}

/** Marks these ended tasks as read. */
export function markAsRead(agents: readonly AgentRow[]): void {
  const fresh = agents.filter((agent) => !isActive(agent) && !seen.has(markOf(agent)))
  if (fresh.length === 0) return
  for (const agent of fresh) seen.add(markOf(agent))
  keep()
}

/** Takes over what other tabs have marked as read. */
export function takeReadMarks(): void {
  for (const mark of read().seen ?? []) seen.add(mark)
  setVersion((count) => count + 1)
}

export function isUnread(agent: AgentRow): boolean {
  version()
  return !isActive(agent) && (agent.endedAt ?? 0) > since && !seen.has(markOf(agent))
}

/** `unread`: unread ended tasks, newest first. `failures`: the failed tasks among them. */
export const { unread, failures } = createRoot(() => {
  const unread = createMemo(() => ended().filter(isUnread))
  return { unread, failures: createMemo(() => unread().filter(({ status }) => status === "error")) }
})

/** Adds the marks to the stored ones: another tab may have written some that this one has not heard of. */
function keep(): void {
  takeReadMarks()
  const kept: ReadMarks = { since, seen: [...seen].slice(-MOST_KEPT) }
  try {
    localStorage.setItem(key(), JSON.stringify(kept))
  } catch {
    // Without storage the marks last until the tab is closed.
  }
}

function read(): Partial<ReadMarks> {
  try {
    return JSON.parse(localStorage.getItem(key()) ?? "{}")
  } catch {
    return {}
  }
}
