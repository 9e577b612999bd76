import type { Runtime } from "../../core/feature.ts"
import type { ModelFacts, OpencodeApi, Prices, Rule } from "../../core/ports.ts"
import type { Model, Task, TaskDraft } from "../../core/task.ts"
import { sliced } from "../../lib/clock.ts"
import { formatInteger, oneLine } from "../../lib/text.ts"
import type { ForkApi, HistoryMessage, WeighedMessages } from "./ports.ts"
import { digest, type PreambleFacts, paramsOf, preamble } from "./preamble.ts"
import { byteLength, estimate, type Meter, sum, weighMessage, weighText, wholeTokens, type Yield } from "./tokens.ts"
import { type CutResult, type TrimLimits, type Trimmed, trim } from "./trim.ts"

/** Share of a model's context that an inherited history may fill. */
const CONTEXT_SHARE = 0.6
/** Share of the limit that the digest may fill, and the digest's upper bound in tokens. */
const DIGEST_SHARE = 0.1
const DIGEST_TOKENS = 4000
/**
 * Longest text that is counted whole, in UTF-16 units. Counting a text of this length takes the counting thread one
 * second.
 */
const MOST_COUNTED_CHARS = 2_000_000
/** How many of the newest cut results the record names, and how many characters of each call. */
const MOST_NAMED = 20
const CALL_CHARS = 60

export type ForkRequest = {
  /** The task that is being created. Names the parent's message that called the tool. */
  readonly draft: TaskDraft
  readonly title: string
  readonly rules: readonly Rule[]
  readonly limits: TrimLimits
  /** Set if the fork should share the parent's request prefix. */
  readonly whole?: WholeRequest
}

export type WholeRequest = {
  /** `asked`: the call requested a whole fork. `cheaper`: the plugin may choose one by price. */
  readonly choice: "asked" | "cheaper"
  /** Exact copy of the parent's rules. */
  readonly rules: readonly Rule[]
  /** Tools that the model sees because the parent has them. The plugin refuses calls of them. */
  readonly refused: readonly string[]
  /** Session whose request prefix the fork shares, and whether that prefix includes the briefing of fresh agents. */
  readonly rides: string
  readonly briefed: boolean
}

/** `info` is stored in the record. */
type ForkInfo = NonNullable<Task["fork"]>

export type Forked = { readonly sessionID: string; readonly info: ForkInfo }

export type ForkPorts = Pick<Runtime, "models" | "isThread"> & {
  readonly forks: ForkApi
  readonly opencode: Pick<OpencodeApi, "prompt" | "deleteSession" | "messageID">
}

/**
 * Creates a forked task's session: the parent's history up to the calling message, trimmed, and the preamble. On
 * failure, rejects with an `OpencodeError` and deletes the new session; the parent's session is only read.
 */
export async function forkContext(ports: ForkPorts, request: ForkRequest): Promise<Forked> {
  const { forks, opencode } = ports
  const { draft, title } = request
  const { parentID, agent, model } = draft
  const { messages, tokens, rules, text, info } = await inheritance(ports, request)
  const inherited = { messages, tokens, draft: { ...draft, fork: info } }
  const sessionID = await forks.fork({ parentID, title, agent, model, rules, ...inherited })
  try {
    const id = [draft.id, draft.run.generation, draft.run.createdAt] as const
    const parts = [{ text, synthetic: true }]
    await opencode.prompt({
      sessionID,
      messageID: opencode.messageID("preamble", ...id),
      agent,
      model,
      noReply: true,
      parts,
    })
  } catch (error) {
    await opencode.deleteSession(sessionID).catch(() => {})
    throw error
  }
  return { sessionID, info }
}

/** `text`: the preamble's. */
type Inheritance = WeighedMessages & { readonly rules: readonly Rule[]; readonly text: string; readonly info: ForkInfo }

