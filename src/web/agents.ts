import { type Context, Hono } from "hono"
import type { TaskView } from "../engine/tasks/view.ts"
import { WebError } from "./errors.ts"
import type { Agents } from "./ports.ts"
import { agentRow } from "./rows.ts"
import type { AgentDetail } from "./wire.ts"

/** The background tasks' routes. */
export function agentsRoutes(agentsOf: () => Agents, now: () => number): Hono {
  const routes = new Hono()
  const rowOf = (view: TaskView) => agentRow(view, agentsOf().isForeign(view.task.id), now())

  routes.get("/", (context) => context.json({ agents: agentsOf().list().map(rowOf) }))
  routes.get("/:id", async (context) => {
    const agents = agentsOf()
    const { id } = find(context).task
    const [answer, diff] = await Promise.all([agents.answer(id), agents.diff(id)])
    return context.json({ ...rowOf(find(context)), answer, diff } satisfies AgentDetail)
  })
  routes.post("/:id/cancel", async (context) => {
    const agents = agentsOf()
    const { id } = find(context).task
    if (agents.isForeign(id))
      throw new WebError(409, `Task ${id} is run by another OpenCode process; only that one can cancel it.`)
    if (!(await agents.cancel(id))) throw new WebError(409, `Task ${id} has ended; there is nothing to cancel.`)
    return context.json(rowOf(find(context)))
  })
  return routes

  function find(context: Context): TaskView {
    const view = agentsOf().get(context.req.param("id") ?? "")
    if (!view) throw new WebError(404, "There is no such background task; it may have been cleared.")
    return view
  }
}
