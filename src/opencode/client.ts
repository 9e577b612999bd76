import { createOpencodeClient, type OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { type Clock, type LogFields, type LogLevel, OpencodeError } from "../core/ports.ts"
import { Collector } from "../lib/background.ts"
import { pastProxy } from "../lib/http.ts"

/** Time limit of one call; OpenCode answers within milliseconds unless it is stuck. */
const CALL_LIMIT_MS = 30_000

/**
 * The means by which OpenCode's own client sends requests. The terminal UI needs it, because no server listens there.
 */
export type Transport = {
  readonly baseUrl: string
  readonly headers: Record<string, string>
  readonly fetch: (request: Request) => Promise<Response>
}

type HandedClient = {
  readonly _client: { getConfig(): { baseUrl?: string; headers?: unknown; fetch?: Transport["fetch"] } }
}

export function transportOf(handed: unknown): Transport {
  const { baseUrl = "", headers, fetch = globalThis.fetch } = (handed as HandedClient)._client.getConfig()
  return {
    baseUrl,
    headers: Object.fromEntries(new Headers(headers as Record<string, string> | undefined)),
    fetch: (request) => fetch(pastProxy(request)),
  }
}

type Config = NonNullable<Parameters<typeof createOpencodeClient>[0]>

/**
 * Typed client for all of OpenCode's routes, which sends requests by the means of OpenCode's own client. `tell` is
 * called after each call.
 */
export function clientOn(handed: unknown, tell?: (fields: LogFields) => void): OpencodeClient {
  const { baseUrl, headers, fetch } = transportOf(handed)
  // The SDK's own serializer is slower: it calls a function for every value.
  const bodySerializer = (body: unknown) => JSON.stringify(body)
  return createOpencodeClient({ baseUrl, headers, bodySerializer, fetch: tell ? traced(fetch, tell) : fetch } as Config)
}

type Result<Data> = { data?: Data; error?: unknown; response?: { status?: number } }

/** Data of a call. Timeouts and errors that the SDK returns are thrown as an `OpencodeError`. */
export async function call<Data>(what: string, request: Promise<Result<Data>>): Promise<Data> {
  const { data, error, response } = await bounded(what, request)
  if (error === undefined && data !== undefined) return data
  // Success without an error, even if there is no data: for example a 204.
  if (error === undefined && (response?.status ?? 0) < 400) return data as Data
  throw new OpencodeError(`${what}: ${errorText(error, response?.status)}`, {
    notFound: isNotFound(error, response?.status),
  })
}

/** Data of a call, undefined for a 404. */
export async function find<Data>(what: string, request: Promise<Result<Data>>): Promise<Data | undefined> {
  try {
    return await call(what, request)
  } catch (error) {
    if (error instanceof OpencodeError && error.notFound) return undefined
    throw error
  }
}

async function bounded<Data>(what: string, request: Promise<Result<Data>>): Promise<Result<Data>> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const limit = new Promise<never>((_resolve, reject) => {
    const late = new OpencodeError(`${what}: no answer within ${CALL_LIMIT_MS / 1000} s`)
    timer = setTimeout(() => reject(late), CALL_LIMIT_MS)
    timer.unref?.()
  })
  try {
    return await Promise.race([request, limit])
  } catch (error) {
    if (error instanceof OpencodeError) throw error
    throw new OpencodeError(`${what}: ${errorText(error, undefined)}`, { notFound: isNotFound(error, undefined) })
  } finally {
    clearTimeout(timer)
  }
}

const isNotFound = (error: unknown, status: number | undefined): boolean =>
  status === 404 || (typeof error === "object" && error !== null && "name" in error && error.name === "NotFoundError")

function errorText(error: unknown, status: number | undefined): string {
  const { data, message } = (error ?? {}) as { data?: { message?: unknown }; message?: unknown }
  const text = [data?.message, message].find((candidate) => typeof candidate === "string" && candidate !== "")
  return String(text ?? (typeof error === "string" && error !== "" ? error : `OpenCode answered with status ${status}`))
}

type Fetch = (request: Request) => Promise<Response>

/** The route that writes log lines. It is not traced, because each traced call would log another line without end. */
const OWN_LOG = "/log"

/**
 * Wraps `fetch` so that each call is logged with method, path, status and milliseconds, but without bodies and queries,
 * which may contain prompts and secrets. `tell` must not throw.
 */
export function traced(fetch: Fetch, tell: (fields: LogFields) => void): Fetch {
  return async (request) => {
    const { pathname } = new URL(request.url)
    if (pathname === OWN_LOG) return fetch(request)
    const begin = performance.now()
    const done = (status: number | string) =>
      tell({ method: request.method, path: pathname, status, ms: Math.round(performance.now() - begin) })
    try {
      const response = await fetch(request)
      done(response.status)
      return response
    } catch (error) {
      done("no answer")
      throw error
    }
  }
}

/** Longest time that one call should occupy OpenCode's thread. */
export const CALL_MS = 35

/** Adapts the size of calls so that each occupies OpenCode's one thread for about `targetMs`. */
export class Pace {
  readonly #targetMs: number
  readonly #most: number
  #size: number

  constructor({ first, most, targetMs }: { first: number; most: number; targetMs: number }) {
    this.#size = first
    this.#most = most
    this.#targetMs = targetMs
  }

  get size(): number {
    return this.#size
  }

  /**
   * Reports how long the last call took. A slow call may have waited for others, so the next size is at most halved.
   */
  took(ms: number): void {
    const fitting = Math.round((this.#size * this.#targetMs) / Math.max(1, ms))
    this.#size = Math.max(1, Math.min(fitting, 2 * this.#size, this.#most), Math.floor(this.#size / 2))
  }
}

/**
 * Longest time for which an `info` line may wait, in ms. To wake OpenCode's only thread for it costs 25 ms; another
 * call while OpenCode is awake costs 1 to 3.
 */
const LOG_WAIT_MS = 10_000
/** Shortest time for which a line waits, in ms, so that lines of one moment are written together. */
const GATHER_MS = 1000

/**
 * Writes lines to OpenCode's log, each with the plugin's name at its beginning, because OpenCode does not print a
 * line's service. Never throws; a line that cannot be written is lost.
 */
export class OpencodeLog {
  readonly #client: OpencodeClient
  readonly #infos: Collector<{ readonly message: string; readonly fields: LogFields }>

  constructor(client: OpencodeClient, clock: Clock) {
    this.#client = client
    this.#infos = new Collector(clock, LOG_WAIT_MS, (lines) => {
      const [first] = lines
      if (first && lines.length === 1) this.#write("info", first.message, first.fields)
      else this.#write("info", `${lines.length} lines`, { lines })
    })
  }

  add(level: LogLevel, message: string, fields: LogFields): void {
    if (level !== "info") return this.#write(level, message, fields)
    this.#infos.add({ message, fields })
  }

  /** Writes the pending lines, unless the first has waited too shortly. Called while OpenCode is awake anyway. */
  flush(): void {
    this.#infos.flush(GATHER_MS)
  }

  #write(level: LogLevel, message: string, fields: Readonly<Record<string, unknown>>): void {
    const line = `superagents: ${message}`
    void this.#client.app.log({ service: "superagents", level, message: line, extra: { ...fields } }).catch(() => {})
  }
}
