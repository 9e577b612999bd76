import { createOpencodeClient, type OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { HostError, type LogFields } from "../core/ports.ts"
import { pastProxy } from "../lib/direct.ts"
import { traced } from "./trace.ts"

/** How long one call to the host may take. The host answers within milliseconds unless it is stuck. */
const CALL_LIMIT_MS = 30_000

/** How the client that the host hands to a plugin speaks to it: in the terminal UI no server listens. */
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
 * A typed client of every route, on the transport of the client that the host hands to a plugin. `tell` hears of each
 * call when it is done.
 */
export function clientOn(handed: unknown, tell?: (fields: LogFields) => void): OpencodeClient {
  const { baseUrl, headers, fetch } = transportOf(handed)
  // The client's own writing of a body asks a function about every value in it.
  const bodySerializer = (body: unknown) => JSON.stringify(body)
  return createOpencodeClient({ baseUrl, headers, bodySerializer, fetch: tell ? traced(fetch, tell) : fetch } as Config)
}

type Result<Data> = { data?: Data; error?: unknown; response?: { status?: number } }

/**
 * The data of one call. The SDK does not throw but returns errors: here they become a `HostError`, and a call that
 * hangs becomes one too.
 */
export async function call<Data>(what: string, request: Promise<Result<Data>>): Promise<Data> {
  const { data, error, response } = await bounded(what, request)
  if (error === undefined && data !== undefined) return data
  // 204 and other empty answers.
  if (error === undefined && (response?.status ?? 0) < 400) return data as Data
  throw new HostError(`${what}: ${errorText(error, response?.status)}`, {
    notFound: isNotFound(error, response?.status),
  })
}

/** The data of a call, or undefined where the host has no such thing. */
export async function find<Data>(what: string, request: Promise<Result<Data>>): Promise<Data | undefined> {
  try {
    return await call(what, request)
  } catch (error) {
    if (error instanceof HostError && error.notFound) return undefined
    throw error
  }
}

async function bounded<Data>(what: string, request: Promise<Result<Data>>): Promise<Result<Data>> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const limit = new Promise<never>((_resolve, reject) => {
    const late = new HostError(`${what}: no answer within ${CALL_LIMIT_MS / 1000} s`)
    timer = setTimeout(() => reject(late), CALL_LIMIT_MS)
    timer.unref?.()
  })
  try {
    return await Promise.race([request, limit])
  } catch (error) {
    if (error instanceof HostError) throw error
    throw new HostError(`${what}: ${errorText(error, undefined)}`, { notFound: isNotFound(error, undefined) })
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
