import { HostError } from "../../src/core/ports.ts"
import { type Model, NO_USAGE, type Usage } from "../../src/core/task.ts"
import type { ForkHost, HistoryMessage, NewFork, Preamble } from "../../src/fork/ports.ts"
import type { FakeHost } from "./fake-host.ts"

/** Forks on the fake host: a session of its own with one message for the parent's past, and the preamble. */
export class FakeForks implements ForkHost {
  readonly #host: FakeHost

  constructor(host: FakeHost) {
    this.#host = host
  }

  async history(sessionID: string): Promise<readonly HistoryMessage[]> {
    if (!this.#host.database.sessions.has(sessionID)) throw new HostError("Session not found", { notFound: true })
    return []
  }

  async contextLimit(_model: Model): Promise<number | undefined> {
    return undefined
  }

  async countTokens(): Promise<undefined> {
    return undefined
  }

  async fork({ title, agent, model, rules, draft }: NewFork): Promise<{ sessionID: string; usageBefore: Usage }> {
    const input = { parentID: draft.parentID, title, agent, model, rules }
    const sessionID = await this.#host.createSession(input, draft)
    return { sessionID, usageBefore: NO_USAGE }
  }

  preamble({ sessionID, messageID, partID, agent, model, text }: Preamble): Promise<void> {
    return this.#host.prompt({ sessionID, messageID, agent, model, noReply: true, parts: [{ id: partID, text }] })
  }

  deleteSession(sessionID: string): Promise<void> {
    return this.#host.deleteSession(sessionID)
  }
}
