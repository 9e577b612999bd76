import type { Context, MiddlewareHandler } from "hono"
import type { Auth, PageCaller } from "./auth.ts"
import { WebError } from "./errors.ts"

/** Values that guards pass on to routes. */
export type Env = { Variables: { caller: PageCaller } }

const LOOPBACK: readonly string[] = ["localhost", "127.0.0.1", "[::1]"]
const AUTHORITY = /^(\[[\da-f:]+\]|[\w.-]+)(?::\d{1,5})?$/i

/** Accepts only requests that name this server: after DNS rebinding, a browser still sends the foreign name. */
export function hostGuard(host: string): MiddlewareHandler {
  const names = new Set([...LOOPBACK, host.toLowerCase(), `[${host.toLowerCase()}]`])
  return async (context, next) => {
    const name = AUTHORITY.exec(context.req.header("host") ?? "")?.[1]?.toLowerCase()
    if (name === undefined || !names.has(name))
      throw new WebError(403, "This server answers to its own address alone (option web.host names another).")
    await next()
  }
}

/** Accepts only requests of the page itself, or without an origin. */
export const originGuard: MiddlewareHandler = async (context, next) => {
  const origin = context.req.header("origin")
  const site = context.req.header("sec-fetch-site")
  const ours = origin === undefined || origin.toLowerCase() === `http://${context.req.header("host")?.toLowerCase()}`
  if (!ours || (site !== undefined && site !== "same-origin" && site !== "none"))
    throw new WebError(403, "Other pages may not ask this server.")
  await next()
}

/** Accepts only requests with a web session or the token. */
export function authGuard(auth: Auth): MiddlewareHandler<Env> {
  return async (context, next) => {
    const caller = auth.caller(keyIn(context))
    if (!caller) throw refusal(context)
    context.set("caller", caller)
    await next()
  }
}

/** Key from `authorization: Bearer …`. */
export const keyIn = (context: Context): string =>
  /^Bearer (.*)$/i.exec(context.req.header("authorization") ?? "")?.[1] ?? ""

export function refusal(context: Context): WebError {
  context.header("www-authenticate", "Bearer")
  return new WebError(401, "The key is missing or wrong. Type /board in OpenCode's terminal for the link with it.")
}
