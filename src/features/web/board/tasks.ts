import { type Context, Hono } from "hono"
import { z } from "zod"
import { isActive, NOBODY } from "../../../core/task.ts"
import { textDigest } from "../../board/rules/verify.ts"
import { type Archived, type Board, USER } from "../../board/service.ts"
import { type BoardTask, historyLimit, line, newTaskSchema, purseSchema, taskPatchSchema } from "../../board/task.ts"
import { bodyOf, parsed, WebError } from "../http.ts"
import type { Source } from "../ports.ts"
import { requireUserActions } from "../sources.ts"
import type { Ended, PurseState, TaskList, TaskRow } from "./wire.ts"

const newTask = newTaskSchema.extend({ owner: line() })
const historyQuery = z.object({ limit: z.string().transform(Number).pipe(historyLimit).optional() })

/** Routes of the board. The board's rules decide whether a change is allowed. */
export function boardRoutes(source: () => Source): Hono {
  const routes = new Hono()
  const board = () => requireBoard(source())
  const listed = async (context: Context) => context.json(await listOf(board()))
  const row = async (context: Context, id: string) => context.json(taskRow(await board().get(id), board()))

  routes.get("/tasks", listed)
  routes.post("/tasks", async (context) => {
    const made = await board().create(await bodyOf(context, newTask), USER)
    return context.json(taskRow(made, board()), 201)
  })
  routes.get("/tasks/history", async (context) => {
    const tasks = await board().history(parsed(historyQuery, context.req.query()).limit)
    return context.json({ tasks: tasks.map((task) => taskRow(task, board())) })
  })
  routes.get("/tasks/:id", (context) => row(context, context.req.param("id")))
  routes.patch("/tasks/:id", async (context) => {
    const id = context.req.param("id")
    const { seen, ...patch } = await bodyOf(context, shown)
    return context.json(ended(await board().update(id, parsed(taskPatchSchema, patch), USER, seen), board()))
  })
  for (const how of ["complete", "cancel"] as const)
    routes.post(`/tasks/:id/${how}`, async (context) =>
      context.json(ended(await board()[how](context.req.param("id"), USER), board())),
    )
  routes.post("/tasks/:id/run", async (context) => {
    const id = context.req.param("id")
    await board().run(id, await seenIn(context))
    return row(context, id)
  })
  routes.post("/tasks/:id/reply", async (context) => {
    const { text } = await bodyOf(context, words)
    const id = context.req.param("id")
    await reply(source(), id, text)
    return row(context, id)
  })
  routes.post("/tasks/accept", async (context) => {
    await board().accept(await seenIn(context))
    return listed(context)
  })
  for (const what of ["restore", "forget"] as const)
    routes.post(`/tasks/${what}`, async (context) => {
      await board()[what]()
      return listed(context)
    })
  return routes.route("/", purseRoutes(board))
}

function taskRow(task: BoardTask, board: Pick<Board, "state">): TaskRow {
  const { state, reason, text } = board.state(task)
  return { ...task, state, reason, stateText: text, seen: textDigest(task) }
}

/** The board as sent by route and event stream. */
export async function listOf(board: Board): Promise<TaskList> {
  const [tasks, agents, purse] = await Promise.all([board.list(), board.agents(), board.purse.view()])
  const rows = tasks.map((task) => taskRow(task, board))
  const lost = board.lost().length
  return { tasks: rows, agents, inFlight: board.inFlight(), ...(lost > 0 && { lost }), ...(purse && { purse }) }
}

function ended({ task, canceled, open }: Archived, board: Board): Ended {
  const ids = (tasks: readonly { id: string }[]) => tasks.map(({ id }) => id)
  return { ...taskRow(task, board), canceled: ids(canceled), open: ids(open) }
}

/** Routes of the purse, and of the reports of earlier ones. */
function purseRoutes(board: () => Board): Hono {
  const routes = new Hono()
  const purseState = async (context: Context) => {
    const purse = await board().purse.view()
    return context.json((purse ? { open: true, ...purse } : { open: false }) satisfies PurseState)
  }
  routes.get("/purse", purseState)
  routes.put("/purse", async (context) => {
    await board().purse.open(await bodyOf(context, purseSchema), USER)
    return purseState(context)
  })
  routes.delete("/purse", async (context) => {
    await board().purse.close(USER)
    return purseState(context)
  })
  routes.get("/reports", async (context) => context.json({ reports: await board().purse.reports() }))
  routes.get("/reports/:name", async (context) => context.json(await board().purse.report(context.req.param("name"))))
  return routes
}

const shown = z.looseObject({ seen: z.array(z.string()).optional() })

/** Texts that the caller was shown, as `seen` of their rows. Undefined for a request without a body, as scripts send it. */
const seenIn = async (context: Context) => (context.req.raw.body ? (await bodyOf(context, shown)).seen : undefined)

const words = z.strictObject({ text: z.string().trim().min(1).max(100_000) })

/** An active run reads the message at its next step; otherwise it starts a turn, which the board counts as a run. */
async function reply(source: Source, taskID: string, text: string): Promise<void> {
  const person = requireUserActions(source)
  const board = requireBoard(source)
  const task = await board.get(taskID)
  const { threadId, status, id } = task
  if (status !== "active")
    throw new WebError(409, `Task #${id} is ${status === "draft" ? "a draft; activate it first" : status}.`)
  if (board.state(task).state === "waiting for a person")
    throw new WebError(409, `Task #${id} was changed outside the board. Look at it and start it first.`)
  const run = source.agents.list().find((view) => view.task.sessionID === threadId && isActive(view.task))?.task
  if (run) return void (await person.call({ tell: run.id, prompt: text }, NOBODY))
  const thread = threadId === undefined ? undefined : await person.session(threadId)
  if (threadId === undefined || !thread)
    throw new WebError(409, `Task #${id} has no thread yet. Run it once; then its owner can be answered.`)
  await person.write({ sessionID: threadId, folder: thread.folder, text, agent: task.owner })
}

declare module "../ports.ts" {
  interface Source {
    readonly board?: Board
  }
}

/** The board of a source. Throws while the board is off. */
function requireBoard({ board }: Source): Board {
  if (!board) throw new WebError(404, "the board is off")
  return board
}
