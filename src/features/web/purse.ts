import { Hono } from "hono"
import { z } from "zod"
import { USER } from "../board/service.ts"
import { bodyOf } from "./body.ts"
import type { Source } from "./ports.ts"
import { presentBoard } from "./sources.ts"
import type { PurseState } from "./wire.ts"

/** The board's rules validate the values. */
const given = z.strictObject({ max: z.unknown(), until: z.unknown() })

/** Routes that show, open and close the purse. */
export function purseRoutes(source: () => Source): Hono {
  const routes = new Hono()
  const stands = async (): Promise<PurseState> => {
    const purse = await presentBoard(source()).purse.view()
    return purse ? { open: true, ...purse } : { open: false }
  }
  routes.get("/", async (context) => context.json(await stands()))
  routes.put("/", async (context) => {
    const { max, until } = await bodyOf(context, given)
    await presentBoard(source()).purse.open({ max, until }, USER)
    return context.json(await stands())
  })
  routes.delete("/", async (context) => {
    await presentBoard(source()).purse.close(USER)
    return context.json(await stands())
  })
  return routes
}

/** Reports of earlier purses, newest first. */
export function reportsRoutes(source: () => Source): Hono {
  const routes = new Hono()
  routes.get("/", async (context) => context.json({ reports: await presentBoard(source()).purse.reports() }))
  routes.get("/:name", async (context) =>
    context.json(await presentBoard(source()).purse.report(context.req.param("name"))),
  )
  return routes
}