async function inheritance({ forks, models, isThread }: ForkPorts, request: ForkRequest): Promise<Inheritance> {
  const { draft, whole } = request
  const history = await forks.history(draft.parentID, draft.parentMessageID)
  const pause = sliced()
  if (!whole) return trimmed(models, request, history, pause)
  const uncut = await weighUncut(history, draft.model)
  const [why, prices] = await Promise.all([
    (await isThread?.(draft.parentID)) ? THREAD : wholeForkObstacle(models, draft, history, uncut),
    draft.model && models.prices(draft.model),
  ])
  if (whole.choice === "asked") {
    const problem = why ?? (await beginsDifferently(forks, request, whole, { messages: history, tokens: uncut.tokens }))
    if (problem === undefined) return uncutFork(history, uncut, whole, prices)
    const fork = await trimmed(models, request, history, pause)
    return { ...fork, info: { ...fork.info, why: problem } }
  }
  const fork = await trimmed(models, request, history, pause)
  const { tokens, before, isCacheReported } = uncut
  if (why !== undefined || !prices || !isCacheReported || !isCheaper(tokens, before + fork.info.tokens, prices))
    return fork
  if (await beginsDifferently(forks, request, whole, { messages: history, tokens })) return fork
  const wholeFork = uncutFork(history, uncut, whole, prices)
  return { ...wholeFork, info: { ...wholeFork.info, why: CHOSEN } }
}

/**
 * Returns why the fork's requests would not begin as the parent's do; undefined if they would, or if nothing is known.
 * Called last, because the comparison creates a session.
 */
async function beginsDifferently(
  forks: ForkApi,
  { draft, title }: ForkRequest,
  { rules, briefed }: WholeRequest,
  history: WeighedMessages,
): Promise<string | undefined> {
  const { parentID, agent, model } = draft
  const isAlike = await forks.beginsAlike?.({ parentID, title, agent, model, rules, draft }, history, briefed)
  return isAlike === false ? DIFFERS : undefined
}

const DIFFERS =
  "Another plugin changes the system prompt or the messages of this conversation, but not those of a fork of it, so little of it would be read from the cache: this fork is trimmed."
const THREAD =
  "The system prompt of a thread of the board has its task, which is no other session's: this fork is trimmed."
const CHOSEN = "Chosen as the cheaper way (option fork.whole)."

/** A fork with the whole history, as in the parent's last request. */
function uncutFork(
  messages: readonly HistoryMessage[],
  { tokens, isCacheReported }: UncutHistory,
  { rules, refused, rides, briefed }: WholeRequest,
  prices: Prices | undefined,
): Inheritance {
  const text = preamble({ kept: messages, dropped: [], cut: [], maxToolResultChars: 0, maxTokens: 0, refused })
  const known = isCacheReported === undefined ? undefined : prices
  const info: ForkInfo = {
    messages: messages.length,
    tokens,
    droppedMessages: 0,
    cutResults: 0,
    whole: true,
    rides,
    ...(briefed && { briefed }),
    ...(known && { price: { cached: tokens * known.cached, anew: tokens * known.uncached } }),
  }
  return { messages, tokens, rules, text, info }
}

/** A fork whose history fits the limits: long results are cut, and oldest messages dropped. */
async function trimmed(
  models: ModelFacts,
  { draft: { model }, limits, rules }: ForkRequest,
  history: readonly HistoryMessage[],
  pause: Yield,
): Promise<Inheritance> {
  const maxTokens = await tokenLimit(models, limits.maxTokens, model)
  const { maxToolResultChars } = limits
  const digestTokens = Math.min(DIGEST_TOKENS, Math.floor(maxTokens * DIGEST_SHARE))
  const factsOf = (each: Trimmed): PreambleFacts => ({ ...each, maxToolResultChars, maxTokens })
  const fitted = await trim(
    history,
    { maxToolResultChars, maxTokens },
    { meter: counting(models), pause },
    async (each) => (await weighs(preamble(factsOf(each)), each)) + (each.dropped.length > 0 ? digestTokens : 0),
  )
  const { kept: messages, tokens, dropped } = fitted
  const left = dropped.length > 0 ? await digest(dropped, digestTokens, pause) : undefined
  const text = preamble(factsOf(fitted), left)
  return { messages, tokens, rules, text, info: infoOf(fitted, await weighs(text, fitted)) }
}

const weighs = async (text: string, { meter }: Trimmed): Promise<number> => wholeTokens(await weighText(text, meter))

/**
 * Meter that counts with the tokenizer if there is one, and estimates otherwise. A very long text is counted up to a
 * limit, and the count is scaled to the whole length.
 */
