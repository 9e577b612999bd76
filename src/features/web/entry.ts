import { Hono } from "hono"
import type { Auth } from "./auth.ts"
import { WebError } from "./errors.ts"
import { type Env, keyIn, refusal } from "./guard.ts"

const ID = /^[cp]\.[\w.-]{1,100}$/
const NONCE = /^[\da-f]{32,64}$/

/** Route by which the page verifies the server before it shows anything. */
export function helloRoute(door: Auth): Hono {
  return new Hono().get("/", (context) => {
    const { id = "", nonce = "" } = context.req.query()
    if (!ID.test(id) || !NONCE.test(nonce))
      throw new WebError(400, "An id and a nonce of 32 to 64 hex digits were expected.")
    return context.json(door.hello(id, nonce))
  })
}

/** Route that exchanges a link's code for a web session. */
export function signInRoute(door: Auth): Hono {
  return new Hono().post("/", (context) => {
    const issued = door.signIn(keyIn(context))
    if (!issued) throw refusal(context)
    return context.json(issued, 201)
  })
}

/** Route that ends the page's web session. */
export function signOutRoute(door: Auth): Hono<Env> {
  return new Hono<Env>().delete("/", (context) => {
    const caller = context.get("caller")
    if (caller.kind !== "page") throw new WebError(409, "The token of the file has no session; it ends with the file.")
    door.passes.end(caller.pass)
    return context.json({ ended: true })
  })
}
