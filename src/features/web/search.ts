import { type Context, Hono } from "hono"
import { isActive } from "../../core/task.ts"
import { hitIn } from "../../lib/find.ts"
import { WebError } from "./errors.ts"
import type { Source } from "./ports.ts"
import type { AnswersFound } from "./wire.ts"

/** Answers read per request, so that results appear while the rest is read. */
const AT_ONCE = 10
/** Only this many newest ended tasks are searched. */
const MOST_SEARCHED = 500
const MOST_FILTER_CHARS = 200

/** Searches answers of ended tasks in their sessions; there is no index. */
export function searchRoutes(source: () => Source): Hono {
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
