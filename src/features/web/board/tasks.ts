import { Hono } from "hono"
import { z } from "zod"
import { isActive, NOBODY } from "../../../core/task.ts"
import { type Archived, type Board, USER } from "../../board/service.ts"
import { type BoardTask, historyLimit, line, newTaskSchema, purseSchema, taskPatchSchema } from "../../board/task.ts"
import { bodyOf, parsed, WebError } from "../http.ts"
import type { Source } from "../ports.ts"
import { requireUserActions } from "../sources.ts"
import type { Ended, PurseState, TaskList, TaskRow } from "./wire.ts"

const newTask = newTaskSchema.extend({ owner: line() })
const historyQuery = z.object({ limit: z.string().transform(Number).pipe(historyLimit).optional() })

/** Routes of the board. The board's rules decide whether a change is allowed. */
export function tasksRoutes(source: () => Source): Hono {
  const routes = new Hono()

  routes.get("/", async (context) => context.json(await listOf(requireBoard(source()))))
  routes.post("/", async (context) => {
    const board = requireBoard(source())
    const made = await board.create(await bodyOf(context, newTask), USER)
    return context.json(taskRow(made, board), 201)
  })
  routes.get("/history", async (context) => {
    const board = requireBoard(source())
    const tasks = await board.history(parsed(historyQuery, context.req.query()).limit)
    return context.json({ tasks: tasks.map((task) => taskRow(task, board)) })
  })
  routes.get("/:id", async (context) => {
    const board = requireBoard(source())
    return context.json(taskRow(await board.get(context.req.param("id")), board))
  })
  routes.patch("/:id", async (context) => {
    const board = requireBoard(source())
    const id = context.req.param("id")
    return context.json(ended(await board.update(id, await bodyOf(context, taskPatchSchema), USER), board))
  })
  for (const how of ["complete", "cancel"] as const)
    routes.post(`/:id/${how}`, async (context) => {
      const board = requireBoard(source())
      return context.json(ended(await board[how](context.req.param("id"), USER), board))
    })
  routes.post("/:id/run", async (context) => {
    const board = requireBoard(source())
    const id = context.req.param("id")
    await board.run(id)
    return context.json(taskRow(await board.get(id), board))
  })
  /** Actions on the whole board. */
  for (const what of ["accept", "restore", "forget"] as const)
    routes.post(`/${what}`, async (context) => {
      const board = requireBoard(source())
      await board[what]()
      return context.json(await listOf(board))
    })
  return routes
}

/** Row of a board task. */
function taskRow(task: BoardTask, board: Pick<Board, "state">): TaskRow {
  const { state, reason, text } = board.state(task)
  return { ...task, state, reason, stateText: text }
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

/** Routes that show, open and close the purse. */
export function purseRoutes(source: () => Source): Hono {
  const routes = new Hono()
  const purseState = async (): Promise<PurseState> => {
    const purse = await requireBoard(source()).purse.view()
    return purse ? { open: true, ...purse } : { open: false }
  }
  routes.get("/", async (context) => context.json(await purseState()))
  routes.put("/", async (context) => {
    const given = await bodyOf(context, purseSchema)
    await requireBoard(source()).purse.open(given, USER)
    return context.json(await purseState())
  })
  routes.delete("/", async (context) => {
    await requireBoard(source()).purse.close(USER)
    return context.json(await purseState())
  })
  return routes
}

/** Reports of earlier purses, newest first. */
export function reportsRoutes(source: () => Source): Hono {
  const routes = new Hono()
  routes.get("/", async (context) => context.json({ reports: await requireBoard(source()).purse.reports() }))
  routes.get("/:name", async (context) =>
    context.json(await requireBoard(source()).purse.report(context.req.param("name"))),
  )
  return routes
}

const words = z.strictObject({ text: z.string().trim().min(1).max(100_000) })

/**
 * Route for a user's message to the owner of a board task, sent to the task's thread. An active run reads the message
 * at its next step; otherwise the message starts a turn, which the board counts as a run.
 */
export function repliesRoutes(source: () => Source): Hono {
  const routes = new Hono()
  routes.post("/:id/reply", async (context) => {
    const { agents } = source()
    const person = requireUserActions(source())
    const board = requireBoard(source())
    const { text } = await bodyOf(context, words)
    const task = await board.get(context.req.param("id"))
    const { threadId, status, id } = task
    if (status !== "active")
      throw new WebError(409, `Task #${id} is ${status === "draft" ? "a draft; activate it first" : status}.`)
    if (board.state(task).state === "waiting for a person")
      throw new WebError(409, `Task #${id} was changed outside the board. Look at it and start it first.`)
    const run = agents.list().find((view) => view.task.sessionID === threadId && isActive(view.task))?.task
    if (run) await person.call({ tell: run.id, prompt: text }, NOBODY)
    else {
      const thread = threadId === undefined ? undefined : await person.session(threadId)
      if (threadId === undefined || !thread)
        throw new WebError(409, `Task #${id} has no thread yet. Run it once; then its owner can be answered.`)
      await person.write({ sessionID: threadId, folder: thread.folder, text, agent: task.owner })
    }
    return context.json(taskRow(await board.get(id), board))
  })
  return routes
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
