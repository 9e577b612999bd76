/** Route in the page's address: view, filters, and detail sheet. */
export type Route = { readonly view: string; readonly filters: Filters; readonly shown?: Shown }

/** Views of the page, beside those of parts. `find` shows search results. */
const VIEWS = ["now", "answers", "find"]

/** A sheet: `agent`, `launch`, or one of a part. `id` of `launch`: task whose launch is copied. */
export type Shown = { readonly kind: string; readonly id?: string }

/** Names of a part in addresses. `id`: form of a sheet's id; absent for a sheet without one. */
export type PartRoutes = {
  readonly view: string
  readonly sheets: readonly { readonly kind: string; readonly id?: RegExp }[]
}

/** `q`: search words; `group`: how lists are grouped. A filter is empty where nothing is chosen. */
export type Filters = { readonly [Name in (typeof FILTERS)[number]]?: string }

const FILTERS = ["q", "agent", "outcome", "group"] as const

const AGENT_ID = /^bg_\w+$/

export const HOME: Route = { view: "now", filters: {} }

/** Route of an address. Parts that the address lacks are taken from `before`. */
export function routeOf(hash: string, parts: readonly { readonly routes: PartRoutes }[], before: Route = HOME): Route {
  const [, path = "", query = ""] = /^#\/([^?]*)(?:\?(.*))?$/.exec(hash) ?? []
  const [first = "", ...rest] = path.split("/")
  const view = [...VIEWS, ...parts.map(({ routes }) => routes.view)].find((each) => each === first)
  const sheets = parts.flatMap(({ routes }) => routes.sheets)
  const shown = shownIn(view ? rest : [first, ...rest], sheets)
  if (!view) return shown ? { view: before.view, filters: before.filters, shown } : HOME
  const given = new URLSearchParams(query)
  const filters = Object.fromEntries(FILTERS.flatMap((name) => (given.get(name) ? [[name, given.get(name)]] : [])))
  return { view, filters, shown }
}

/** Only valid ids count, because another word may be the name of a property of every object. */
function shownIn([kind = "", id = ""]: readonly string[], sheets: PartRoutes["sheets"]): Shown | undefined {
  if (kind === "launch") return AGENT_ID.test(id) ? { kind, id } : { kind }
  const sheet = [{ kind: "agent", id: AGENT_ID }, ...sheets].find((each) => each.kind === kind)
  if (sheet && !sheet.id) return { kind }
  return sheet?.id?.test(id) ? { kind, id } : undefined
}

export const isSameSheet = (a: Shown | undefined, b: Shown | undefined): boolean =>
  a?.kind === b?.kind && a?.id === b?.id

/** Address of a route, complete enough to be stored and shared. */
export function hashOf({ view, filters, shown }: Route): string {
  const query = new URLSearchParams(
    FILTERS.flatMap((name): [string, string][] => (filters[name] ? [[name, filters[name]]] : [])),
  ).toString()
  const path = shown ? `/${shown.kind}${shown.id === undefined ? "" : `/${shown.id}`}` : ""
  return view === "now" && path === "" && query === "" ? "#/" : `#/${view}${path}${query === "" ? "" : `?${query}`}`
}

/** Links to sheets. They keep the current view. */
export const agentLink = (id: string): string => `#/agent/${id}`
export const launchLink = (like?: string): string => `#/launch${like === undefined ? "" : `/${like}`}`

/** Code of a link in the fragment: `#code=…`. */
export const codeIn = (hash: string): string | undefined => /^#code=([\w.-]+)$/.exec(hash)?.[1]

/** Address of OpenCode's page for a session; undefined where there is no such page. */
export const threadLink = (base: string | undefined, sessionID: string): string | undefined =>
  base && /^https?:\/\//.test(base) ? `${base}${encodeURIComponent(sessionID)}` : undefined

export const threadCommand = (sessionID: string): string => `opencode --session ${sessionID}`
