import { Hono } from "hono"
import { z } from "zod"
import { type Board, USER } from "../board/service.ts"
import { bodyOf } from "./body.ts"
import { WebError } from "./errors.ts"
import type { PurseState } from "./wire.ts"

/** What is right of these the board's rules say, in their words. */
const given = z.strictObject({ max: z.unknown(), until: z.unknown() })

/** The purse of the board: how it stands, opening it, closing it. */
export function purseRoutes(boardOf: () => Board | undefined): Hono {
  const routes = new Hono()
  const stands = async (): Promise<PurseState> => {
    const purse = await boardIn(boardOf).purse.view()
    return purse ? { open: true, ...purse } : { open: false }
  }
  routes.get("/", async (context) => context.json(await stands()))
  routes.put("/", async (context) => {
    const { max, until } = await bodyOf(context, given)
    await boardIn(boardOf).purse.open({ max, until }, USER)
    return context.json(await stands())
  })
  routes.delete("/", async (context) => {
    await boardIn(boardOf).purse.close(USER)
    return context.json(await stands())
  })
  return routes
}

/** The reports of earlier purses, newest first. */
export function reportsRoutes(boardOf: () => Board | undefined): Hono {
  const routes = new Hono()
  routes.get("/", async (context) => context.json({ reports: await boardIn(boardOf).purse.reports() }))
  routes.get("/:name", async (context) => context.json(await boardIn(boardOf).purse.report(context.req.param("name"))))
  return routes
}

function boardIn(boardOf: () => Board | undefined): Board {
  const board = boardOf()
  if (!board) throw new WebError(404, "the board is off")
  return board
}
