import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { OpencodeError } from "../core/ports.ts"
import type { Ask, Task } from "../core/task.ts"
import { oneLine } from "../lib/text.ts"
import type {
  AskOptions,
  Conversation,
  HistoryRun,
  MessageToSession,
  Reply,
  UserActions,
} from "../runtime/user-actions.ts"
import { call, find } from "./client.ts"
import { historyOf } from "./history.ts"
import { THREAD_KEY } from "./threads.ts"

const MOST_CONVERSATIONS = 100
const MOST_DIFF_CHARS = 100_000

/** A user's actions through the HTTP API of OpenCode 1.x. */
export class OpencodeUserActions implements UserActions {
  readonly #client: OpencodeClient
  readonly #directory: string

  /** `directory`: folder that this instance serves. */
  constructor(client: OpencodeClient, directory: string) {
    this.#client = client
    this.#directory = directory
  }

  async question(ask: Ask): Promise<AskOptions | undefined> {
    const where = await this.#whereOf(ask)
    if (ask.kind === "question") {
      const open = await call("read open questions", this.#client.question.list(where))
      const questions = open.find(({ id }) => id === ask.id)?.questions
      const offered = questions?.map(({ question, header, options, multiple = false, custom = true }) => ({
        question,
        header,
        options: options.map(({ label, description }) => ({ label, description })),
        multiple,
        custom,
      }))
      return offered && { kind: "question", questions: offered }
    }
    const open = await call("read open permission questions", this.#client.permission.list(where))
    const asked = open.find(({ id }) => id === ask.id)
    if (!asked) return undefined
    const { permission, patterns, always, metadata } = asked
    const diff = typeof metadata.diff === "string" ? metadata.diff.slice(0, MOST_DIFF_CHARS) : undefined
    return { kind: "permission", permission, patterns, always, diff }
  }

  async answer(ask: Ask, reply: Reply): Promise<boolean> {
    const requestID = ask.id
    const where = await this.#whereOf(ask)
    const { permission, question } = this.#client
    try {
      if ("reply" in reply) await call("answer", permission.reply({ ...where, requestID, ...reply }))
      else if ("answers" in reply) {
        const answers = reply.answers.map((labels) => [...labels])
        await call("answer", question.reply({ ...where, requestID, answers }))
      } else await call("dismiss a question", question.reject({ ...where, requestID }))
      return true
    } catch (error) {
      if (error instanceof OpencodeError && error.notFound) return false
      throw error
    }
  }

  async conversations(): Promise<readonly Conversation[]> {
    const listed = this.#client.session.list({ directory: this.#directory, roots: true, limit: MOST_CONVERSATIONS })
    return (await call("list sessions", listed))
      .filter(({ directory, metadata }) => directory === this.#directory && !(metadata && THREAD_KEY in metadata))
      .map(({ id, title, time }) => ({ id, title: oneLine(title), updatedAt: time.updated }))
  }

  async session(sessionID: string): Promise<{ readonly title: string; readonly folder: string } | undefined> {
    const session = await find("read a session", this.#client.session.get({ sessionID }))
    return session && { title: oneLine(session.title), folder: session.directory }
  }

  async open(title: string): Promise<string> {
    return (await call("create a session", this.#client.session.create({ directory: this.#directory, title }))).id
  }

  async write({ sessionID, folder: directory, text, agent }: MessageToSession): Promise<void> {
    const parts = [{ type: "text" as const, text }]
    await call("send a message", this.#client.session.promptAsync({ sessionID, directory, agent, parts }))
  }

  history({ sessionID, id }: Task): Promise<readonly HistoryRun[]> {
    return historyOf(this.#client, sessionID, id)
  }

  /** The session's folder: OpenCode knows its questions only there. */
  async #whereOf({ sessionID }: Ask): Promise<{ directory?: string }> {
    const folder = (await this.session(sessionID))?.folder
    return folder === undefined ? {} : { directory: folder }
  }
}
