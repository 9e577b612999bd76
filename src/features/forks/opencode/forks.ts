import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Runtime } from "../../../core/feature.ts"
import { type ModelFacts, type OpencodeApi, OpencodeError } from "../../../core/ports.ts"
import { addBounded } from "../../../lib/collections.ts"
import { call } from "../../../opencode/client.ts"
import { LAUNCHING_TOOL } from "../../../opencode/convert.ts"
import { type StoredMessage, storedMessages } from "../../../opencode/messages.ts"
import { leaveOutStale } from "../../../opencode/request.ts"
import type { ForkApi, HistoryMessage, NewFork, TaskSession, WeighedMessages } from "../ports.ts"
import { type RequestPrefix, type RequestPrefixes, shapeOf, shareMessages } from "./beginnings.ts"
import { rewriteCopy } from "./copy.ts"
import { type DefaultTools, history } from "./history.ts"
import { replay } from "./replay.ts"

type Sessions = Pick<OpencodeApi, "createSession" | "deleteSession" | "saveRecord" | "log">

export type ForkParts = {
  readonly client: OpencodeClient
  readonly sessions: Sessions
  /** OpenCode's project directory. */
  readonly directory: string
  readonly models: Pick<ModelFacts, "compactionLimit">
  /** Request prefixes; absent if the feature does not observe requests. */
  readonly prefixes?: RequestPrefixes
  /** Tool settings of messages that have no settings of their own. */
  readonly usual?: DefaultTools
}

/** Most parents whose probe results are stored. */
const MOST_PARENTS = 64
const PROBE = { type: "text" as const, text: "Nothing is asked." }

/**
 * For OpenCode 1: the history is replayed into a child session, so only kept messages are written. Without a replay
 * route, a copy by `session.fork` is rewritten: such a session has no parent, so the parent's screen does not show its
 * questions.
 */
export class OpencodeForks implements ForkApi {
  readonly #parts: ForkParts
  /** Probe results by parent. A result is valid while the parent's prefix stays the same. */
  readonly #alike = new Map<string, { readonly begins: string; readonly isAlike: Promise<boolean | undefined> }>()
  /** Set to false when OpenCode has answered that it has no replay route. */
  #replays = true

  constructor(parts: ForkParts) {
    this.#parts = parts
  }

