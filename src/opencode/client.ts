import { createOpencodeClient, type OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { type Clock, type LogFields, type LogLevel, OpencodeError } from "../core/ports.ts"
import { Collector } from "../lib/background.ts"
import { pastProxy } from "../lib/direct.ts"

/** Time limit of one call; OpenCode answers within milliseconds unless it is stuck. */
const CALL_LIMIT_MS = 30_000

/** Transport of OpenCode's client: in the terminal UI no server listens. */
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

/** Typed client for all routes, on the transport of OpenCode's client. `tell` is called after each call. */
export function clientOn(handed: unknown, tell?: (fields: LogFields) => void): OpencodeClient {
  const { baseUrl, headers, fetch } = transportOf(handed)
  // The client's own serializer calls a function for every value.
  const bodySerializer = (body: unknown) => JSON.stringify(body)
  return createOpencodeClient({ baseUrl, headers, bodySerializer, fetch: tell ? traced(fetch, tell) : fetch } as Config)
}

type Result<Data> = { data?: Data; error?: unknown; response?: { status?: number } }

/** Data of a call. Errors that the SDK returns, and timeouts, become a `OpencodeError`. */
export async function call<Data>(what: string, request: Promise<Result<Data>>): Promise<Data> {
  const { data, error, response } = await bounded(what, request)
  if (error === undefined && data !== undefined) return data
  // 204 and other empty answers.
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
  return String(text ?? (typeof error === "string" && error !== "" ? error : `the host answered with status ${status}`))
}

type Fetch = (request: Request) => Promise<Response>

/** Route for log lines: tracing it would log without end. */
const OWN_LOG = "/log"

/**
 * Logs each call with method, path, status and milliseconds. Bodies and queries are left out, so that no prompt or
 * secret is logged; `tell` must not throw.
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

/** Yields to other work. */
export const yieldToEventLoop = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0))

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

  /** Reports the duration of the last call. A slow call may have waited for others: it only halves the next. */
  took(ms: number): void {
    const fitting = Math.round((this.#size * this.#targetMs) / Math.max(1, ms))
    this.#size = Math.max(1, Math.min(fitting, 2 * this.#size, this.#most), Math.floor(this.#size / 2))
  }
}

/**
 * Longest delay of `info` lines. Waking OpenCode's one thread costs 25 ms, a further call in the same moment 1 to 3.
 */
const LOG_WAIT_MS = 10_000
/** Shortest delay, so that lines of one moment are written together. */
const GATHER_MS = 1000

/**
 * Lines for OpenCode's log, each beginning with our name: the host does not print a line's service. Never throws; a line
 * that cannot be written is lost.
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

  /** Writes pending lines that have waited long enough, while OpenCode is awake anyway. */
  flush(): void {
    this.#infos.flush(GATHER_MS)
  }

  #write(level: LogLevel, message: string, fields: Readonly<Record<string, unknown>>): void {
    const line = `superagents: ${message}`
    void this.#client.app.log({ service: "superagents", level, message: line, extra: { ...fields } }).catch(() => {})
  }
}