const counting =
  (models: ModelFacts): Meter =>
  async (texts) => {
    const beginnings = texts.map((text) => text.slice(0, MOST_COUNTED_CHARS))
    const counts = (await models.countTokens(beginnings)) ?? (await estimate(beginnings))
    return counts.map((count, index) => scaled(count, texts[index] ?? ""))
  }

/** A text has at most as many tokens as bytes, however many its beginning has. */
const scaled = (count: number, text: string): number =>
  text.length <= MOST_COUNTED_CHARS ? count : Math.min(byteLength(text), (count * text.length) / MOST_COUNTED_CHARS)

async function tokenLimit(models: ModelFacts, maxTokens: number, model: Model | undefined): Promise<number> {
  const context = model && (await models.contextLimit(model))
  return context ? Math.min(maxTokens, Math.floor(context * CONTEXT_SHARE)) : maxTokens
}

function infoOf({ kept, dropped, cut, tokens }: Trimmed, preambleTokens: number): ForkInfo {
  return {
    messages: kept.length,
    tokens: tokens + preambleTokens,
    droppedMessages: dropped.length,
    cutResults: cut.length,
    cuts: cut.length > 0 ? cut.slice(-MOST_NAMED).map(named) : undefined,
  }
}

const named = ({ tool, input, kept, of }: CutResult) => ({
  tool: oneLine(tool),
  call: oneLine(paramsOf(input), CALL_CHARS),
  kept,
  of,
})

/** Share of the model's context that an uncut history may fill. */
const ROOM_SHARE = 0.8
/** Assumed number of steps when prices are compared. */
const STEPS = 8

/** An uncut history. `tokens` includes system prompt and tools where the provider counted them. */
type UncutHistory = {
  readonly tokens: number
  /** Tokens before the messages: system prompt and tools. */
  readonly before: number
  /** Whether the provider reported its cache for the last counted step; absent if no step was counted. */
  readonly isCacheReported?: boolean
}

/**
 * Tokens of a request with these messages: the provider's count of the last step plus an estimate of later messages.
 * Without such a count, all messages are estimated.
 */
async function weighUncut(messages: readonly HistoryMessage[], model: Model | undefined): Promise<UncutHistory> {
  const last = messages.findLastIndex(({ counted }) => isOf(counted?.model, model))
  const counted = messages[last]?.counted
  const weights = await Promise.all(messages.map((message) => weighMessage(message, estimate)))
  const weigh = (some: typeof weights) => wholeTokens(sum(some))
  if (!counted) return { tokens: weigh(weights), before: 0 }
  const before = Math.max(0, counted.tokens - weigh(weights.slice(0, last)))
  return { tokens: counted.tokens + weigh(weights.slice(last)), before, isCacheReported: counted.cached > 0 }
}

const isOf = (one: Model | undefined, other: Model | undefined): boolean =>
  one !== undefined && one.provider === other?.provider && one.id === other.id

/** Sentence that says why a fork cannot share its parent's prefix; undefined if it can. */
async function wholeForkObstacle(
  models: Pick<ModelFacts, "compactionLimit">,
  { agent, model }: Pick<TaskDraft, "agent" | "model">,
  messages: readonly HistoryMessage[],
  { tokens }: UncutHistory,
): Promise<string | undefined> {
  const asked = messages.findLast(({ role }) => role === "user")?.asked
  if (asked?.own)
    return "The newest message here has a system prompt or tools of its own, which no other request has: this fork is trimmed."
  if (asked && (asked.agent !== agent || !isOf(asked.model, model) || asked.model.variant !== model?.variant))
    return "Agent or model have changed while you called: this fork is trimmed."
  const compactionLimit = model && (await models.compactionLimit(model))
  if (compactionLimit === undefined || tokens <= compactionLimit * ROOM_SHARE) return undefined
  return `The history, about ${formatInteger(tokens)} tokens, leaves the model too little room (${formatInteger(compactionLimit)}): this fork is trimmed.`
}

/**
 * Whether a whole fork, read from the cache in each step, costs less than a trimmed one. A trimmed fork is written to
 * the cache once and read in each step.
 */
export const isCheaper = (whole: number, trimmed: number, { cached, uncached: anew }: Prices): boolean =>
  STEPS * whole * cached < trimmed * anew + STEPS * trimmed * cached
