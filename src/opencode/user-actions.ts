import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { AskOptions, Reply, UserActions } from "../core/ports.ts"
import { OpencodeError } from "../core/ports.ts"
import type { Ask } from "../core/task.ts"
import { call, find } from "./client.ts"

const MOST_DIFF_CHARS = 100_000

/** A user's actions through the HTTP API of OpenCode 1.x. */
export class OpencodeUserActions implements UserActions {
  readonly #client: OpencodeClient

  constructor(client: OpencodeClient) {
    this.#client = client
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

  /** Folder of the question's session: OpenCode knows the question only in this folder. */
  async #whereOf({ sessionID }: Ask): Promise<{ directory?: string }> {
    const session = await find("read a session", this.#client.session.get({ sessionID }))
    return session ? { directory: session.directory } : {}
  }
}
