/** What the page's address says: a task, an agent, a form, or nothing but the page. */
export type Route =
  | { readonly view: "home" }
  | { readonly view: "new" }
  | { readonly view: "task"; readonly id: string }
  | { readonly view: "agent"; readonly id: string }

export function routeOf(hash: string): Route {
  if (hash === "#/new") return { view: "new" }
  // Ids alone: any other word may be the name of what every object has.
  const task = /^#\/task\/(\d+)$/.exec(hash)?.[1]
  if (task !== undefined) return { view: "task", id: task }
  const agent = /^#\/agent\/(bg_\w+)$/.exec(hash)?.[1]
  return agent === undefined ? { view: "home" } : { view: "agent", id: agent }
}

export const taskLink = (id: string): string => `#/task/${id}`
export const agentLink = (id: string): string => `#/agent/${id}`

/** The key in a fragment: `#token=…`. */
export const tokenIn = (hash: string): string | undefined => /^#token=([\w-]+)$/.exec(hash)?.[1]

/** Where a session can be seen: on OpenCode's own page, or by a command. */
export const threadLink = (base: string | undefined, sessionID: string): string | undefined =>
  base && /^https?:\/\//.test(base) ? `${base}${encodeURIComponent(sessionID)}` : undefined

export const threadCommand = (sessionID: string): string => `opencode --session ${sessionID}`
