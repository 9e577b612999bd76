import { type ModelFacts, OpencodeError, type Prices } from "../../src/core/ports.ts"
import type { Model } from "../../src/core/task.ts"
import type { ForkApi, HistoryMessage, NewFork } from "../../src/features/forks/ports.ts"
import type { FakeApi } from "./fake-api.ts"

/** Forks on the fake OpenCode: a session of its own and nothing of the parent's past but what a test says. */
export class FakeForks implements ForkApi, ModelFacts {
  readonly #opencode: FakeApi
  past: readonly HistoryMessage[] = []
  price: Prices | undefined
  /** What a character costs: it counts as a token here. */
  perToken: number | undefined

  constructor(opencode: FakeApi) {
    this.#opencode = opencode
  }

  async history(sessionID: string): Promise<readonly HistoryMessage[]> {
    if (!this.#opencode.database.sessions.has(sessionID))
      throw new OpencodeError("Session not found", { notFound: true })
    return this.past
  }

  async contextLimit(_model: Model): Promise<number | undefined> {
    return undefined
  }

  async compactionLimit(_model: Model): Promise<number | undefined> {
    return undefined
  }

  async prices(): Promise<Prices | undefined> {
    return this.price
  }

  async inputPrice(): Promise<number | undefined> {
    return this.perToken
  }

  async countTokens(texts: readonly string[]): Promise<readonly number[] | undefined> {
    return this.perToken === undefined ? undefined : texts.map(({ length }) => length)
  }

  fork({ title, agent, model, rules, draft }: NewFork): Promise<string> {
    return this.#opencode.createSession({ parentID: draft.parentID, title, agent, model, rules }, draft)
  }
}
