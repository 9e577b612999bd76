import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Session } from "@opencode-ai/sdk/v2/types"
import { HostError, type Owner } from "../core/ports.ts"
import { type Model, NO_USAGE, type Usage } from "../core/task.ts"
import type { ForkHost, History, NewFork, Preamble } from "../fork/ports.ts"
import { forkEvents } from "./fork-events.ts"
import { type Stored, toHistoryMessage, visible } from "./history.ts"
import { Kept } from "./kept.ts"
import { call } from "./opencode.ts"
import { encodeRecord, RECORD_KEY } from "./record.ts"

/** Messages read in one call: more would hold the host's thread for longer than a few ms. */
const PAGE = 40
/** Events written in one call. Each is a few ms of the host's work; between two calls others run. */
const SLICE = 16
const KEEP_MODELS_MS = 60_000

/**
 * Forks on OpenCode 1.x.
 *
 * `session.fork` up to the parent's first message makes an empty fork; what is to be inherited is then written into it
 * through the route by which OpenCode replays a session's events. So a long history costs what is kept of it, while a
 * whole fork costs all of it and then a call for every message that goes; the copies carry no cost of the parent's, no
 * stale token count that would have the host compact the fork at once, and ids older than the prompt's.
 */
export class OpencodeForks implements ForkHost {
  readonly #client: OpencodeClient
  readonly #owner: Owner
  readonly #contexts = new Kept<ReadonlyMap<string, number>>(KEEP_MODELS_MS, () => this.#readContexts())

  constructor(client: OpencodeClient, owner: Owner) {
    this.#client = client
    this.#owner = owner
  }

  async history(sessionID: string, messageID: string): Promise<History> {
    const stored = await this.#stored(sessionID)
    const end = stored.findIndex(({ info }) => info.id === messageID)
    if (end < 0)
      throw new HostError(`read the history: session ${sessionID} has no message ${messageID}`, { notFound: true })
    const messages = visible(stored.slice(0, end)).map(toHistoryMessage)
    return { messages, handle: stored[0]?.info.id ?? messageID }
  }

  async contextLimit({ provider, id }: Model): Promise<number | undefined> {
    return (await this.#contexts.get()).get(`${provider}/${id}`)
  }

  async fork(input: NewFork): Promise<{ sessionID: string; usageBefore: Usage }> {
    const { parentID, history } = input
    const request = this.#client.session.fork({ sessionID: parentID, messageID: String(history.handle) })
    const session = await call("fork a session", request)
    try {
      await this.#fill(session, input)
      return { sessionID: session.id, usageBefore: NO_USAGE }
    } catch (error) {
      await this.deleteSession(session.id).catch(() => {})
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

  async deleteSession(sessionID: string): Promise<void> {
    await call("delete a session", this.#client.session.delete({ sessionID }))
  }

  async #fill(session: Session, input: NewFork): Promise<void> {
    const { id: sessionID, directory } = session
    const owner = { ...this.#owner, seenAt: Date.now() }
    const metadata = { [RECORD_KEY]: encodeRecord({ ...input.draft, sessionID, usageBefore: NO_USAGE }, owner) }
    const events = forkEvents(session, input, metadata)
    for (let at = 0; at < events.length; at += SLICE) {
      const slice = events.slice(at, at + SLICE)
      await call("write the history", this.#client.sync.replay({ body_directory: directory, events: slice }))
      await new Promise<void>((resolve) => setTimeout(resolve, 0))
    }
  }

  /** All messages, oldest first, read in pages from the newest on. */
  async #stored(sessionID: string): Promise<readonly Stored[]> {
    const pages: Stored[][] = []
    for (let before: string | undefined; ; ) {
      const request = this.#client.session.messages({ sessionID, limit: PAGE, before })
      pages.push(await call("read messages", request))
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
