import { createHash, timingSafeEqual } from "node:crypto"
import type { Context, MiddlewareHandler } from "hono"
import type { Clock } from "../../core/ports.ts"
import { readJson, writeJson } from "../../lib/atomic-file.ts"
import { DAY_MS } from "../../lib/format.ts"
import { type Address, codeIn, macOf, randomPart, secretOf } from "./address.ts"
import { WebError } from "./http.ts"
import type { Log } from "./ports.ts"
import { accessText, type Hello, type Issued, proofText, splitCredential } from "./wire.ts"

export type AuthPorts = {
  readonly address: Address
  readonly sessions: WebSessions
  readonly clock: Pick<Clock, "now">
  /** Called when a link was used. May throw. */
  readonly opened: () => void
  readonly log: Log
}

/** Authenticated caller: a script with the token, or the page with a web session. */
export type PageCaller = { readonly kind: "script" } | { readonly kind: "page"; readonly pass: string }

/** Checks the credentials of requests. Secrets are compared in constant time. */
export class Auth {
  readonly #ports: AuthPorts
  readonly #token: Buffer
  /** Codes that were used with this server process. Codes of other processes are invalid anyway. */
  readonly #used = new Set<string>()

  constructor(ports: AuthPorts) {
    this.#ports = ports
    this.#token = digest(ports.address.token)
  }

  get passes(): WebSessions {
    return this.#ports.sessions
  }

