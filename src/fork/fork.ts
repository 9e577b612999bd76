import { messageID as derivedMessageID, partID as derivedPartID } from "../core/ids.ts"
import type { Rule } from "../core/ports.ts"
import type { ForkInfo, Model, TaskDraft, Usage } from "../core/task.ts"
import type { ForkHost } from "./ports.ts"
import { tokensOf, weighText } from "./tokens.ts"
import { preamble } from "./transcript.ts"
import { type Trimmed, trim } from "./trim.ts"

/** Part of a model's context that an inherited history may fill. */
const CONTEXT_SHARE = 0.6
/** Part of the limit that the preamble may fill, and its most, in tokens. */
const PREAMBLE_SHARE = 0.1
const PREAMBLE_TOKENS = 4000
/** How long the host's one thread is held at a time, in ms. */
const SLICE_MS = 4

type ForkLimits = { readonly maxTokens: number; readonly maxToolResultChars: number }

export type ForkRequest = {
  /** The task that is being made; its parent's message is the one that calls. */
  readonly draft: TaskDraft
  readonly title: string
  readonly rules: readonly Rule[]
  readonly limits: ForkLimits
}

export type Forked = {
  readonly sessionID: string
  readonly info: ForkInfo
  /** What the new session's usage starts with. The record is stored with it and with `info`. */
  readonly usageBefore: Usage
}

/**
 * Makes the session of a forked task: the parent's history up to the calling message, made to fit, and the preamble.
 * Rejects with a `HostError`; nothing is left behind then. The parent is only read.
 */
export async function forkContext(host: ForkHost, request: ForkRequest): Promise<Forked> {
  const { draft, title, rules, limits } = request
  const { parentID, parentMessageID: messageID, agent, model } = draft
  const [history, maxTokens] = await Promise.all([
    host.history(parentID, messageID),
    tokenLimit(host, limits.maxTokens, model),
  ])
  const reserve = Math.min(PREAMBLE_TOKENS, Math.floor(maxTokens * PREAMBLE_SHARE))
  const { maxToolResultChars } = limits
  const trimmed = await trim(history, { maxToolResultChars, maxTokens: maxTokens - reserve }, sliced(SLICE_MS))
  const text = preambleOf(trimmed, { maxToolResultChars, maxTokens, reserve })
  const info = infoOf(trimmed, text)
  const { sessionID, usageBefore } = await host.fork({
    parentID,
    messages: trimmed.kept,
    title,
    agent,
    model,
    rules,
    draft: { ...draft, fork: info },
  })
  try {
    const id = [draft.id, draft.run.generation, draft.run.createdAt] as const
    const [preambleID, partID] = [derivedMessageID("preamble", ...id), derivedPartID("preamble", ...id, 0)]
    await host.preamble({ sessionID, messageID: preambleID, partID, agent, model, text })
  } catch (error) {
    await host.deleteSession(sessionID).catch(() => {})
    throw error
  }
  return { sessionID, info, usageBefore }
}

async function tokenLimit(host: ForkHost, maxTokens: number, model: Model | undefined): Promise<number> {
  const context = model && (await host.contextLimit(model))
  return context ? Math.min(maxTokens, Math.floor(context * CONTEXT_SHARE)) : maxTokens
}

function preambleOf(
  { kept, dropped, cut, factor }: Trimmed,
  limits: { maxToolResultChars: number; maxTokens: number; reserve: number },
): string {
  const facts = { kept: kept.length, dropped, cut, ...limits }
  const frame = tokensOf(weighText(preamble(facts, 0, factor)), factor)
  return preamble(facts, Math.max(0, limits.reserve - frame), factor)
}

function infoOf({ kept, dropped, cut, tokens, factor }: Trimmed, text: string): ForkInfo {
  return {
    messages: kept.length,
    tokens: tokens + tokensOf(weighText(text), factor),
    droppedMessages: dropped.length,
    cutResults: cut.length,
  }
}

/** Lets others run whenever `ms` have gone by since they last did. */
function sliced(ms: number): () => Promise<void> {
  let since = performance.now()
  return async () => {
    if (performance.now() - since < ms) return
    await new Promise<void>((resolve) => setTimeout(resolve, 0))
    since = performance.now()
  }
}
