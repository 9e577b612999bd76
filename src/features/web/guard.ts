import type { Context, MiddlewareHandler } from "hono"
import type { Auth, Caller } from "./auth.ts"
import { WebError } from "./errors.ts"

/** What the guards leave for the routes. */
export type Env = { Variables: { caller: Caller } }

const LOOPBACK: readonly string[] = ["localhost", "127.0.0.1", "[::1]"]
const AUTHORITY = /^(\[[\da-f:]+\]|[\w.-]+)(?::\d{1,5})?$/i

/**
 * Only requests that name this server by an address of its own: a page on the internet whose name was made to lead
 * here (DNS rebinding) still sends its own name.
 */
export function hostGuard(host: string): MiddlewareHandler {
  const names = new Set([...LOOPBACK, host.toLowerCase(), `[${host.toLowerCase()}]`])
  return async (context, next) => {
    const name = AUTHORITY.exec(context.req.header("host") ?? "")?.[1]?.toLowerCase()
    if (name === undefined || !names.has(name))
      throw new WebError(403, "This server answers to its own address alone (option web.host names another).")
    await next()
  }
}

/** Only requests that our own page sends, or no page at all. */
export const originGuard: MiddlewareHandler = async (context, next) => {
  const origin = context.req.header("origin")
  const site = context.req.header("sec-fetch-site")
  const ours = origin === undefined || origin.toLowerCase() === `http://${context.req.header("host")?.toLowerCase()}`
  if (!ours || (site !== undefined && site !== "same-origin" && site !== "none"))
    throw new WebError(403, "Other pages may not ask this server.")
  await next()
}

/** Only requests of the page with a pass, or with the token. */
export function authGuard(door: Auth): MiddlewareHandler<Env> {
  return async (context, next) => {
    const caller = door.caller(keyIn(context))
    if (!caller) throw refusal(context)
    context.set("caller", caller)
    await next()
  }
}

/** What is shown as key: `authorization: Bearer …`. */
export const keyIn = (context: Context): string =>
  /^Bearer (.*)$/i.exec(context.req.header("authorization") ?? "")?.[1] ?? ""

export function refusal(context: Context): WebError {
  context.header("www-authenticate", "Bearer")
  return new WebError(401, "The key is missing or wrong. Type /board in OpenCode's terminal for the link with it.")
}
