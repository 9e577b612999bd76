import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { modelKey } from "../core/limits.ts"
import type { ModelFacts, Prices } from "../core/ports.ts"
import type { Model } from "../core/task.ts"
import type { TokenCounter } from "../runtime/tokens/counter.ts"
import { Cached } from "./cache.ts"
import { call } from "./client.ts"

const KEEP_MODELS_MS = 60_000
/** Most tokens that OpenCode reserves for the answer. */
const ANSWER_TOKENS = 32_000
const COMPACTION_TOKENS = 20_000
/** Prices are given per this number of tokens. */
const PRICED_TOKENS = 1_000_000

/** Properties of a model. */
type Facts = {
  readonly limit: { readonly context: number; readonly input?: number; readonly output: number }
  readonly cost?: { readonly input: number; readonly cache?: { readonly read: number; readonly write: number } }
}

export class OpencodeModels implements ModelFacts {
  readonly #client: OpencodeClient
  readonly #counter: Pick<TokenCounter, "count">
  readonly #models = new Cached<ReadonlyMap<string, Facts>>(KEEP_MODELS_MS, () => this.#readModels())

  constructor(client: OpencodeClient, counter: Pick<TokenCounter, "count">) {
    this.#client = client
    this.#counter = counter
  }

  async contextLimit(model: Model): Promise<number | undefined> {
    const limit = await this.#limit(model)
    return limit && (limit.input ?? limit.context)
  }

  /** Room for a conversation in tokens, computed as OpenCode does with its default settings. */
  async compactionLimit(model: Model): Promise<number | undefined> {
    const limit = await this.#limit(model)
    if (!limit) return undefined
    const answer = Math.min(limit.output || ANSWER_TOKENS, ANSWER_TOKENS)
    return limit.input ? limit.input - Math.min(answer, COMPACTION_TOKENS) : limit.context - answer
  }

  async inputPrice(model: Model): Promise<number | undefined> {
    const { input = 0 } = await this.#cost(model)
    return input > 0 ? input / PRICED_TOKENS : undefined
  }

  async prices(model: Model): Promise<Prices | undefined> {
    const { input = 0, cache } = await this.#cost(model)
    const [cached, uncached] = [cache?.read ?? 0, cache?.write || input]
    return cached > 0 && uncached > 0
      ? { cached: cached / PRICED_TOKENS, uncached: uncached / PRICED_TOKENS }
      : undefined
  }

  countTokens(texts: readonly string[]): Promise<readonly number[] | undefined> {
    return this.#counter.count(texts)
  }

  async #cost(model: Model): Promise<Partial<NonNullable<Facts["cost"]>>> {
    return (await this.#models.get()).get(modelKey(model))?.cost ?? {}
  }

  async #limit(model: Model): Promise<Facts["limit"] | undefined> {
    const limit = (await this.#models.get()).get(modelKey(model))?.limit
    return limit && limit.context > 0 ? limit : undefined
  }

  async #readModels(): Promise<ReadonlyMap<string, Facts>> {
    const { providers } = await call("read the models", this.#client.config.providers())
    return new Map(
      providers.flatMap(({ id, models }) =>
        Object.entries(models).map(([model, facts]) => [`${id}/${model}`, facts] as const),
      ),
    )
  }
}
