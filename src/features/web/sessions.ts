import { Hono } from "hono"
import { WebError } from "./errors.ts"
import type { Source } from "./ports.ts"
import { requireUserActions } from "./sources.ts"
import type { Choices } from "./wire.ts"

/** Routes for conversations and the choices of a launch. */
export function sessionsRoutes(source: () => Source): Hono {
  const routes = new Hono()

  routes.get("/", async (context) => context.json({ sessions: await requireUserActions(source()).conversations() }))
  routes.get("/choices", async (context) => {
    const person = requireUserActions(source())
    const [agents, models, sessions] = await Promise.all([person.agents(), person.models(), person.conversations()])
    const named = agents.filter(({ hidden }) => !hidden).map(({ name, description }) => ({ name, description }))
    return context.json({ agents: named, models, sessions } satisfies Choices)
  })
  routes.get("/:id", async (context) => {
    const id = context.req.param("id")
    const found = await requireUserActions(source()).session(id)
    if (!found) throw new WebError(404, "There is no such session any more.")
    return context.json({ id, title: found.title })
  })
  routes.post("/:id/clear", async (context) =>
    context.json({ text: await requireUserActions(source()).clear(context.req.param("id")) }),
  )
  return routes
}
