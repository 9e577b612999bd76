import type { AskOptions, Reply } from "../../../core/ports.ts"
import { eventReader } from "../../../lib/http.ts"
import type { Conversation } from "../opencode/sessions.ts"
import type { Act } from "../ports.ts"
import type { ActionResult, AgentDetail, AgentRow, AnswersFound, Choices } from "../wire.ts"
import { type Authenticate, errorIn, UntrustedServer } from "./sign-in.ts"

let enter: Authenticate = () => Promise.reject(new Error(NOBODY))

/** Sets how calls authenticate. Before each call the server must prove its identity. */
export const setAuthentication = (given: Authenticate): void => {
  enter = given
}

const ENTRY_MS = 10_000
const NOBODY = "OpenCode does not answer. Try again when the page is live."
const ENDED = "This page's session has ended. Type /board in OpenCode's terminal for a new link."

/** Requests to the server. They reject with an `Error` whose message is for the reader. */
export const api = {
  agent: (id: string) => call<AgentDetail>("GET", `/api/agents/${id}`),
  search: (q: string, from: number) =>
    call<AnswersFound>("GET", `/api/agents/search?q=${encodeURIComponent(q)}&from=${from}`),
  cancelAgent: (id: string, generation: number) => call<AgentRow>("POST", `/api/agents/${id}/cancel`, { generation }),
  /** `given`: arguments of `superagents_task`, and the `session` where it is called; without it, a new conversation. */
  launch: (given: Readonly<Record<string, unknown>>) => call<ActionResult>("POST", "/api/agents", given),
  act: (id: string, act: Act, given: Readonly<Record<string, unknown>> = {}) =>
    call<ActionResult>("POST", `/api/agents/${id}/${act}`, given),
  stop: (ids: readonly Pick<AgentRow, "id" | "generation">[]) =>
    call<{ stopped: readonly string[] }>("POST", "/api/agents/cancel", { ids }),
  question: (id: string) => call<AskOptions>("GET", `/api/asks/${id}`),
  answer: (id: string, reply: Reply) => call<{ id: string }>("POST", `/api/asks/${id}`, reply),
  choices: () => call<Choices>("GET", "/api/sessions/choices"),
  conversations: () => call<{ sessions: readonly Conversation[] }>("GET", "/api/sessions"),
  clear: (session: string) => call<{ text: string }>("POST", `/api/sessions/${session}/clear`),
  signOut: () => call<{ ended: true }>("DELETE", "/api/sign-out"),
}

/** Rejects with an `Error` whose message is for the reader. */
export async function call<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
  const entered = await enter(AbortSignal.timeout(ENTRY_MS)).catch((error) => {
    throw error instanceof UntrustedServer ? error : new Error(NOBODY)
  })
  if ("ended" in entered) throw new Error(ENDED)
  const headers: Record<string, string> = { authorization: `Bearer ${entered.bearer}` }
  if (body !== undefined) headers["content-type"] = "application/json"
  const response = await fetch(path, { method, headers, body: JSON.stringify(body) }).catch(() => {
    throw new Error(NOBODY)
  })
  if (!response.ok) throw new Error(await errorIn(response))
  return response.json()
}

/** Silence after which the connection counts as lost, in ms: the server sends heartbeats every 15 s. */
const SILENCE_MS = 40_000
const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 10_000

export type Callbacks = {
  /** Called for each event of the server, with parsed data. */
  event(name: string, data: unknown): void
  /** Called when the connection is lost. The next attempt follows in `retryIn` ms. */
  lost(retryIn: number): void
  /** Called when another server answers at this address. Further attempts follow. */
  untrustedServer(message: string): void
  /** Called when the server has ended the web session. No further attempts follow. */
  ended(): void
}

type Timers = {
  readonly after: (ms: number, run: () => void) => () => void
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>
}

/**
 * Listens to the server's events and connects again after a loss; the first event of a connection has the whole state.
 * The returned functions stop this, or try again at once.
 */
export function connect(enter: Authenticate, on: Callbacks, { after, fetch }: Timers): { end(): void; again(): void } {
  let attempt = 0
  let ended = false
  let stop = new AbortController()

  void listen()
  return {
    end() {
      ended = true
      stop.abort()
    },
    again: () => stop.abort(),
  }

  async function listen(): Promise<void> {
    while (!ended) {
      stop = new AbortController()
      const outcome = await once(stop).catch((error) => error)
      if (ended || outcome === "ended") return
      const retryIn = Math.min(FIRST_PAUSE_MS * 2 ** attempt++, LONGEST_PAUSE_MS)
      if (outcome instanceof UntrustedServer) on.untrustedServer(outcome.message)
      else on.lost(retryIn)
      stop = new AbortController()
      await pause(after, retryIn, stop.signal)
    }
  }

  async function once(current: AbortController): Promise<"lost" | "ended"> {
    let watch = after(SILENCE_MS, () => current.abort())
    try {
      const entered = await enter(current.signal)
      if (current.signal.aborted) return "lost"
      if ("ended" in entered) {
        on.ended()
        return "ended"
      }
      const headers = { authorization: `Bearer ${entered.bearer}` }
      const response = await fetch("/api/events", { headers, signal: current.signal })
      if (!response.ok || !response.body) return "lost"
      const read = eventReader()
      for await (const text of textsOf(response.body)) {
        watch()
        watch = after(SILENCE_MS, () => current.abort())
        for (const { event, data } of read(text)) {
          attempt = 0
          on.event(event, JSON.parse(data))
        }
      }
      return "lost"
    } finally {
      watch()
    }
  }
}

/** Resolves after `ms`, or as soon as `cut` is aborted. */
const pause = (after: Timers["after"], ms: number, cut: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const cancel = after(ms, resolve)
    cut.addEventListener("abort", () => {
      cancel()
      resolve()
    })
  })

/** Yields the parts of a body as text. Not every browser can iterate a stream, so a reader is used. */
async function* textsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as never).getReader() as {
    read(): Promise<{ done: boolean; value?: string }>
  }
  for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value ?? ""
}
