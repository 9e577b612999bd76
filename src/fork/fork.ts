import { messageID, partID } from "../core/ids.ts"
import type { Host, Rule } from "../core/ports.ts"
import type { ForkInfo, Model, TaskDraft } from "../core/task.ts"
import { oneLine } from "../lib/text.ts"
import type { CutResult } from "./cut.ts"
import { digest, paramsOf } from "./digest.ts"
import type { ForkHost } from "./ports.ts"
import { type PreambleFacts, preamble } from "./preamble.ts"
import { estimating, type Meter, type Pause, tokensOf, weighText } from "./tokens.ts"
import { type Trimmed, trim } from "./trim.ts"

/** Part of a model's context that an inherited history may fill. */
const CONTEXT_SHARE = 0.6
/** Part of the limit that the digest of what went may fill, and its most, in tokens. */
const DIGEST_SHARE = 0.1
const DIGEST_TOKENS = 4000
/** How long the host's one thread is held at a time, in ms. */
const SLICE_MS = 4
/** Longest text that is counted whole, in UTF-16 units: a second's work of the counting thread. */
const MOST_COUNTED_CHARS = 2_000_000
/** How many of the cut results are named, the newest of them, and how much of each call, in characters. */
const MOST_NAMED = 20
const CALL_CHARS = 60

type ForkLimits = { readonly maxTokens: number; readonly maxToolResultChars: number }

export type ForkRequest = {
  /** The task that is being made; its parent's message is the one that calls. */
  readonly draft: TaskDraft
  readonly title: string
  readonly rules: readonly Rule[]
  readonly limits: ForkLimits
}

/** `info` is stored in the record. */
export type Forked = { readonly sessionID: string; readonly info: ForkInfo }

export type ForkPorts = { readonly forks: ForkHost; readonly host: Pick<Host, "prompt" | "deleteSession"> }

/**
 * Makes the session of a forked task: the parent's history up to the calling message, made to fit, and the preamble.
 * Rejects with a `HostError`; nothing is left behind then. The parent is only read.
 */
export async function forkContext({ forks, host }: ForkPorts, request: ForkRequest): Promise<Forked> {
  const { draft, title, rules } = request
  const { parentID, agent, model } = draft
  const { trimmed, text, info } = await inheritance(forks, request)
  const { kept: messages, tokens } = trimmed
  const inherited = { messages, tokens, draft: { ...draft, fork: info } }
  const sessionID = await forks.fork({ parentID, title, agent, model, rules, ...inherited })
  try {
    const id = [draft.id, draft.run.generation, draft.run.createdAt] as const
    const parts = [{ id: partID("preamble", ...id, 0), text, synthetic: true }]
    await host.prompt({ sessionID, messageID: messageID("preamble", ...id), agent, model, noReply: true, parts })
  } catch (error) {
    await host.deleteSession(sessionID).catch(() => {})
    throw error
  }
  return { sessionID, info }
}

/** What the fork gets: the history as it is kept, and the preamble's text. */
async function inheritance(
  host: ForkHost,
  { draft, limits }: ForkRequest,
): Promise<{ trimmed: Trimmed; text: string; info: ForkInfo }> {
  const { parentID, parentMessageID, model } = draft
  const [history, maxTokens] = await Promise.all([
    host.history(parentID, parentMessageID),
    tokenLimit(host, limits.maxTokens, model),
  ])
  const { maxToolResultChars } = limits
  const pause = sliced(SLICE_MS)
  const digestTokens = Math.min(DIGEST_TOKENS, Math.floor(maxTokens * DIGEST_SHARE))
  const factsOf = (trimmed: Trimmed): PreambleFacts => ({ ...trimmed, maxToolResultChars, maxTokens })
  const trimmed = await trim(
    history,
    { maxToolResultChars, maxTokens },
    { meter: counting(host, pause), model, pause },
    async (each) => (await weighs(preamble(factsOf(each)), each)) + (each.dropped.length > 0 ? digestTokens : 0),
  )
  const { dropped, factor } = trimmed
  const left = dropped.length > 0 ? await digest(dropped, digestTokens, factor, pause) : undefined
  const text = preamble(factsOf(trimmed), left)
  return { trimmed, text, info: infoOf(trimmed, await weighs(text, trimmed)) }
}

const weighs = async (text: string, { meter, factor }: Trimmed): Promise<number> =>
  tokensOf(await weighText(text, meter), factor)

/** Counts where the host can, and guesses where it cannot. A text beyond all measure is counted by its beginning. */
function counting(host: ForkHost, pause: Pause): Meter {
  const guess = estimating(pause)
  return async (texts) => {
    const beginnings = texts.map((text) => text.slice(0, MOST_COUNTED_CHARS))
    const counts = (await host.countTokens(beginnings)) ?? (await guess(beginnings))
    return counts.map(
      (count, index) => (count * (texts[index]?.length ?? 0)) / Math.max(1, beginnings[index]?.length ?? 0),
    )
  }
}

async function tokenLimit(host: ForkHost, maxTokens: number, model: Model | undefined): Promise<number> {
  const context = model && (await host.contextLimit(model))
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

/** Lets others run whenever `ms` have gone by since they last did. */
function sliced(ms: number): Pause {
  let since = performance.now()
  return async () => {
    if (performance.now() - since < ms) return
    await new Promise<void>((resolve) => setTimeout(resolve, 0))
    since = performance.now()
  }
}
