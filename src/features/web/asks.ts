import { type Context, Hono } from "hono"
import { z } from "zod"
import type { Ask } from "../../core/task.ts"
import type { Reply } from "../../runtime/user-actions.ts"
import { bodyOf } from "./body.ts"
import { WebError } from "./errors.ts"
import type { Source } from "./ports.ts"
import { requireUserActions } from "./sources.ts"

const MOST_WORDS = 10_000
const words = z.string().max(MOST_WORDS)

const reply = z.union([
  z.strictObject({ reply: z.enum(["once", "always", "reject"]), message: words.optional() }),
  z.strictObject({ answers: z.array(z.array(words.min(1))).min(1) }),
  z.strictObject({ dismiss: z.literal(true) }),
])

/** Routes for open questions and their answers. */
export function asksRoutes(source: () => Source): Hono {
  const routes = new Hono()

  routes.get("/:id", async (context) => {
    const question = await requireUserActions(source()).question(find(context))
    if (!question) throw closed()
    return context.json(question)
  })
  routes.post("/:id", async (context) => {
    const ask = find(context)
    const given: Reply = await bodyOf(context, reply)
    if ("reply" in given !== (ask.kind === "permission"))
      throw new WebError(400, `This is a ${ask.kind}: ${EXPECTED[ask.kind]}`)
    if (!(await requireUserActions(source()).answer(ask, given))) throw closed()
    return context.json({ id: ask.id })
  })
  return routes

  function find(context: Context): Ask {
    const id = context.req.param("id") ?? ""
    const { agents } = source()
    for (const { task, asks } of agents.list()) {
      const ask = asks.find((each) => each.id === id)
      if (ask && agents.isForeign(task.id))
        throw new WebError(409, `Task ${task.id} is run by another OpenCode process. Answer its question there.`)
      if (ask) return ask
    }
    throw closed()
  }
}

const EXPECTED = {
  permission: 'answer with {"reply": "once", "always" or "reject"}.',
  question: 'answer with {"answers": [["…"]]}, one list for each question, or with {"dismiss": true}.',
} as const

const closed = (): WebError =>
  new WebError(409, "This question is no longer open: it was answered elsewhere, or its agent has ended.")
