import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { type Host, HostError } from "../core/ports.ts"
import { type Model, NO_USAGE, type Usage } from "../core/task.ts"
import type { TokenCounter } from "../fork/counter.ts"
import type { ForkHost, HistoryMessage, NewFork, Preamble } from "../fork/ports.ts"
import { forkEvents } from "./fork-events.ts"
import { history, type Stored } from "./history.ts"
import { Kept } from "./kept.ts"
import { call } from "./opencode.ts"
import { Pace } from "./pace.ts"

/** How long one call may hold the host's thread; between two calls others run. */
const CALL_MS = 35
/** Messages read in one call, and events written in one. */
const PAGE = { first: 20, most: 200, targetMs: CALL_MS }
const SLICE = { first: 8, most: 100, targetMs: CALL_MS }
const KEEP_MODELS_MS = 60_000

type Counter = Pick<TokenCounter, "count">

export type ForkParts = {
  readonly client: OpencodeClient
  readonly sessions: Pick<Host, "createSession" | "deleteSession">
  /** The project's, as the host names it. */
  readonly directory: string
  readonly counter: Counter
}

/**
 * Forks on OpenCode 1.x.
 *
 * The fork is a child like any other, and what it inherits is written into it through the route by which OpenCode
 * replays a session's events. So a long history costs what is kept of it, while `session.fork` costs all of it and then
 * a call for every message that goes; the copies carry no cost of the parent's, no stale token count that would have
 * the host compact the fork at once, and ids older than the prompt's.
 */
export class OpencodeForks implements ForkHost {
  readonly #client: OpencodeClient
  readonly #sessions: Pick<Host, "createSession" | "deleteSession">
  readonly #directory: string
  readonly #counter: Counter
  readonly #contexts = new Kept<ReadonlyMap<string, number>>(KEEP_MODELS_MS, () => this.#readContexts())

  constructor({ client, sessions, directory, counter }: ForkParts) {
    this.#client = client
    this.#sessions = sessions
    this.#directory = directory
    this.#counter = counter
  }

  async history(sessionID: string, messageID: string): Promise<readonly HistoryMessage[]> {
    const stored = await this.#stored(sessionID)
    const end = stored.findIndex(({ info }) => info.id === messageID)
    if (end < 0)
      throw new HostError(`read the history: session ${sessionID} has no message ${messageID}`, { notFound: true })
    return history(stored.slice(0, end))
  }

  async contextLimit({ provider, id }: Model): Promise<number | undefined> {
    return (await this.#contexts.get()).get(`${provider}/${id}`)
  }

  countTokens(texts: readonly string[]): Promise<readonly number[] | undefined> {
    return this.#counter.count(texts)
  }

  async fork({ messages, tokens, draft, ...session }: NewFork): Promise<{ sessionID: string; usageBefore: Usage }> {
    const sessionID = await this.#sessions.createSession(session, draft)
    try {
      await this.#fill(sessionID, messages, tokens)
      return { sessionID, usageBefore: NO_USAGE }
    } catch (error) {
      await this.deleteSession(sessionID).catch(() => {})
      throw error
    }
  }

  async preamble({ sessionID, messageID, partID, agent, model, text }: Preamble): Promise<void> {
    const named = model && { model: { providerID: model.provider, modelID: model.id }, variant: model.variant }
    const parts = [{ id: partID, type: "text" as const, text, synthetic: true }]
    await call(
      "write the preamble",
      this.#client.session.prompt({ sessionID, messageID, agent, ...named, noReply: true, parts }),
    )
  }

  deleteSession(sessionID: string): Promise<void> {
    return this.#sessions.deleteSession(sessionID)
  }

  async #fill(sessionID: string, messages: readonly HistoryMessage[], tokens: number): Promise<void> {
    const events = forkEvents(sessionID, messages, tokens)
    const pace = new Pace(SLICE)
    for (let at = 0; at < events.length; ) {
      const slice = events.slice(at, at + pace.size)
      const begin = performance.now()
      await call("write the history", this.#client.sync.replay({ body_directory: this.#directory, events: slice }))
      pace.took(performance.now() - begin)
      at += slice.length
      await new Promise<void>((resolve) => setTimeout(resolve, 0))
    }
  }

  /** All messages, oldest first, read in pages from the newest on. */
  async #stored(sessionID: string): Promise<readonly Stored[]> {
    const pages: Stored[][] = []
    const pace = new Pace(PAGE)
    for (let before: string | undefined; ; ) {
      const begin = performance.now()
      const request = this.#client.session.messages({ sessionID, limit: pace.size, before })
      pages.push(await call("read messages", request))
      pace.took(performance.now() - begin)
      before = (await request).response?.headers.get("x-next-cursor") ?? undefined
      if (before === undefined) return pages.reverse().flat()
    }
  }

  async #readContexts(): Promise<ReadonlyMap<string, number>> {
    const { providers } = await call("read the models", this.#client.config.providers())
    const limits = providers.flatMap(({ id, models }) =>
      Object.entries(models).map(([model, { limit }]) => [`${id}/${model}`, limit.input ?? limit.context] as const),
    )
    return new Map(limits.filter(([, tokens]) => tokens > 0))
  }
}
