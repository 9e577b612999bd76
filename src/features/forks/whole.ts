import type { ModelFacts, Prices } from "../../core/ports.ts"
import type { Model, TaskDraft } from "../../core/task.ts"
import { formatInteger } from "../../lib/text.ts"
import type { HistoryMessage } from "./ports.ts"
import { loadOf, type Meter, sumWeights, tokensOf, weightOf } from "./tokens.ts"

/** Share of the model's context that an uncut history may fill. */
const ROOM_SHARE = 0.8
/** Assumed number of steps when prices are compared. */
const STEPS = 8

/** An uncut history. `tokens` includes system prompt and tools where the provider counted them. */
export type UncutHistory = {
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
export async function weighUncut(
  messages: readonly HistoryMessage[],
  model: Model | undefined,
  guess: Meter,
): Promise<UncutHistory> {
  const last = messages.findLastIndex(({ counted }) => isOf(counted?.model, model))
  const counted = messages[last]?.counted
  const loads = messages.map(loadOf)
  const counts = await guess(loads.map(({ text }) => text))
  const weights = loads.map((load, index) => weightOf(load, counts[index] ?? 0))
  const weigh = (some: typeof weights) => tokensOf(sumWeights(some))
  if (!counted) return { tokens: weigh(weights), before: 0 }
  const before = Math.max(0, counted.tokens - weigh(weights.slice(0, last)))
  return { tokens: counted.tokens + weigh(weights.slice(last)), before, isCacheReported: counted.cached > 0 }
}

const isOf = (one: Model | undefined, other: Model | undefined): boolean =>
  one !== undefined && one.provider === other?.provider && one.id === other.id

/** Sentence that says why a fork cannot share its parent's prefix; undefined if it can. */
export async function wholeForkObstacle(
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
