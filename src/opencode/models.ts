import type { Provider } from "@opencode-ai/sdk/v2/types"
import type { ModelFacts, Prices } from "../core/ports.ts"
import type { Model } from "../core/task.ts"
import type { TokenCounter } from "../runtime/tokens/counter.ts"
import type { Cached } from "./cache.ts"

/** Most tokens that OpenCode reserves for the answer. */
const ANSWER_TOKENS = 32_000
const COMPACTION_TOKENS = 20_000
/** Prices are given per this number of tokens. */
const PRICED_TOKENS = 1_000_000

type Facts = Provider["models"][string]

export class OpencodeModels implements ModelFacts {
  readonly #providers: Pick<Cached<readonly Provider[]>, "get">
  readonly #counter: Pick<TokenCounter, "count">

  constructor(providers: Pick<Cached<readonly Provider[]>, "get">, counter: Pick<TokenCounter, "count">) {
    this.#providers = providers
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
    return (await this.#facts(model))?.cost ?? {}
  }

  async #limit(model: Model): Promise<Facts["limit"] | undefined> {
    const limit = (await this.#facts(model))?.limit
    return limit && limit.context > 0 ? limit : undefined
  }

  async #facts({ provider, id }: Model): Promise<Facts | undefined> {
    const { models = {} } = (await this.#providers.get()).find((each) => each.id === provider) ?? {}
    return Object.hasOwn(models, id) ? models[id] : undefined
  }
}
