import { createOpencodeClient, type OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { AskOptions, Reply } from "../../../core/ports.ts"
import { type Activity, type AgentInfo, type Message, OpencodeError, type Prompt } from "../../../core/ports.ts"
import type { Ask } from "../../../core/task.ts"
import { call, find } from "../../../opencode/client.ts"
import { errorLine, promptModel, sessionModel, toAgent, toMessage } from "../../../opencode/convert.ts"
import { permissionAsk, questionAsk } from "../../../opencode/events.ts"
import { lastWanted, pagesOf, type StoredMessage, storedMessages } from "../../../opencode/messages.ts"
import { OpencodeUserActions } from "../../../opencode/user-actions.ts"
import type { NewRemoteSession, RemoteFolder, RemoteSessionInfo } from "../remote-session.ts"

/**
 * Metadata key of remote sessions. The key of records is not used, because a plugin on the host would adopt the
 * sessions.
 */
const KEY = "superagentsHost"
/** Most sessions read in a task's folder, which has the task's session and forks of that session. */
const MOST_SESSIONS = 100

/** Most pages of messages, and most open questions, that are read. */
const MOST_PAGES = 400
const MOST_ASKS = 20

export type RemoteServer = Pick<OpencodeRemote, keyof OpencodeRemote>

export const openRemote = (fetch: (request: Request) => Promise<Response>, baseUrl: string): RemoteServer =>
  guarded(new OpencodeRemote(createOpencodeClient({ baseUrl, fetch } as Parameters<typeof createOpencodeClient>[0])))

/** Wraps a remote server, which is not trusted: an answer that cannot be read becomes an `OpencodeError`. */
function guarded(server: RemoteServer): RemoteServer {
  return new Proxy(server, {
    get(target, name) {
      const method = Reflect.get(target, name, target) as (...args: unknown[]) => Promise<unknown>
      return (...args: unknown[]) =>
        method.apply(target, args).catch((error: unknown) => {
          if (error instanceof OpencodeError) throw error
          throw new OpencodeError(`${String(name)}: it answered with what cannot be read`)
        })
    },
  })
}

function toTimed(stored: StoredMessage): Message {
  const message = toMessage(stored)
  if (![message.createdAt, message.completedAt ?? 0].every((time) => Number.isFinite(time)))
    throw new OpencodeError("read messages: it answered with times that are none")
  return message
}

/**
 * API of OpenCode 1.x on another machine; times and ids are that machine's. Methods reject with their transport's error
 * without contact, otherwise with an `OpencodeError`.
 */
class OpencodeRemote {
  readonly #client: OpencodeClient

  constructor(client: OpencodeClient) {
    this.#client = client
  }

  async agents(directory: string): Promise<readonly AgentInfo[]> {
    return (await call("read the agents", this.#client.app.agents({ directory }))).map(toAgent)
  }

  /** All usable models as `provider/model`. */
  async models(directory: string): Promise<readonly string[]> {
    const { providers } = await call("read the models", this.#client.config.providers({ directory }))
    return providers.flatMap(({ id, models }) => Object.keys(models).map((model) => `${id}/${model}`))
  }

  async sessionOf(directory: string, taskID: string): Promise<RemoteSessionInfo | undefined> {
    const sessions = await call("list sessions", this.#client.session.list({ directory, limit: MOST_SESSIONS }))
    for (const { id, metadata } of sessions) {
      const ours = metadata?.[KEY] as { task?: unknown; skew?: unknown } | undefined
      if (ours?.task === taskID) return { id, skew: Number(ours.skew) || 0 }
    }
    return undefined
  }

  async createSession({
    folder,
    title,
    agent,
    model,
    rules,
    taskID,
    skew,
  }: NewRemoteSession): Promise<RemoteSessionInfo> {
    const session = await call(
      "create a session",
      this.#client.session.create({
        directory: folder,
        title,
        agent,
        model: sessionModel(model),
        permission: [...rules],
        metadata: { [KEY]: { task: taskID, skew } },
      }),
    )
    return { id: session.id, skew }
  }

  async prompt({ sessionID, messageID, agent, model, noReply, parts }: Prompt): Promise<void> {
    const texts = parts.map((part) => ({ type: "text" as const, ...part }))
    const message = { sessionID, messageID, agent, ...promptModel(model), noReply, parts: texts }
    if (noReply) await call("store a message", this.#client.session.prompt(message))
    else await call("send a prompt", this.#client.session.promptAsync(message))
  }

  async abort(sessionID: string): Promise<void> {
    await find("abort a session", this.#client.session.abort({ sessionID }))
  }

  async deleteMessage(sessionID: string, messageID: string): Promise<void> {
    await find("delete a message", this.#client.session.deleteMessage({ sessionID, messageID }))
  }

  async messagesSince(sessionID: string, messageID: string): Promise<readonly Message[]> {
    const isThere = async (page: readonly StoredMessage[]) => page.some(({ info }) => info.id === messageID)
    const stored = await storedMessages(this.#client, sessionID, isThere, MOST_PAGES)
    const start = stored.findIndex(({ info }) => info.id === messageID)
    return start < 0 ? [] : stored.slice(start).map(toTimed)
  }

  async lastMessage(sessionID: string, isWanted?: (message: Message) => boolean): Promise<Message | undefined> {
    if (isWanted) return lastWanted(pagesOf(this.#client, sessionID, MOST_PAGES), toTimed, isWanted)
    const page = await find("read messages", this.#client.session.messages({ sessionID, limit: 1 }))
    return page?.[0] && toTimed(page[0])
  }

  async openTodos(sessionID: string): Promise<number> {
    const todos = (await find("read todos", this.#client.session.todo({ sessionID }))) ?? []
    return todos.filter(({ status }) => status !== "completed" && status !== "cancelled").length
  }

  async folder(directory: string): Promise<RemoteFolder> {
    const where = { directory }
    const [statuses, permissions, questions] = await Promise.all([
      call("read the sessions' status", this.#client.session.status(where)),
      call("read open permission questions", this.#client.permission.list(where)),
      call("read open questions", this.#client.question.list(where)),
    ])
    const activity = new Map<string, Activity>()
    for (const [sessionID, status] of Object.entries(statuses)) {
      if (status.type === "busy") activity.set(sessionID, { type: "busy" })
      if (status.type === "retry")
        activity.set(sessionID, { type: "retry", attempt: status.attempt, message: errorLine(status.message) })
    }
    const now = Date.now()
    const asks = [
      ...permissions.map((asked) => permissionAsk(asked, now)),
      ...questions.map((asked) => questionAsk(asked, now)),
    ]
    return { activity, asks: asks.slice(0, MOST_ASKS) }
  }

  async refuse(ask: Ask, directory: string, message: string): Promise<void> {
    const requestID = ask.id
    const refusal =
      ask.kind === "permission"
        ? this.#client.permission.reply({ directory, requestID, reply: "reject", message: message || undefined })
        : this.#client.question.reject({ directory, requestID })
    await find("refuse a question", refusal as Promise<{ data?: unknown; error?: unknown }>)
  }

  question(ask: Ask): Promise<AskOptions | undefined> {
    return new OpencodeUserActions(this.#client).question(ask)
  }

  answer(ask: Ask, reply: Reply): Promise<boolean> {
    return new OpencodeUserActions(this.#client).answer(ask, reply)
  }

  /** Disposes OpenCode's instance of a folder. */
  async leave(directory: string): Promise<void> {
    await call("end an instance", this.#client.instance.dispose({ directory }))
  }
}
