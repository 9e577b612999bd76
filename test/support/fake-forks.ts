import { type ModelFacts, OpencodeError, type Prices } from "../../src/core/ports.ts"
import type { Model } from "../../src/core/task.ts"
import type { ForkHost, HistoryMessage, NewFork } from "../../src/features/forks/ports.ts"
import type { FakeHost } from "./fake-host.ts"

/** Forks on the fake host: a session of its own and nothing of the parent's past but what a test says. */
export class FakeForks implements ForkHost, ModelFacts {
  readonly #host: FakeHost
  past: readonly HistoryMessage[] = []
  price: Prices | undefined
  /** What a character costs: it counts as a token here. */
  perToken: number | undefined

  constructor(host: FakeHost) {
    this.#host = host
  }

  async history(sessionID: string): Promise<readonly HistoryMessage[]> {
    if (!this.#host.database.sessions.has(sessionID)) throw new OpencodeError("Session not found", { notFound: true })
    return this.past
  }

  async contextLimit(_model: Model): Promise<number | undefined> {
    return undefined
  }

  async room(_model: Model): Promise<number | undefined> {
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
    return this.#host.createSession({ parentID: draft.parentID, title, agent, model, rules }, draft)
  }
}
