import type { IncomingMessage } from "node:http"
import type { Context, MiddlewareHandler } from "hono"
import type { z } from "zod"
import { cut, formatInteger } from "../../lib/text.ts"
import { WebError } from "./errors.ts"

const MOST_BODY_BYTES = 1_048_576
const MOST_PROBLEM_CHARS = 1000

export type Body = {
  /** Undefined for a request without a body. */
  readonly stream?: ReadableStream<Uint8Array<ArrayBuffer>>
  /** Whether the body has been read completely. */
  readonly isWhole: () => boolean
}

/**
 * Body that is read only on demand, so that refused requests cost nothing. Fails where it is too long or takes longer
 * than `ms`.
 */
export function lazyBody(incoming: IncomingMessage, ms: number): Body {
  const { headers } = incoming
  if (headers["transfer-encoding"] === undefined && Number(headers["content-length"] ?? 0) === 0)
    return { isWhole: () => true }
  const chunks = incoming.iterator({ destroyOnReturn: false })
  let size = 0
  let isWhole = false
  let late: Promise<never> | undefined
  let timer: NodeJS.Timeout | undefined
  const stream = new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        late ??= new Promise((_resolve, reject) => {
          timer = setTimeout(() => reject(tooSlow(ms)), ms)
          timer.unref()
        })
        try {
          const { done, value } = await Promise.race([chunks.next(), late])
          if (!done) {
            size += value.length
            if (size > MOST_BODY_BYTES) throw tooLarge()
            return controller.enqueue(new Uint8Array(value))
          }
          isWhole = true
          clearTimeout(timer)
          controller.close()
        } catch (error) {
          clearTimeout(timer)
          controller.error(error)
        }
      },
      cancel: () => clearTimeout(timer),
    },
    { highWaterMark: 0 },
  )
  return { stream, isWhole: () => isWhole }
}

const tooLarge = () => new WebError(413, `A body may have ${formatInteger(MOST_BODY_BYTES)} bytes; this one has more.`)
const tooSlow = (ms: number) => new WebError(408, `A body must come within ${ms / 1000} s; this one did not.`)

/** Rejects a body by its declared length, without reading it. */
export const limitBody: MiddlewareHandler = async (context, next) => {
  if (Number(context.req.header("content-length") ?? 0) > MOST_BODY_BYTES) throw tooLarge()
  await next()
}

/** Parses the body by `schema`. */
export async function bodyOf<Schema extends z.ZodType>(context: Context, schema: Schema): Promise<z.output<Schema>> {
  if (!/^application\/json\s*(;|$)/i.test(context.req.header("content-type") ?? ""))
    throw new WebError(400, 'A body must be JSON, and say so: "content-type: application/json".')
  return parsed(schema, await json(context))
}

export function parsed<Schema extends z.ZodType>(schema: Schema, given: unknown): z.output<Schema> {
  const { data, error } = schema.safeParse(given)
  if (error) throw new WebError(400, cut(problemsOf(error), MOST_PROBLEM_CHARS))
  return data as z.output<Schema>
}

async function json(context: Context): Promise<unknown> {
  const bytes = await context.req.arrayBuffer().catch((error) => {
    throw error instanceof WebError ? error : new WebError(400, "The body ended before it was whole.")
  })
  if (bytes.byteLength > MOST_BODY_BYTES) throw tooLarge()
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes))
  } catch {
    throw new WebError(400, "The body is not valid JSON in UTF-8.")
  }
}

/** Example: `"title": Invalid input: expected string, received undefined`, one for each problem. */
const problemsOf = ({ issues }: z.ZodError): string =>
  issues.map(({ path, message }) => (path.length > 0 ? `"${path.join(".")}": ${message}` : message)).join("; ")
