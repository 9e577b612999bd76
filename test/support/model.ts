import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { type Counted, type Form, PlayedCache } from "./cache.ts"
import { send } from "./model-reply.ts"
import { requestFrom } from "./model-request.ts"
import { watchPrefixes } from "./prefixes.ts"

export type Usage = {
  /** Fresh prompt tokens, without the cached ones. */
  input?: number
  /** Visible answer tokens, without the reasoning ones. */
  output?: number
  reasoning?: number
  cached?: number
  /** Written into the cache; only Anthropic tells. */
  written?: number
}

type Paced = {
  /** Milliseconds before the first byte of the answer. */
  delay?: number
}

export type TextReply = Paced & {
  text: string
  reasoning?: string
  /** In how many deltas the text is streamed. Default 1. */
  chunks?: number
  /** Milliseconds between two deltas. Default 0. */
  pace?: number
  /** The last delta comes no earlier than this. */
  until?: Promise<unknown>
  usage?: Usage
  /** The finish reason. Default "stop". */
  finish?: string
}

export type ToolReply = Paced & {
  /** `args` as a string is sent as it is, which makes broken JSON possible. */
  tools: { name: string; args: unknown; id?: string }[]
  text?: string
  usage?: Usage
  /** The finish reason. Default "tool_calls". */
  finish?: string
}

/**
 * Headers, `text` if there is one, the begin of a call if there is one, and then nothing but comments that keep the
 * connection alive until the client goes away.
 */
export type HangReply = Paced & { hang: true; text?: string; call?: BegunCall }

/** A call whose arguments end half way. */
export type BegunCall = { name: string; args: string }

export type Reply =
  | TextReply
  | ToolReply
  /** An HTTP error. */
  | (Paced & { status: number; body?: unknown; headers?: Record<string, string> })
  /** 200, the text and the begin of a call if there are any, and an error in the stream. */
  | (Paced & { fails: unknown; text?: string; call?: BegunCall })
  /** 200 and an empty body. */
  | (Paced & { empty: true })
  | HangReply
  /** The text, and then the connection breaks. */
  | (Paced & { cut: true; text: string })

export type ModelMessage = {
  role: string
  content?: unknown
  tool_calls?: { id: string; function: { name: string; arguments: string } }[]
  tool_call_id?: string
}

export type ModelRequest = {
  /** When it came, by performance.now(). */
  at: number
  /** From 1, over all requests but those for titles. */
  number: number
  /** The id of the model, without its provider. */
  model: string
  /** The session that asks, from OpenCode's header. */
  sessionID: string | undefined
  /** The parent of that session. */
  parentSessionID: string | undefined
  messages: ModelMessage[]
  system: string
  userTexts: string[]
  firstUser: string
  lastUser: string
  /** What the model and the tools said since the last user message: empty at the first step of a turn. */
  sinceUser: ModelMessage[]
  toolResults: { name: string; content: string }[]
  /** Names of the tools on offer. */
  tools: string[]
  headers: IncomingHttpHeaders
  form: Form
  /** What the played cache counted, where there is one. */
  counted?: Counted
  /** Fires when the client goes away before the answer is complete. */
  aborted: AbortSignal
  body: Record<string, unknown>
}

/** Answers a request, or leaves it to the next script by returning undefined. */
export type Script = (request: ModelRequest) => Reply | undefined | Promise<Reply | undefined>

export type ProviderOptions = {
  models?: string[]
  /** Dollars per million tokens. */
  cost?: { input: number; output: number; cache_read?: number; cache_write?: number }
  limit?: { context: number; output: number }
  /** More of the provider's own options, `setCacheKey` say. */
  settings?: Record<string, unknown>
}

export type ModelOptions = {
  title?: string
  /** Default: OpenAI's. */
  form?: Form
  /** Plays the provider's cache, and tells its figures where a reply does not say otherwise. */
  cache?: boolean
}

export type ScriptedModel = Awaited<ReturnType<typeof startModel>>

type Waiter = { predicate: (request: ModelRequest) => boolean; found: (request: ModelRequest) => void }

const DEFAULT_WAIT_MS = 20_000

/**
 * A model that answers what the test's scripts say, behind an OpenAI-compatible HTTP server on loopback.
 * The newest script is asked first; a request that no script answers gets the text "ok".
 */
