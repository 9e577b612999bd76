import { isDeepStrictEqual } from "node:util"
import type { AssistantMessage, Part, UserMessage } from "@opencode-ai/sdk/v2/types"
import { errorOf, toUsage } from "../../../opencode/convert.ts"
import type { StoredMessage } from "../../../opencode/messages.ts"
import type { HistoryMessage, HistoryPart, Media, MessageSettings, ProviderCount, ToolHistoryPart } from "../ports.ts"

/** OpenCode's text to the model for a subtask that ran for the user. */
const SUBTASK = "The following tool was executed by the user"
/** OpenCode's text to the model for a pruned result. */
const PRUNED = "[Old tool result content cleared]"
const INTERRUPTED = "[Tool execution was interrupted]"

/** Tool settings of messages without settings of their own. */
export type DefaultTools = Readonly<Record<string, boolean>>

/**
 * Messages that the model sees, oldest first. After a compaction only the kept tail and later messages are left; here
 * the tail stands before the compaction and may begin within a turn.
 */
export function history(messages: readonly StoredMessage[], usual: DefaultTools = {}): readonly HistoryMessage[] {
  const summaries = new Set(messages.filter(isSummary).map(({ info }) => (info as { parentID: string }).parentID))
  const at = messages.findLastIndex(({ info, parts }) => summaries.has(info.id) && parts.some(isCompaction))
  if (at < 0) return messages.map((stored) => toHistoryMessage(stored, usual))
  const tailID = messages[at]?.parts.find(isCompaction)?.tail_start_id
  const tail = tailID === undefined ? -1 : messages.findIndex(({ info }) => info.id === tailID)
  const start = tail >= 0 && tail < at ? tail : at
  const summary = messages.findLastIndex(isSummary)
  return messages.slice(start).map((stored, index) => {
    const { counted, ...message } = toHistoryMessage(stored, usual)
    if (start + index === at) return { ...message, opens: true }
    // Token counts from before the summary are left out: they include messages that the model no longer sees.
    return start + index <= summary ? message : { ...message, counted }
  })
}

type Compaction = Extract<Part, { type: "compaction" }>

const isCompaction = (part: Part): part is Compaction => part.type === "compaction"

const isSummary = ({ info }: StoredMessage): boolean =>
  info.role === "assistant" && info.summary === true && Boolean(info.finish) && !info.error

export function toHistoryMessage(stored: StoredMessage, usual: DefaultTools = {}): HistoryMessage {
  const { info } = stored
  const parts = isHidden(stored) ? [] : stored.parts.map(toHistoryPart)
  if (info.role === "user") {
    const asked = toAsked(stored.parts.some(isByOpencode) ? { ...info, tools: usual } : info, usual)
    return { id: info.id, role: "user", asked, parts, handle: stored }
  }
  return { id: info.id, role: "assistant", counted: providerCount(info), parts, handle: stored }
}

/**
 * Whether OpenCode wrote this message to continue after a compaction. Such a message has no tool settings, so the usual
 * ones apply.
 */
const isByOpencode = (part: Part): boolean => part.type === "text" && part.metadata?.compaction_continue === true

/** Settings of a user's message; undefined for an old message without a model. */
function toAsked(
  { agent, model, system, tools, format }: Omit<UserMessage, "model"> & Partial<UserMessage>,
  usual: DefaultTools,
): MessageSettings | undefined {
  if (!model) return undefined
  const { providerID: provider, modelID: id, variant } = model
  const own = Boolean(system) || format?.type === "json_schema" || !isDeepStrictEqual({ ...tools }, usual)
  return { agent, model: { provider, id, variant }, own }
}

/** Undefined where nothing was counted. Copies in a fork have no output of their own, so they count as not counted. */
function providerCount(info: AssistantMessage): ProviderCount | undefined {
  const { input, output, cacheRead, cacheWrite } = toUsage(info.tokens, 0)
  const cached = cacheRead + cacheWrite
  const tokens = input + cached
  if (tokens === 0 || output === 0) return undefined
  return { model: { provider: info.providerID, id: info.modelID }, tokens, cached }
}

/** Whether the model does not see a message: failed answers are hidden, except aborted ones with content. */
function isHidden({ info, parts }: StoredMessage): boolean {
  if (info.role !== "assistant" || !info.error) return false
  const { aborted } = errorOf({ name: info.error.name, message: "" })
  return !(aborted && parts.some(({ type }) => type !== "step-start" && type !== "reasoning"))
}

