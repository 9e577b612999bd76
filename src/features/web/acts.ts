import { type Context, Hono } from "hono"
import { z } from "zod"
import { isActive, isUnattended } from "../../core/task.ts"
import type { TaskView } from "../../runtime/tasks/view.ts"
import { bodyOf } from "./body.ts"
import { WebError } from "./errors.ts"
import { ACTS, type Act, type Source, type ToolCallResult } from "./ports.ts"
import { agentRow, boardTaskOf } from "./rows.ts"
import { namedTask, requireUserActions } from "./sources.ts"
import type { ActionResult } from "./wire.ts"

/** Arguments of `superagents_task`, which validates them. */
const launch = z.looseObject({ session: z.string().min(1).max(200).optional() })
const args = z.looseObject({})

const selection = z.union([
  z.strictObject({ all: z.literal(true) }),
  z.strictObject({ batchOf: z.string() }),
  z.strictObject({ ids: z.array(z.string()).max(1000) }),
])

/**
 * A user's actions on background tasks. Launches, messages, resumes and merges are calls of `superagents_task`, with
 * its checks and errors.
 */
export function actsRoutes(source: () => Source): Hono {
  const routes = new Hono()

  routes.post("/", async (context) => {
    const { session, ...given } = await bodyOf(context, launch)
    const called = await (session === undefined ? launchInNew(given) : launchIn(session, given))
    return context.json(done(source(), called), 201)
  })
  routes.post("/cancel", async (context) => {
    const { agents } = source()
    const ids = chosen(source(), await bodyOf(context, selection)).map(({ task }) => task.id)
    // Newest first: tasks that wait for others come later and must end as cancelled, not as stranded.
    const ended = await Promise.all(ids.toReversed().map(async (id) => ((await agents.cancel(id)) ? [id] : [])))
    return context.json({ stopped: ended.flat() })
  })
  // A merge has no other arguments.
  for (const act of ACTS)
    routes.post(`/:id/${act}`, async (context) =>
      answer(context, act, act === "merge" ? {} : await bodyOf(context, args)),
    )
  return routes

  async function launchIn(session: string, given: Readonly<Record<string, unknown>>): Promise<ToolCallResult> {
    const person = requireUserActions(source())
    if (!(await person.session(session))) throw new WebError(404, `There is no conversation ${session} any more.`)
    return person.call(given, session)
  }

  /** A new conversation is removed if the launch fails. */
  async function launchInNew(given: Readonly<Record<string, unknown>>): Promise<ToolCallResult> {
    const person = requireUserActions(source())
    const session = await person.open(String(given.description ?? "").slice(0, 200) || "Launched from the page")
    try {
      return await person.call(given, session)
    } catch (error) {
      await person.discard(session).catch(() => {})
      throw error
    }
  }

  async function answer(context: Context, act: Act, given: object) {
    const { task } = namedTask(source(), context)
    const { id, parentID } = task
    if (act === "resume" && isUnattended(task))
      throw new WebError(409, `Task ${id} is a run of board task #${boardTaskOf(task)}: answer or run that.`)
    const called = await requireUserActions(source()).call({ ...given, [act]: id }, parentID)
    return context.json(done(source(), called))
  }
}

/** Running tasks of this process, oldest first. */
function chosen({ agents }: Source, given: z.output<typeof selection>): readonly TaskView[] {
  const running = agents.list().filter(({ task, merging }) => (isActive(task) || merging) && !agents.isForeign(task.id))
  if ("all" in given) return running
  if ("ids" in given) return running.filter(({ task }) => given.ids.includes(task.id))
  const one = agents.get(given.batchOf)?.task
  return running.filter(({ task }) => task.parentID === one?.parentID && task.batch === one?.batch)
}

function done({ agents }: Source, { taskID, text }: ToolCallResult): ActionResult {
  const view = agents.get(taskID)
  if (!view) throw new WebError(404, `Task ${taskID} was cleared meanwhile.`)
  return { agent: agentRow(view, agents.isForeign(taskID), Date.now()), text }
}
