import type { Context } from "hono"
import { bodyLimit } from "hono/body-limit"
import type { z } from "zod"
import { cut, grouped } from "../lib/text.ts"
import { WebError } from "./errors.ts"

export const MOST_BODY_BYTES = 1_048_576
const MOST_PROBLEM_CHARS = 1000

export const limitBody = bodyLimit({
  maxSize: MOST_BODY_BYTES,
  onError: () => {
    throw new WebError(413, `A body may have ${grouped(MOST_BODY_BYTES)} bytes; this one has more.`)
  },
})

/** The body as `schema` has it. */
export async function bodyOf<Schema extends z.ZodType>(context: Context, schema: Schema): Promise<z.output<Schema>> {
  if (!/^application\/json\s*(;|$)/i.test(context.req.header("content-type") ?? ""))
    throw new WebError(400, 'A body must be JSON, and say so: "content-type: application/json".')
  const parsed = schema.safeParse(await json(context))
  if (parsed.success) return parsed.data
  throw new WebError(400, cut(problemsOf(parsed.error), MOST_PROBLEM_CHARS))
}

async function json(context: Context): Promise<unknown> {
  const bytes = await context.req.arrayBuffer()
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes))
  } catch {
    throw new WebError(400, "The body is not valid JSON in UTF-8.")
  }
}

/** `"title": Invalid input: expected string, received undefined`, for each. */
const problemsOf = ({ issues }: z.ZodError): string =>
  issues.map(({ path, message }) => (path.length > 0 ? `"${path.join(".")}": ${message}` : message)).join("; ")
