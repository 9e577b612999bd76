import type { Model, TaskDraft } from "../../core/task.ts"
import { grouped } from "../../lib/text.ts"
import type { ForkHost, HistoryMessage, Prices } from "./ports.ts"
import { loadOf, type Meter, sumWeights, tokensOf, weightOf } from "./tokens.ts"

/** How much of the room that a model has in its session a history may fill that nobody cuts. */
const ROOM_SHARE = 0.8
/** For how many steps a fork is taken to work where the cheaper way is looked for. */
const STEPS = 8

/** A history that a fork takes over uncut. `tokens` counts what stands before it, too, where the provider told of that. */
export type Uncut = {
  readonly tokens: number
  /** What of them stands before the messages: system prompt and tools. */
  readonly before: number
  /** Its provider told of its cache with the last step that has ended; absent where there is none. */
  readonly told?: boolean
}

/**
 * What the request weighs that these messages end. The provider's count of the last step that has ended, and a guess of
 * what came since; a guess of all of it where there is none.
 */
export async function weighUncut(
  messages: readonly HistoryMessage[],
  model: Model | undefined,
  guess: Meter,
): Promise<Uncut> {
  const last = messages.findLastIndex(({ counted }) => isOf(counted?.model, model))
  const counted = messages[last]?.counted
  const loads = messages.map(loadOf)
  const counts = await guess(loads.map(({ text }) => text))
  const weights = loads.map((load, index) => weightOf(load, counts[index] ?? 0))
  const weigh = (some: typeof weights) => tokensOf(sumWeights(some), 1)
  if (!counted) return { tokens: weigh(weights), before: 0 }
  const before = Math.max(0, counted.tokens - weigh(weights.slice(0, last)))
  return { tokens: counted.tokens + weigh(weights.slice(last)), before, told: counted.cached > 0 }
}

const isOf = (one: Model | undefined, other: Model | undefined): boolean =>
  one !== undefined && one.provider === other?.provider && one.id === other.id

/** Why a fork's requests could not begin with those of its parent, a sentence; undefined where they can. */
export async function obstacle(
  host: ForkHost,
  { agent, model }: Pick<TaskDraft, "agent" | "model">,
  messages: readonly HistoryMessage[],
  { tokens }: Uncut,
): Promise<string | undefined> {
  const asked = messages.findLast(({ role }) => role === "user")?.asked
  if (asked?.own)
    return "The newest message here has a system prompt or tools of its own, which no other request has: this fork is trimmed."
  if (asked && (asked.agent !== agent || !isOf(asked.model, model) || asked.model.variant !== model?.variant))
    return "Agent or model have changed while you called: this fork is trimmed."
  const room = model && (await host.room(model))
  if (room === undefined || tokens <= room * ROOM_SHARE) return undefined
  return `The history, about ${grouped(tokens)} tokens, leaves the model too little room (${grouped(room)}): this fork is trimmed.`
}

/**
 * Whether to ride on the cache is cheaper than a trimmed fork of so many tokens: that one is written once and read in
 * every step, as the whole history is.
 */
export const isCheaper = (whole: number, trimmed: number, { cached, anew }: Prices): boolean =>
  STEPS * whole * cached < trimmed * anew + STEPS * trimmed * cached
