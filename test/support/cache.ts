import { countTokens } from "gpt-tokenizer/encoding/o200k_base"

/** How a provider is spoken to, and tells what its cache did. */
export type Form = "openai" | "anthropic"

/** What a provider counts of a request, in tokens: what is new, read from its cache, and written there. */
export type Counted = { readonly input: number; readonly read: number; readonly written: number }

/** A request as its cache goes through it: tools, system prompt, messages. `mark`: what stands until here is to be kept. */
type Block = { readonly text: string; readonly mark: boolean }

/** A request's blocks as texts, without marks for the cache. */
export const textsIn = (form: Form, body: Record<string, unknown>): readonly string[] =>
  blocksIn(form, body as Body).map(({ text }) => text)

type Body = { tools?: unknown[]; system?: unknown; messages?: { role: string; content?: unknown }[] }

/** How many blocks before a mark Anthropic looks for what it has. */
const LOOK_BACK = 20

/**
 * A provider's cache, played: what a request begins with is read again where an earlier one began alike. It is there as
 * soon as that one's answer has begun, and for good.
 *
 * - OpenAI's: finds the longest beginning that requests of the same key share, block by block; tells of reads alone.
 * - Anthropic's: keeps what stands before a mark, and looks for it from each mark on 20 blocks back.
 */
export class PlayedCache {
  readonly #seen = new Map<string, Block[][]>()
  readonly #kept = new Set<string>()
  readonly #weights = new Map<string, number>()

  /** What a request reads. `begun` is to be called when its answer begins. */
  open(form: Form, body: Record<string, unknown>): Counted & { readonly begun: () => void } {
    return form === "openai" ? this.#openai(body) : this.#anthropic(body)
  }

  /** How many tokens the request is. */
  weigh(form: Form, body: Record<string, unknown>): number {
    return this.#sum(blocksIn(form, body as Body))
  }

  #openai(body: Record<string, unknown>) {
    const key = String(body.prompt_cache_key ?? body.promptCacheKey ?? "")
    const blocks = blocksIn("openai", body as Body)
    const seen = this.#seen.get(key) ?? []
    this.#seen.set(key, seen)
    const shared = Math.max(0, ...seen.map((other) => common(blocks, other)))
    const read = this.#sum(blocks.slice(0, shared))
    return { read, written: 0, input: this.#sum(blocks) - read, begun: () => void seen.push(blocks) }
  }

  #anthropic(body: Record<string, unknown>) {
    const blocks = blocksIn("anthropic", body as Body)
    const until = blocks.map((_, at) => JSON.stringify(blocks.slice(0, at + 1).map(({ text }) => text)))
    const marks = blocks.flatMap(({ mark }, at) => (mark ? [at] : []))
    const found = marks.flatMap((mark) =>
      until.flatMap((prefix, at) => (at <= mark && mark - at < LOOK_BACK && this.#kept.has(prefix) ? [at] : [])),
    )
    const [readTo, writtenTo] = [Math.max(-1, ...found) + 1, Math.max(-1, ...marks) + 1]
    const read = this.#sum(blocks.slice(0, readTo))
    const written = this.#sum(blocks.slice(readTo, Math.max(readTo, writtenTo)))
    const begun = () => {
      for (const mark of marks) this.#kept.add(until[mark] ?? "")
    }
    return { read, written, input: this.#sum(blocks) - read - written, begun }
  }

  #sum(blocks: readonly Block[]): number {
    return blocks.reduce((sum, { text }) => sum + this.#weightOf(text), 0)
  }

  #weightOf(text: string): number {
    const known = this.#weights.get(text) ?? countTokens(text)
    this.#weights.set(text, known)
    return known
  }
}

const common = (blocks: readonly Block[], others: readonly Block[]): number => {
  const at = blocks.findIndex(({ text }, index) => text !== others[index]?.text)
  return at < 0 ? blocks.length : at
}

const blocksIn = (form: Form, { tools = [], system, messages = [] }: Body): Block[] => {
  if (form === "openai") return [...tools, ...messages].map(toBlock)
  const systems = Array.isArray(system) ? system : system === undefined ? [] : [system]
  const said = messages.flatMap(({ role, content }) =>
    (Array.isArray(content) ? content : [content]).map((part) => ({ role, ...(part as object) })),
  )
  return [...tools, ...systems, ...said].map(toBlock)
}

const toBlock = (value: unknown): Block => ({
  text: JSON.stringify(value, (key, each) => (key === "cache_control" ? undefined : each)),
  mark: typeof value === "object" && value !== null && "cache_control" in value,
})
