import { createHash, timingSafeEqual } from "node:crypto"
import type { MiddlewareHandler } from "hono"
import { WebError } from "./errors.ts"

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

/** Only requests with the token, compared in a time that tells nothing of it. */
export function tokenGuard(token: string): MiddlewareHandler {
  const expected = digest(token)
  return async (context, next) => {
    const given = /^Bearer (.*)$/i.exec(context.req.header("authorization") ?? "")?.[1] ?? ""
    if (!timingSafeEqual(digest(given), expected)) {
      context.header("www-authenticate", "Bearer")
      throw new WebError(401, "The key is missing or wrong. Type /board in OpenCode's terminal for the link with it.")
    }
    await next()
  }
}

/** All of one length, whatever was given. */
const digest = (text: string): Buffer => createHash("sha256").update(text).digest()
