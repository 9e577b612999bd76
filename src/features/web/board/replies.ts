import { Hono } from "hono"
import { z } from "zod"
import { isActive, NOBODY } from "../../../core/task.ts"
import { bodyOf } from "../body.ts"
import { WebError } from "../errors.ts"
import type { Source } from "../ports.ts"
import { requireUserActions } from "../sources.ts"
import { requireBoard } from "./source.ts"
import { taskRow } from "./tasks.ts"

const words = z.strictObject({ text: z.string().trim().min(1).max(100_000) })

/**
 * A user's message to a board task's owner, sent to its thread. An active run reads it at its next step; otherwise it
 * starts a turn, which the board counts as a run.
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