function toHistoryPart(part: Part): HistoryPart {
  if (part.type === "text" && !part.ignored) return { type: "text", text: part.text, handle: part }
  if (part.type === "reasoning") return { type: "reasoning", text: part.text, handle: part }
  if (part.type === "file") return toFile(part)
  if (part.type === "tool") return toTool(part)
  if (part.type === "subtask") return { type: "text", text: SUBTASK, handle: part }
  return { type: "other", handle: part }
}

function toFile(part: Extract<Part, { type: "file" }>): HistoryPart {
  // For these types, another text part of the message holds the file's text.
  if (part.mime === "text/plain" || part.mime === "application/x-directory") return { type: "other", handle: part }
  return { type: "file", name: part.filename ?? "file", media: toMedia(part), handle: part }
}

function toTool(part: Extract<Part, { type: "tool" }>): ToolHistoryPart {
  const { callID, tool, state } = part
  const shared = { type: "tool" as const, callID, tool, input: state.input, state: state.status, handle: part }
  if (state.status === "completed") {
    const { sessionId: childID } = state.metadata ?? {}
    const child = typeof childID === "string" ? { childID } : {}
    if (state.time.compacted) return { ...shared, ...child, result: PRUNED, media: [] }
    return { ...shared, ...child, result: state.output, media: (state.attachments ?? []).map(toMedia) }
  }
  if (state.status !== "error") return { ...shared, result: INTERRUPTED, media: [] }
  return { ...shared, result: partialOutput(state.metadata) ?? state.error, media: [] }
}

/** Output that an interrupted call had before it stopped. The model sees this output in place of the error. */
const partialOutput = (metadata: Record<string, unknown> | undefined): string | undefined =>
  metadata?.interrupted === true && typeof metadata.output === "string" ? metadata.output : undefined

const toMedia = ({ mime, url }: { mime: string; url: string }): Media => ({ mime, bytes: url.length })

/**
 * Converts a history part, perhaps rewritten, to OpenCode's part; undefined for a part that a copy does not need.
 * `answered`: the copy has the summary for the message's compaction.
 */
export function fromHistoryPart(part: HistoryPart, answered: boolean): Part | undefined {
  const stored = part.handle as Part
  switch (part.type) {
    case "text":
      return withText(stored, part.text)
    case "tool":
      return withResult(stored as Extract<Part, { type: "tool" }>, part.result)
    case "other":
      return copied(stored, answered)
    default:
      return stored
  }
}

/** Whether the messages include the summary for this compaction request. */
export const isAnswered = (message: HistoryMessage, messages: readonly HistoryMessage[]): boolean =>
  message.parts.some((part) => part.type === "other" && isCompaction(part.handle as Part)) &&
  messages.some(({ handle }) => {
    const { info } = handle as StoredMessage
    return info.role === "assistant" && info.parentID === message.id && info.summary === true
  })

/** Whether a compaction kept a tail. In a copy, this tail begins with the first message. */
export const keepsTail = (part: Part): part is Compaction => isCompaction(part) && Boolean(part.tail_start_id)

/** Parts that are not copied. The figures of a step would count as the fork's cost. */
const NOT_COPIED: ReadonlySet<string> = new Set(["step-start", "step-finish", "patch", "snapshot"])

function copied(part: Part, answered: boolean): Part | undefined {
  if (part.type === "compaction") return answered ? part : undefined
  return NOT_COPIED.has(part.type) ? undefined : part
}

/** Replaces a subtask's part by the text that the model sees, because a copied subtask would run again. */
function withText(part: Part, text: string): Part {
  if (part.type === "text") return part.text === text ? part : { ...part, text }
  const { id, sessionID, messageID } = part
  return { id, sessionID, messageID, type: "text", text, synthetic: true }
}

function withResult(part: Extract<Part, { type: "tool" }>, result: string): Part {
  const { state } = part
  if (state.status === "completed" && !state.time.compacted && state.output !== result)
    return { ...part, state: { ...state, output: result } }
  if (state.status !== "error") return part
  if (partialOutput(state.metadata) !== undefined)
    return { ...part, state: { ...state, metadata: { ...state.metadata, output: result } } }
  return state.error === result ? part : { ...part, state: { ...state, error: result } }
}
