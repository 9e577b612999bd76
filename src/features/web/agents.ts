import { type Context, Hono } from "hono"
import { isActive, NOBODY } from "../../core/task.ts"
import { hitIn } from "../../lib/find.ts"
import type { TaskView } from "../../runtime/tasks/view.ts"
import { WebError } from "./errors.ts"
import type { Source } from "./ports.ts"
import { agentFacts, agentRow } from "./rows.ts"
import { namedTask } from "./sources.ts"
import type { AgentDetail, AnswersFound } from "./wire.ts"

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

/** Answers read per request, so that results appear while the rest is read. */
const AT_ONCE = 10
/** Only this many newest ended tasks are searched. */
const MOST_SEARCHED = 500
const MOST_FILTER_CHARS = 200

/** Searches answers of ended tasks in their sessions; there is no index. */
function searchRoutes(source: () => Source): Hono {
  const routes = new Hono()
  routes.get("/", async (context) => {
    const { filter, from } = wanted(context)
    const { agents } = source()
    const ended = agents
      .list()
      .filter(({ task }) => !isActive(task))
      .sort((a, b) => (b.task.run.endedAt ?? 0) - (a.task.run.endedAt ?? 0))
      .slice(0, MOST_SEARCHED)
    const found: AnswersFound["found"][number][] = []
    for (const { task } of ended.slice(from, from + AT_ONCE)) {
      // Unreadable sessions have no matches.
      const hit = hitIn(filter, await agents.answer(task.id).catch(() => ""))
      if (hit) found.push({ id: task.id, ...hit })
    }
    const next = from + AT_ONCE
    return context.json({ found, ...(next < ended.length && { next }) } satisfies AnswersFound)
  })
  return routes
}

function wanted(context: Context): { readonly filter: string; readonly from: number } {
  const filter = context.req.query("q")?.trim() ?? ""
  if (filter === "" || filter.length > MOST_FILTER_CHARS)
    throw new WebError(400, `"q" must be a text of 1 to ${MOST_FILTER_CHARS} characters.`)
  const from = context.req.query("from") ?? "0"
  if (!/^\d{1,3}$/.test(from) || Number(from) >= MOST_SEARCHED)
    throw new WebError(400, `"from" must be a whole number under ${MOST_SEARCHED}.`)
  return { filter, from: Number(from) }
}