export const startModel = async (options: ModelOptions = {}) => {
  const { title = "Title", form = "openai" } = options
  const cache = options.cache ? new PlayedCache() : undefined
  const scripts: Script[] = []
  const requests: ModelRequest[] = []
  const titles: ModelRequest[] = []
  const waiters = new Set<Waiter>()
  const prefixes = watchPrefixes()
  /** What scripts threw. The request gets a 400 with the same words. */
  const scriptErrors: unknown[] = []
  let inFlight = 0
  let peakInFlight = 0

  const replyTo = async (request: ModelRequest): Promise<Reply> => {
    try {
      for (const script of [...scripts].reverse()) {
        const reply = await script(request)
        if (reply) return reply
      }
      return { text: "ok" }
    } catch (error) {
      scriptErrors.push(error)
      return { status: 400, body: { error: { message: `a test's script threw: ${error}` } } }
    }
  }

  const log = (request: ModelRequest) => {
    requests.push(request)
    prefixes.record(request)
    for (const waiter of waiters) if (waiter.predicate(request)) waiter.found(request)
  }

  const answer = async (raw: string, headers: IncomingHttpHeaders, response: ServerResponse) => {
    const gone = new AbortController()
    const closed = new Promise<void>((resolve) => response.once("close", resolve))
    response.once("close", () => {
      if (!response.writableFinished) gone.abort()
    })
    const request = requestFrom(JSON.parse(raw), { headers, form, aborted: gone.signal, number: requests.length + 1 })
    if (request.system.includes("title generator")) {
      titles.push(request)
      return send(response, request, { text: title })
    }
    inFlight++
    peakInFlight = Math.max(peakInFlight, inFlight)
    closed.then(() => inFlight--)
    const cached = cache?.open(form, request.body)
    request.counted = cached
    log(request)
    const reply = await replyTo(request)
    if (!gone.signal.aborted) await send(response, request, reply, cached?.begun)
  }

  const server = createServer((incoming, response) => {
    const body: Buffer[] = []
    incoming.on("error", () => {})
    response.on("error", () => {})
    incoming.on("data", (chunk: Buffer) => body.push(chunk))
    incoming.on("end", () => {
      answer(Buffer.concat(body).toString("utf8"), incoming.headers, response).catch((error) => {
        scriptErrors.push(error)
        response.destroy()
      })
    })
  })
  server.requestTimeout = 0
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`

  return {
    url,
    requests,
    titles,
    scriptErrors,
    /** What is held of each session's requests against its last one. */
    prefixes,
    /** Requests now being answered, those for titles left out. */
    get inFlight() {
      return inFlight
    },
    get peakInFlight() {
      return peakInFlight
    },
    /** Adds a script; the function returned takes it out again. */
    use(script: Script) {
      scripts.push(script)
      return () => {
        const index = scripts.indexOf(script)
        if (index >= 0) scripts.splice(index, 1)
      }
    },
    /** The first request that matches, past ones included. */
    waitFor(predicate: (request: ModelRequest) => boolean, { timeout = DEFAULT_WAIT_MS } = {}) {
      const past = requests.find(predicate)
      if (past) return Promise.resolve(past)
      return new Promise<ModelRequest>((resolve, reject) => {
        const waiter: Waiter = {
          predicate,
          found: (request) => {
            clearTimeout(timer)
            waiters.delete(waiter)
            resolve(request)
          },
        }
        const timer = setTimeout(() => {
          waiters.delete(waiter)
          const seen = requests.slice(-10).map((request) => `#${request.number} ${request.lastUser.slice(0, 80)}`)
          reject(new Error(`no request matched ${predicate} in ${timeout} ms; the last ones:\n${seen.join("\n")}`))
        }, timeout)
        waiters.add(waiter)
      })
    },
    /** Forgets scripts, requests and counts. What is being answered goes on. */
    reset() {
      for (const list of [scripts, requests, titles, scriptErrors]) list.length = 0
      peakInFlight = inFlight
    },
    /** The `provider` block of opencode.json; the provider's id is "scripted". */
    provider({ models = ["alpha", "beta"], cost = { input: 1, output: 2 }, limit, settings }: ProviderOptions = {}) {
      const facts = { tool_call: true, limit: limit ?? { context: 200_000, output: 8192 }, cost }
      return {
        scripted: {
          npm: form === "openai" ? "@ai-sdk/openai-compatible" : "@ai-sdk/anthropic",
          name: "Scripted",
          options: { baseURL: url, apiKey: "none", ...settings },
          models: Object.fromEntries(models.map((id) => [id, { name: id, ...facts }])),
        },
      }
    },
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
