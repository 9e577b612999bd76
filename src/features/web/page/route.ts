/** What the page's address says: a view, how it is filtered, and what is looked at closely beside it. */
export type Route = { readonly view: View; readonly filters: Filters; readonly shown?: Shown }

/** `find`: what the search has found. */
const VIEWS = ["now", "board", "answers", "find"] as const

export type View = (typeof VIEWS)[number]

export type Shown =
  | { readonly kind: "task" | "agent"; readonly id: string }
  /** A form: for a board task, or to launch an agent; `like` names a task whose launch it begins with. */
  | { readonly kind: "new" | "launch"; readonly id?: string }

/** `q`: words to find. `group`: by what a list is grouped. Empty for any. */
export type Filters = { readonly [Name in (typeof FILTERS)[number]]?: string }

const FILTERS = ["q", "agent", "outcome", "group"] as const

export const HOME: Route = { view: "now", filters: {} }

/** The place that an address names; what it leaves out, the view and its filters, stays as it was `before`. */
export function routeOf(hash: string, before: Route = HOME): Route {
  const [, path = "", query = ""] = /^#\/([^?]*)(?:\?(.*))?$/.exec(hash) ?? []
  const [first = "", ...rest] = path.split("/")
  const view = VIEWS.find((each) => each === first)
  const shown = shownIn(view ? rest : [first, ...rest])
  if (!view) return shown ? { view: before.view, filters: before.filters, shown } : HOME
  const given = new URLSearchParams(query)
  const filters = Object.fromEntries(FILTERS.flatMap((name) => (given.get(name) ? [[name, given.get(name)]] : [])))
  return { view, filters, shown }
}

/** Ids alone: any other word may be the name of what every object has. */
function shownIn([kind, id = ""]: readonly string[]): Shown | undefined {
  if (kind === "new") return { kind }
  if (kind === "launch") return /^bg_\w+$/.test(id) ? { kind, id } : { kind }
  if (kind === "task" && /^\d+$/.test(id)) return { kind, id }
  return kind === "agent" && /^bg_\w+$/.test(id) ? { kind, id } : undefined
}

/** The address of a place, whole: it can be kept and sent. */
export function hashOf({ view, filters, shown }: Route): string {
  const query = new URLSearchParams(
    FILTERS.flatMap((name): [string, string][] => (filters[name] ? [[name, filters[name]]] : [])),
  ).toString()
  const path = shown ? `/${shown.kind}${shown.id === undefined ? "" : `/${shown.id}`}` : ""
  return view === "now" && path === "" && query === "" ? "#/" : `#/${view}${path}${query === "" ? "" : `?${query}`}`
}

/** Links beside the present view. */
export const taskLink = (id: string): string => `#/task/${id}`
export const agentLink = (id: string): string => `#/agent/${id}`
export const launchLink = (like?: string): string => `#/launch${like === undefined ? "" : `/${like}`}`
export const NEW_TASK = "#/new"

/** What a link lets in by, in the fragment: `#code=…`. */
export const codeIn = (hash: string): string | undefined => /^#code=([\w.-]+)$/.exec(hash)?.[1]

/** Where a session can be seen: on OpenCode's own page, or by a command. */
export const threadLink = (base: string | undefined, sessionID: string): string | undefined =>
  base && /^https?:\/\//.test(base) ? `${base}${encodeURIComponent(sessionID)}` : undefined

export const threadCommand = (sessionID: string): string => `opencode --session ${sessionID}`
