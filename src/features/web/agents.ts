import { type Context, Hono } from "hono"
import { z } from "zod"
import type { Reply } from "../../core/ports.ts"
import { type Ask, isActive, NOBODY, type Task } from "../../core/task.ts"
import type { TaskView } from "../../present/view.ts"
import { hitIn } from "./filter.ts"
import { bodyOf, parsed, WebError } from "./http.ts"
import { ACTS, type Act, type Source, type ToolCallResult } from "./ports.ts"
import { PARTS } from "./registry.ts"
import { agentFacts, agentRow } from "./rows.ts"
import { namedTask, requireUserActions } from "./sources.ts"
import type { ActionResult, AgentDetail, AnswersFound, Choices } from "./wire.ts"

export function agentsRoutes(source: () => Source): Hono {
  const routes = new Hono()
  const agentsOf = () => source().agents
  const rowOf = (view: TaskView) => agentRow(view, agentsOf().isForeign(view.task.id), Date.now(), PARTS)

  routes.get("/", (context) => context.json({ agents: agentsOf().list().map(rowOf) }))
  // Answers are read from the tasks' sessions, because there is no index.
  routes.get("/search", async (context) => {
    const { q: filter, from } = parsed(searchQuery, context.req.query())
    const agents = agentsOf()
    const ended = agents
      .list()
      .filter(({ task }) => !isActive(task))
      .sort((a, b) => (b.task.run.endedAt ?? 0) - (a.task.run.endedAt ?? 0))
      .slice(0, MOST_SEARCHED)
    const found: AnswersFound["found"][number][] = []
    for (const { task } of ended.slice(from, from + AT_ONCE)) {
      // A session that cannot be read counts as one without matches.
      const hit = hitIn(filter, await agents.answer(task.id).catch(() => ""))
      if (hit) found.push({ id: task.id, ...hit })
    }
    const next = from + AT_ONCE
    return context.json({ found, ...(next < ended.length && { next }) } satisfies AnswersFound)
  })
  routes.get("/:id", async (context) => {
    const agents = agentsOf()
    const view = namedTask(source(), context)
    const { id, parentID } = view.task
    const parts = [agents.answer(id), agents.diff(id), agents.history(id), parentOf(parentID)] as const
    const [answer, diff, runs, parent] = await Promise.all(parts)
    return context.json({ ...rowOf(view), ...agentFacts(view), answer, diff, runs, parent } satisfies AgentDetail)
  })
  routes.post("/:id/cancel", async (context) => {
    // A script may send no body.
    const { generation } = context.req.raw.body ? await bodyOf(context, shownRun) : {}
    const agents = agentsOf()
    const { id, run } = namedTask(source(), context).task
    if (agents.isForeign(id))
      throw new WebError(409, `Task ${id} is run by another OpenCode process; only that one can cancel it.`)
    if (generation !== undefined && generation !== run.generation)
      throw new WebError(409, `Somebody has resumed task ${id} since you looked. It was not stopped.`)
    if (!(await agents.cancel(id))) throw new WebError(409, `Task ${id} has ended; there is nothing to cancel.`)
    return context.json(rowOf(namedTask(source(), context)))
  })
  return routes

  async function parentOf(id: string) {
    const session = id === NOBODY ? undefined : await source().person?.session(id)
    return session && { id, title: session.title }
  }
}

/** Number of answers that one request reads, so that first results appear while the page requests the rest. */
const AT_ONCE = 10
/** Number of newest ended tasks that are searched. */
const MOST_SEARCHED = 500
const MOST_FILTER_CHARS = 200

const searchQuery = z.object({
  q: z.string().trim().min(1).max(MOST_FILTER_CHARS),
  from: z
    .string()
    .regex(/^\d{1,3}$/)
    .transform(Number)
    .pipe(z.number().lt(MOST_SEARCHED))
    .default(0),
})

/** A run as the user saw it. */
const shownRun = z.looseObject({ generation: z.number().optional() })

/** Body of a launch: arguments of `superagents_task`. Only the tool itself validates them. */
const launch = z.looseObject({ session: z.string().min(1).max(200).optional() })
const args = z.looseObject({})

const selection = z.union([
  z.strictObject({ all: z.literal(true) }),
  z.strictObject({ batchOf: z.string() }),
  z.strictObject({ ids: z.array(z.union([z.string(), shownRun.extend({ id: z.string() })])).max(10_000) }),
])

/** Launches, messages, resumes and merges are calls of `superagents_task`, with the checks and errors of this tool. */
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
    // Newest first: a task that waits for others was launched after them and is cancelled first. Otherwise it would end
    // as stranded when they end.
    const ended = await Promise.all(ids.toReversed().map(async (id) => ((await agents.cancel(id)) ? [id] : [])))
    return context.json({ stopped: ended.flat() })
  })
  // A merge has no other arguments, so its body is not read.
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

  /** Launches a task in a new conversation. The conversation is removed if the launch fails. */
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
    const refusal = act === "resume" && PARTS.flatMap((part) => part.refusesResume(task) ?? [])[0]
    if (refusal) throw new WebError(409, refusal)
    const called = await requireUserActions(source()).call({ ...given, [act]: id }, parentID)
    return context.json(done(source(), called))
  }
}

/** Running tasks of this process that the request selects, oldest first. */
function chosen({ agents }: Source, given: z.output<typeof selection>): readonly TaskView[] {
  const running = agents.list().filter(({ task, merging }) => (isActive(task) || merging) && !agents.isForeign(task.id))
  if ("all" in given) return running
  if ("ids" in given) {
    const named = new Map(
      given.ids.map((each) => (typeof each === "string" ? [each, undefined] : [each.id, each.generation])),
    )
    const isNamed = ({ id, run }: Task) => named.has(id) && (named.get(id) ?? run.generation) === run.generation
    return running.filter(({ task }) => isNamed(task))
  }
  const one = agents.get(given.batchOf)?.task
  return running.filter(({ task }) => task.parentID === one?.parentID && task.batch === one?.batch)
}

function done({ agents }: Source, { taskID, text }: ToolCallResult): ActionResult {
  const view = agents.get(taskID)
  if (!view) throw new WebError(404, `Task ${taskID} was cleared meanwhile.`)
  return { agent: agentRow(view, agents.isForeign(taskID), Date.now(), PARTS), text }
}

const MOST_WORDS = 10_000
const words = z.string().max(MOST_WORDS)

const reply = z.union([
  z.strictObject({ reply: z.enum(["once", "always", "reject"]), message: words.optional() }),
  z.strictObject({ answers: z.array(z.array(words.min(1))).min(1) }),
  z.strictObject({ dismiss: z.literal(true) }),
])

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
