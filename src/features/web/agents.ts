import { Hono } from "hono"
import { NOBODY } from "../../core/task.ts"
import type { TaskView } from "../../runtime/tasks/view.ts"
import { WebError } from "./errors.ts"
import type { Source } from "./ports.ts"
import { agentFacts, agentRow } from "./rows.ts"
import { searchRoutes } from "./search.ts"
import { namedTask } from "./sources.ts"
import type { AgentDetail } from "./wire.ts"

/** Routes for background tasks. */
export function agentsRoutes(source: () => Source): Hono {
  const routes = new Hono()
  const agentsOf = () => source().agents
  const rowOf = (view: TaskView) => agentRow(view, agentsOf().isForeign(view.task.id), Date.now())

  routes.get("/", (context) => context.json({ agents: agentsOf().list().map(rowOf) }))
  routes.route("/search", searchRoutes(source))
  routes.get("/:id", async (context) => {
    const agents = agentsOf()
    const view = namedTask(source(), context)
    const { id, parentID } = view.task
    const parts = [agents.answer(id), agents.diff(id), agents.history(id), parentOf(parentID)] as const
    const [answer, diff, runs, parent] = await Promise.all(parts)
    return context.json({ ...rowOf(view), ...agentFacts(view), answer, diff, runs, parent } satisfies AgentDetail)
  })
  routes.post("/:id/cancel", async (context) => {
    const agents = agentsOf()
    const { id } = namedTask(source(), context).task
    if (agents.isForeign(id))
      throw new WebError(409, `Task ${id} is run by another OpenCode process; only that one can cancel it.`)
    if (!(await agents.cancel(id))) throw new WebError(409, `Task ${id} has ended; there is nothing to cancel.`)
    return context.json(rowOf(namedTask(source(), context)))
  })
  return routes

  async function parentOf(id: string) {
    const session = id === NOBODY ? undefined : await source().person?.session(id)
    return session && { id, title: session.title }
  }
}
