import { createHash, createHmac } from "node:crypto"
import { type Handler, Hono, type MiddlewareHandler } from "hono"
import { secureHeaders } from "hono/secure-headers"
import type { Address } from "./address.ts"
import { actsRoutes, agentsRoutes, asksRoutes, sessionsRoutes } from "./agents.ts"
import { type Auth, authGuard, type Env, hostGuard, keyIn, originGuard, refusal, type WebSessions } from "./auth.ts"
import type { Feed } from "./feed.ts"
import { errorHandler, limitBody, notFound, WebError } from "./http.ts"
import type { Log, Source } from "./ports.ts"
import { PARTS } from "./registry.ts"

export type JoinableFeed = Pick<Feed, "join">

const MOST_STREAMS = 64
/** A reader with more unsent bytes than this is disconnected. The reader connects again and gets the whole state. */
const MOST_WAITING_BYTES = 8_388_608

/** Each stream starts with the whole state, so that a reader is up to date after a reconnection. */
export function eventsRoute(feed: JoinableFeed, sessions: Pick<WebSessions, "open" | "use">): Handler<Env> {
  let open = 0
  return (context) => {
    if (open >= MOST_STREAMS) throw new WebError(409, `${MOST_STREAMS} pages are open already; close one of them.`)
    const { signal } = context.req.raw
    if (signal.aborted) return new Response()
    // Streams are counted before anything is awaited, so that the limit holds for requests at the same moment.
    open++
    signal.addEventListener("abort", () => open--, { once: true })
    const caller = context.get("caller")
    const hold = (end: () => void) => (caller.kind === "page" ? sessions.open(caller.pass, end) : () => {})
    const use = () => caller.kind === "page" && sessions.use(caller.pass)
    return new Response(streamOf(feed, signal, hold, use), {
      headers: { "content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no" },
    })
  }
}

/**
 * `hold`: opens what must stay open with the stream; it receives a function that ends the stream. `use`: called at each
 * event, so that a process that is killed leaves the time of a late use behind.
 */
function streamOf(
  feed: JoinableFeed,
  signal: AbortSignal,
  hold: (end: () => void) => () => void,
  use: () => void,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder()
  const undo: (() => void)[] = []
  const leave = () => {
    for (const each of undo.splice(0)) each()
  }
  return new ReadableStream<Uint8Array>(
    {
      async start(controller) {
        const end = () => {
          leave()
          try {
            controller.close()
          } catch {
            // The reader has already closed the stream.
          }
        }
        const send = (event: string, data: string) => {
          // The reader has left while the state was being read.
          if (signal.aborted) return
          if ((controller.desiredSize ?? 0) < 0) return end()
          controller.enqueue(encoder.encode(`event: ${event}\ndata: ${data}\n\n`))
          use()
        }
        signal.addEventListener("abort", end, { once: true })
        undo.push(hold(end))
        undo.push(await feed.join(send, end))
        if (signal.aborted) end()
      },
      cancel: leave,
    },
    new ByteLengthQueuingStrategy({ highWaterMark: MOST_WAITING_BYTES }),
  )
}

const ID = /^[cp]\.[\w.-]{1,100}$/
const NONCE = /^[\da-f]{32,64}$/

type AppPorts = {
  readonly address: Address
  readonly auth: Auth
  /** Name by which requests may address this server, besides loopback names. */
  readonly host: string
  readonly source: () => Source
  readonly feed: JoinableFeed
  readonly page: () => string
  readonly log: Log
}

/** The page's server. Allowed hosts get the page; only authenticated callers get data. */
export function createApp({ address, auth, host, source, feed, page, log }: AppPorts): Hono<Env> {
  const app = new Hono<Env>()
  const html = page()
  app.onError(errorHandler(log, PARTS))
  app.notFound(notFound)
  app.use(headersFor(html), notStored, hostGuard(host))
  app.get("/", toOneName(address.url), (context) => context.html(html))
  app.get("/proof/:nonce", (context) => context.text(proofOf(address.token, context.req.param("nonce"))))
  // The page verifies the server before it shows anything.
  app.get("/hello", originGuard, (context) => {
    const { id = "", nonce = "" } = context.req.query()
    if (!ID.test(id) || !NONCE.test(nonce))
      throw new WebError(400, "An id and a nonce of 32 to 64 hex digits were expected.")
    return context.json(auth.hello(id, nonce))
  })
  // A link's code is exchanged for a web session.
  app.post("/sign-in", originGuard, limitBody, (context) => {
    const issued = auth.signIn(keyIn(context))
    if (!issued) throw refusal(context)
    return context.json(issued, 201)
  })

  app.use("/api/*", originGuard, authGuard(auth), limitBody)
  app.delete("/api/sign-out", (context) => {
    const caller = context.get("caller")
    if (caller.kind !== "page") throw new WebError(409, "The token of the file has no session; it ends with the file.")
    auth.passes.end(caller.pass)
    return context.json({ ended: true })
  })
  for (const part of PARTS) app.route("/api", part.routes(source))
  app.route("/api/agents", agentsRoutes(source))
  app.route("/api/agents", actsRoutes(source))
  app.route("/api/asks", asksRoutes(source))
  app.route("/api/sessions", sessionsRoutes(source))
  app.get("/api/events", eventsRoute(feed, auth.passes))
  return app
}

/** Redirects to the host name for which the page's session was made, because browsers keep sessions by name. */
function toOneName(url: string): MiddlewareHandler {
  const { host, port } = new URL(url)
  return async (context, next) => {
    const asked = context.req.header("host") ?? ""
    if (asked !== host && asked.endsWith(`:${port}`)) return context.redirect(`${url}/`)
    return next()
  }
}

const notStored: MiddlewareHandler = async (context, next) => {
  await next()
  context.header("cache-control", "no-store")
}

/** Proves that the server has the token: signs the given `nonce`. The proof reveals nothing else. */
export const proofOf = (token: string, nonce: string): string =>
  createHmac("sha256", token).update(`superagents:${nonce}`).digest("hex")

/** Content security policy: only the page's own script, only this server's data, no frames. */
function headersFor(html: string) {
  return secureHeaders({
    contentSecurityPolicy: {
      defaultSrc: ["'none'"],
      scriptSrc: hashesOf(html, "script"),
      styleSrc: hashesOf(html, "style"),
      connectSrc: ["'self'"],
      imgSrc: ["data:"],
      baseUri: ["'none'"],
      formAction: ["'none'"],
      frameAncestors: ["'none'"],
    },
    referrerPolicy: "no-referrer",
    xFrameOptions: "DENY",
    strictTransportSecurity: false,
    permissionsPolicy: { camera: [], geolocation: [], microphone: [] },
  })
}

/** Hashes of inline elements, as browsers compute them. */
function hashesOf(html: string, tag: "script" | "style"): string[] {
  const found = [...html.matchAll(new RegExp(`<${tag}[^>]*>([\\s\\S]*?)</${tag}>`, "g"))]
  const hashes = found.map(([, text = ""]) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`)
  return hashes.length > 0 ? hashes : ["'none'"]
}
