import { type Context, Hono } from "hono"
import { z } from "zod"
import { type Archived, type Board, MOST_HISTORY, USER } from "../board/service.ts"
import { MOST_ITEMS, newResourceSchema, newStepSchema, newTaskSchema, taskPatchSchema } from "../board/task.ts"
import { bodyOf } from "./body.ts"
import { WebError } from "./errors.ts"
import type { Source } from "./ports.ts"
import { taskRow } from "./rows.ts"
import { requireBoard } from "./sources.ts"
import type { Ended, PurseState, TaskList } from "./wire.ts"

/** Checks the length first: each wrong entry costs time and a line of the error. */
const listOfAtMost = <Item extends z.ZodType>(item: Item) => z.array(z.unknown()).max(MOST_ITEMS).pipe(z.array(item))

const newTask = newTaskSchema.extend({
  owner: z.string(),
  steps: listOfAtMost(newStepSchema).optional(),
  resources: listOfAtMost(newResourceSchema).optional(),
})

const patch = taskPatchSchema.refine((fields) => Object.values(fields).some((value) => value !== undefined), {
  error: "Nothing to change: give a title, description, owner or status.",
})

/** Routes of the board, whose rules decide on changes. */
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
    const tasks = await board.history(limitOf(context))
    return context.json({ tasks: tasks.map((task) => taskRow(task, board)) })
  })
  routes.get("/:id", async (context) => {
    const board = requireBoard(source())
    return context.json(taskRow(await board.get(idOf(context)), board))
  })
  routes.patch("/:id", async (context) => {
    const board = requireBoard(source())
    const id = idOf(context)
    return context.json(ended(await board.update(id, await bodyOf(context, patch), USER), board))
  })
  for (const how of ["complete", "cancel"] as const)
    routes.post(`/:id/${how}`, async (context) => {
      const board = requireBoard(source())
      return context.json(ended(await board[how](idOf(context), USER), board))
    })
  routes.post("/:id/run", async (context) => {
    const board = requireBoard(source())
    const id = idOf(context)
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

function idOf(context: Context): string {
  const id = context.req.param("id") ?? ""
  if (!/^\d{1,15}$/.test(id)) throw new WebError(404, "There is no such task: ids are numbers.")
  return id
}

function limitOf(context: Context): number | undefined {
  const given = context.req.query("limit")
  if (given === undefined) return undefined
  const limit = /^\d{1,6}$/.test(given) ? Number(given) : 0
  if (limit < 1 || limit > MOST_HISTORY)
    throw new WebError(400, `"limit" must be a whole number from 1 to ${MOST_HISTORY}.`)
  return limit
}

/** The board's rules validate the values. */
const given = z.strictObject({ max: z.unknown(), until: z.unknown() })

/** Routes that show, open and close the purse. */
export function purseRoutes(source: () => Source): Hono {
  const routes = new Hono()
  const stands = async (): Promise<PurseState> => {
    const purse = await requireBoard(source()).purse.view()
    return purse ? { open: true, ...purse } : { open: false }
  }
  routes.get("/", async (context) => context.json(await stands()))
  routes.put("/", async (context) => {
    const { max, until } = await bodyOf(context, given)
    await requireBoard(source()).purse.open({ max, until }, USER)
    return context.json(await stands())
  })
  routes.delete("/", async (context) => {
    await requireBoard(source()).purse.close(USER)
    return context.json(await stands())
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