  async history(sessionID: string, messageID: string): Promise<readonly HistoryMessage[]> {
    const end = await this.#endOf(sessionID, messageID)
    return history(await this.#before(sessionID, end), this.#parts.usual)
  }

  async beginsAlike(session: TaskSession, history: WeighedMessages, briefed: boolean): Promise<boolean | undefined> {
    const { parentID } = session
    const sent = this.#parts.prefixes?.of(parentID)
    if (sent === undefined) return undefined
    const shapes = rewrittenIn(sent, history.messages)
    const begins = [sent.system, ...(shapes ?? [])].join("\n")
    const known = this.#alike.get(parentID)
    if (known?.begins === begins) return known.isAlike
    const isAlike = this.#probe(session, briefed, shapes && history).then(
      (found) => found && found.system === sent.system && (!shapes || shareMessages(shapes, shapesIn(found))),
      (error) => {
        this.#parts.sessions.log("warn", "how a fork's requests would begin could not be seen", {
          error: String(error),
        })
        return undefined
      },
    )
    // Forks by the same message share one probe.
    addBounded(this.#alike, parentID, { begins, isAlike }, MOST_PARENTS)
    return isAlike
  }

  /**
   * Creates a session, lets it build a request that is aborted before it is sent, and returns the beginning of this
   * request. A restart finds a session that a crash leaves behind by its record, like that of a fork half made.
   * `history`: the parent's messages, given only where other plugins rewrite them.
   */
  async #probe(
    { draft, ...session }: TaskSession,
    briefed: boolean,
    history: WeighedMessages | undefined,
  ): Promise<RequestPrefix | undefined> {
    const { agent, model } = session
    const sessionID = await this.#parts.sessions.createSession(session, draft)
    const asked = model && { providerID: model.provider, modelID: model.id }
    const prompt = { sessionID, agent, model: asked, variant: model?.variant, parts: [PROBE] }
    try {
      if (history)
        await replay(
          this.#parts.client,
          { sessionID, directory: this.#parts.directory },
          history.messages,
          history.tokens,
        )
      const ask = () => call("send a prompt", this.#parts.client.session.promptAsync(prompt))
      return await this.#parts.prefixes?.probed(sessionID, briefed, ask)
    } finally {
      await this.#parts.sessions.deleteSession(sessionID).catch(() => {})
      this.#parts.prefixes?.forget(sessionID)
    }
  }

  async fork(input: NewFork): Promise<string> {
    const replayed = this.#replays ? await this.#replayed(input) : undefined
    return replayed ?? (await this.#copied(input))
  }

  /** Child session with the replayed history; undefined where OpenCode cannot replay. */
  async #replayed({ messages, tokens, draft, ...session }: NewFork): Promise<string | undefined> {
    const sessionID = await this.#parts.sessions.createSession(session, draft)
    try {
      await replay(this.#parts.client, { sessionID, directory: this.#parts.directory }, messages, tokens)
      return sessionID
    } catch (error) {
      await this.#parts.sessions.deleteSession(sessionID).catch(() => {})
      if (!(error instanceof OpencodeError)) throw error
      if (error.notFound) this.#replays = false
      this.#parts.sessions.log("warn", "a history could not be replayed; the fork is made by session.fork", {
        error: error.message,
      })
      return undefined
    }
  }

  /** Copy of the parent by `session.fork`, rewritten to the same content. */
  async #copied({ messages, draft, parentID, title, model, rules }: NewFork): Promise<string> {
    const end = await this.#endOf(parentID, draft.parentMessageID)
    const sources = await this.#before(parentID, end)
    const { id: sessionID } = await call(
      "copy the session",
      this.#parts.client.session.fork({ sessionID: parentID, messageID: end }),
    )
    try {
      const own = { title, permission: [...rules], metadata: {} }
      await call("write a session", this.#parts.client.session.update({ sessionID, ...own }))
      await this.#parts.sessions.saveRecord(sessionID, { ...draft, sessionID })
      await rewriteCopy(
        this.#parts.client,
        { sessionID, sources, compactionLimit: model && (await this.#parts.models.compactionLimit(model)) },
        messages,
      )
      return sessionID
    } catch (error) {
      await this.#parts.sessions.deleteSession(sessionID).catch(() => {})
      throw error
    }
  }

  /**
   * Message before which a fork's history ends. A fork by a user has no calling message: it gets all messages that the
   * user has not undone.
   */
  async #endOf(sessionID: string, callingMessageID: string): Promise<string | undefined> {
    if (callingMessageID !== "") return callingMessageID
    const { revert } = await call("read a session", this.#parts.client.session.get({ sessionID }))
    return revert?.messageID
  }

  /** All messages, or those before this one. */
  async #before(sessionID: string, messageID: string | undefined): Promise<readonly StoredMessage[]> {
    const stored = await storedMessages(this.#parts.client, sessionID)
    if (messageID === undefined) return stored
    const end = stored.findIndex(({ info }) => info.id === messageID)
    if (end < 0)
      throw new OpencodeError(`read the history: session ${sessionID} has no message ${messageID}`, { notFound: true })
    return stored.slice(0, end)
  }
}

/** Shapes of the parent's messages in its last request; undefined if no plugin rewrote the stored messages. */
function rewrittenIn({ shapes }: RequestPrefix, history: readonly HistoryMessage[]): readonly string[] | undefined {
  // Later messages were in no request yet.
  const shown = history.slice(0, history.findLastIndex(({ id }) => shapes.has(id)) + 1)
  const stored = shown.flatMap(({ parts, handle }) => {
    const { info, parts: own } = handle as StoredMessage
    // A replay leaves out messages that the model does not see.
    return parts.length > 0 ? [{ info, parts: [...own] }] : []
  })
  leaveOutStale({ messages: stored })
  const sent = stored.map(({ info }) => shapes.get(info.id) ?? "")
  return stored.some(({ parts }, at) => shapeOf(parts) !== sent[at]) ? sent.filter((shape) => shape !== "") : undefined
}

/** Shapes of replayed messages, oldest first, without the message that the probe itself sends. */
const shapesIn = ({ shapes }: RequestPrefix): readonly string[] =>
  [...shapes]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([, shape]) => shape)
    .slice(0, -1)
    .filter((shape) => shape !== "")

export function openForks(
  { opencode, models, options, connection }: Runtime,
  prefixes: RequestPrefixes | undefined,
): OpencodeForks {
  const { client, directory } = connection as { readonly client: OpencodeClient; readonly directory: string }
  const usual: DefaultTools = options.nativeTask ? {} : { [LAUNCHING_TOOL]: false }
  return new OpencodeForks({ client, sessions: opencode, directory, models, prefixes, usual })
}
