/** Route in the page's address: view, filters, and detail sheet. */
export type Route = { readonly view: View; readonly filters: Filters; readonly shown?: Shown }

/** Views of the page. `find` shows search results. */
const VIEWS = ["now", "board", "answers", "find"] as const

export type View = (typeof VIEWS)[number]

export type Shown =
  | { readonly kind: "task" | "agent"; readonly id: string }
  /** A form for a new board task or a launch. `id`: task whose launch is copied. */
  | { readonly kind: "new" | "launch"; readonly id?: string }

/** `q`: search words; `group`: how lists are grouped. A filter is empty where nothing is chosen. */
export type Filters = { readonly [Name in (typeof FILTERS)[number]]?: string }

const FILTERS = ["q", "agent", "outcome", "group"] as const

export const HOME: Route = { view: "now", filters: {} }

/** Route of an address. Parts that the address lacks are taken from `before`. */
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

/**
 * The sheet that an address names. Only valid ids count, because another word may be the name of a property of every
 * object.
 */
function shownIn([kind, id = ""]: readonly string[]): Shown | undefined {
  if (kind === "new") return { kind }
  if (kind === "launch") return /^bg_\w+$/.test(id) ? { kind, id } : { kind }
  if (kind === "task" && /^\d+$/.test(id)) return { kind, id }
  return kind === "agent" && /^bg_\w+$/.test(id) ? { kind, id } : undefined
}

/** Address of a route, complete enough to be stored and shared. */
export function hashOf({ view, filters, shown }: Route): string {
  const query = new URLSearchParams(
    FILTERS.flatMap((name): [string, string][] => (filters[name] ? [[name, filters[name]]] : [])),
  ).toString()
  const path = shown ? `/${shown.kind}${shown.id === undefined ? "" : `/${shown.id}`}` : ""
  return view === "now" && path === "" && query === "" ? "#/" : `#/${view}${path}${query === "" ? "" : `?${query}`}`
}

/** Links to sheets. They keep the current view. */
export const taskLink = (id: string): string => `#/task/${id}`
export const agentLink = (id: string): string => `#/agent/${id}`
export const launchLink = (like?: string): string => `#/launch${like === undefined ? "" : `/${like}`}`
export const NEW_TASK = "#/new"

/** Code of a link in the fragment: `#code=…`. */
export const codeIn = (hash: string): string | undefined => /^#code=([\w.-]+)$/.exec(hash)?.[1]

/** Address of OpenCode's page for a session; undefined where there is no such page. */
export const threadLink = (base: string | undefined, sessionID: string): string | undefined =>
  base && /^https?:\/\//.test(base) ? `${base}${encodeURIComponent(sessionID)}` : undefined

export const threadCommand = (sessionID: string): string => `opencode --session ${sessionID}`