  /** Proves the server's identity to the holder of this id's secret, and tells whether the id is valid. */
  hello(id: string, nonce: string): Hello {
    const { url: origin, key, boot } = this.#ports.address
    const said = { origin, boot, state: this.#isGood(id) ? "live" : "ended" } as const
    return { ...said, proof: macOf(secretOf(key, id), proofText(said, nonce)) }
  }

  /** Caller with this key; undefined for an invalid one. */
  caller(key: string): PageCaller | undefined {
    if (timingSafeEqual(digest(key), this.#token)) return { kind: "script" }
    const id = this.#idOf(key)
    if (id === undefined || codeIn(id) || !this.#isGood(id)) return undefined
    this.passes.use(id)
    return { kind: "page", pass: id }
  }

  /** Exchanges a code for a web session; undefined for an invalid code. The code cannot be used again. */
  signIn(key: string): Issued | undefined {
    const id = this.#idOf(key)
    if (id === undefined || !codeIn(id) || !this.#isGood(id)) return undefined
    this.#used.add(id)
    const { opened, log } = this.#ports
    try {
      opened()
    } catch (error) {
      log("warn", "the page's file keeps a used link", { error: String(error) })
    }
    const pass = this.passes.issue()
    return { id: pass, secret: secretOf(this.#ports.address.key, pass) }
  }

  /** The id in the credential `id.access`; undefined unless the access is valid for this server process. */
  #idOf(key: string): string | undefined {
    const { id, rest } = splitCredential(key) ?? { id: "", rest: "" }
    const { address } = this.#ports
    const expected = macOf(secretOf(address.key, id), accessText(address.boot))
    return timingSafeEqual(digest(rest), digest(expected)) ? id : undefined
  }

  #isGood(id: string): boolean {
    const { address, clock, sessions } = this.#ports
    const code = codeIn(id)
    if (!code) return sessions.isLive(id)
    const isFresh = code.expires === 0 || clock.now() < code.expires
    return code.boot === address.boot && isFresh && !this.#used.has(id)
  }
}

/** Hash of a text. All hashes are equally long, as a comparison in constant time needs it. */
const digest = (text: string): Buffer => createHash("sha256").update(text).digest()

/** Values that a guard hands to the routes behind it. */
export type Env = { Variables: { caller: PageCaller } }

const LOOPBACK: readonly string[] = ["localhost", "127.0.0.1", "[::1]"]
const AUTHORITY = /^(\[[\da-f:]+\]|[\w.-]+)(?::\d{1,5})?$/i

/** Refuses requests to another name than this server's: a request after DNS rebinding still has the foreign name. */
export function hostGuard(host: string): MiddlewareHandler {
  const names = new Set([...LOOPBACK, host.toLowerCase(), `[${host.toLowerCase()}]`])
  return async (context, next) => {
    const name = AUTHORITY.exec(context.req.header("host") ?? "")?.[1]?.toLowerCase()
    if (name === undefined || !names.has(name))
      throw new WebError(403, "This server answers to its own address alone (option web.host names another).")
    await next()
  }
}

/** Lets only requests of the page itself pass, and requests without an origin. */
export const originGuard: MiddlewareHandler = async (context, next) => {
  const origin = context.req.header("origin")
  const site = context.req.header("sec-fetch-site")
  const ours = origin === undefined || origin.toLowerCase() === `http://${context.req.header("host")?.toLowerCase()}`
  if (!ours || (site !== undefined && site !== "same-origin" && site !== "none"))
    throw new WebError(403, "Other pages may not ask this server.")
  await next()
}

/** Lets only requests with a web session or the token pass. */
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

/** An unused web session expires after this time, in ms. */
export const WEB_SESSION_MS = DAY_MS
/** Uses are stored only this long after the last write, in ms. */
const SAVE_MS = 600_000
/** Most web sessions. Those that were unused for longest are dropped. */
const MOST_PASSES = 64
const PASS = /^p\.(\d+)\.[\w-]{22}$/

type WebSessionPorts = {
  readonly file: string
  readonly port: number
  readonly clock: Pick<Clock, "now">
  readonly log: Log
}

/**
 * Signed-in web sessions with the time of their last use. They survive restarts, because secrets are derived from ids
 * and need not be stored. Danger: a session must end when the page moves to another port, because a later server at the
 * old port could use the browser's key.
 */
export class WebSessions {
  readonly #ports: WebSessionPorts
  /** Time of each web session's last use, by id. */
  readonly #used: Map<string, number>
  #savedAt = 0
  /** Functions that end the open streams of each web session. While a stream is open, the session counts as used. */
  readonly #streams = new Map<string, Set<() => void>>()

  constructor(ports: WebSessionPorts) {
    this.#ports = ports
    const written = read(ports.file)
    this.#used = new Map([...written].filter(([id]) => portIn(id) === ports.port))
    if (this.#used.size < written.size) this.#save()
  }

  /** Creates a session and returns its id. */
  issue(): string {
    const id = `p.${this.#ports.port}.${randomPart(16)}`
    this.#used.set(id, this.#ports.clock.now())
    this.#save()
    return id
  }

  isLive(id: string): boolean {
    const used = this.#used.get(id)
    // A use far in the future is from before the clock was set back.
    return used !== undefined && (this.#streams.has(id) || Math.abs(this.#ports.clock.now() - used) < WEB_SESSION_MS)
  }

  /** An ended session stays ended. */
  use(id: string): void {
    if (!this.#used.has(id)) return
    const now = this.#ports.clock.now()
    this.#used.set(id, now)
    if (Math.abs(now - this.#savedAt) >= SAVE_MS) this.#save()
  }

  /** `end` is called when the web session is ended. The caller must call the result when the stream closes. */
  open(id: string, end: () => void): () => void {
    const streams = this.#streams.get(id) ?? new Set()
    this.#streams.set(id, streams.add(end))
    return () => {
      streams.delete(end)
      if (streams.size > 0 || this.#streams.get(id) !== streams) return
      this.#streams.delete(id)
      this.use(id)
    }
  }

  end(id: string): void {
    const streams = this.#streams.get(id) ?? []
    this.#streams.delete(id)
    this.#used.delete(id)
    this.#save()
    for (const end of [...streams]) end()
  }

  /** Stores the web sessions. If this fails, they last until the process ends. */
  #save(): void {
    const { file, clock, log } = this.#ports
    this.#savedAt = clock.now()
    for (const id of this.#used.keys()) if (!this.isLive(id)) this.#used.delete(id)
    const lastUse = ([id, used]: readonly [string, number]) => (this.#streams.has(id) ? Number.POSITIVE_INFINITY : used)
    const kept = [...this.#used].toSorted((one, other) => lastUse(other) - lastUse(one) || 0).slice(0, MOST_PASSES)
    this.#used.clear()
    for (const [id, used] of kept) this.#used.set(id, used)
    try {
      writeJson(file, Object.fromEntries(kept))
    } catch (error) {
      log("warn", "the page's sessions could not be written down", { error: String(error) })
    }
  }
}

const portIn = (id: string): number => Number(PASS.exec(id)?.[1])

function read(file: string): Map<string, number> {
  const found = Object.entries(readJson(file) ?? {})
  return new Map(found.filter((entry): entry is [string, number] => PASS.test(entry[0]) && Number.isFinite(entry[1])))
}
