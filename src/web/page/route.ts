/** What the page's address says: a task, an agent, a form, or nothing but the page. */
export type Route =
  | { readonly view: "home" }
  | { readonly view: "new" }
  | { readonly view: "task"; readonly id: string }
  | { readonly view: "agent"; readonly id: string }

export function routeOf(hash: string): Route {
  const [, view, id = ""] = /^#\/(task|agent|new)(?:\/([\w-]+))?$/.exec(hash) ?? []
  if (view === "new") return { view }
  if ((view === "task" || view === "agent") && id !== "") return { view, id }
  return { view: "home" }
}

export const taskLink = (id: string): string => `#/task/${id}`
export const agentLink = (id: string): string => `#/agent/${id}`

/** The key in a fragment: `#token=…`. */
export const tokenIn = (hash: string): string | undefined => /^#token=([\w-]+)$/.exec(hash)?.[1]

/** Where a session can be seen: on OpenCode's own page, or by a command. */
export const threadLink = (base: string | undefined, sessionID: string): string | undefined =>
  base && /^https?:\/\//.test(base) ? `${base}${encodeURIComponent(sessionID)}` : undefined

export const threadCommand = (sessionID: string): string => `opencode --session ${sessionID}`
