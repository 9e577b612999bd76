import { createOpencodeClient, type OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { type LogFields, OpencodeError } from "../core/ports.ts"
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
