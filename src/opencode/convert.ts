import { createHash } from "node:crypto"
import { normalize } from "node:path"
import type { Agent, Part, Message as SdkMessage, ToolPart } from "@opencode-ai/sdk/v2/types"
import type { Refusal } from "../core/pause.ts"
import type { AgentInfo, AnswerError, EndedCall, Finish, Message, MessagePart } from "../core/ports.ts"
import { ranOf } from "../core/receipts/command.ts"
import type { Model, Usage } from "../core/task.ts"
import { head, oneLine, tail } from "../lib/text.ts"

/** The model of a new session, as OpenCode takes it. */
export const sessionModel = (model: Model | undefined) =>
  model && { providerID: model.provider, id: model.id, variant: model.variant }

/** The fields of a prompt that name its model, as OpenCode takes them. */
export const promptModel = (model: Model | undefined) =>
  model && { model: { providerID: model.provider, modelID: model.id }, variant: model.variant }

/** Translates OpenCode's terms for the end of a message into the core's. No other file knows OpenCode's terms. */

const FINISHES: ReadonlyMap<string, Finish> = new Map([
  ["stop", "done"],
  ["length", "cut short"],
  ["tool-calls", "called"],
  ["unknown", "unknown"],
])

export const finishOf = (finish: string): Finish => FINISHES.get(finish) ?? `other: ${finish}`

/** Error of a turn that was aborted. */
const ABORTED = "MessageAbortedError"

/** Text of the error after a user has refused a question about the turn itself, such as `doom_loop`. */
const REFUSED = /^The user rejected permission/

export const errorOf = ({ name, message }: { readonly name: string; readonly message: string }): AnswerError => ({
  message,
  ...(name === ABORTED && { aborted: true }),
  ...(REFUSED.test(message) && { refused: true }),
})

/**
 * How a message ended. After a tool call whose result goes to the model, OpenCode continues, whatever the provider
 * reports.
 */
export const finishIn = (finish: string, parts: readonly MessagePart[]): Finish =>
  parts.some((part) => part.type === "tool" && !part.final) ? "called" : finishOf(finish)

type Call = Extract<MessagePart, { type: "tool" }>

export const callDigest = (tool: string, input: unknown, result: string): string =>
  createHash("sha1")
    .update(`${tool}\0${JSON.stringify(input)}\0${result}`)
    .digest("base64")

type CallEnd = {
  readonly input?: unknown
  readonly output?: unknown
  readonly error?: unknown
  /** Pictures, as data URLs. */
  readonly attachments?: unknown
  readonly time?: { readonly start?: number; readonly end?: number }
}

/** Enough of a picture: where two of one length differ, so do their ends. */
const MOST_PICTURE_CHARS = 10_000

/** Digest and duration of a call that has ended; undefined for any other call. */
export function endedCall(tool: string, { input, output, error, attachments, time }: CallEnd): EndedCall | undefined {
  const result = output ?? error
  if (typeof result !== "string" || time?.start === undefined || time.end === undefined) return undefined
  const pictures = Array.isArray(attachments) ? attachments.map((each) => String(each?.url)) : []
  const whole = [result, ...pictures.map((url) => `${url.length} ${url.slice(-MOST_PICTURE_CHARS)}`)].join("\0")
  return { digest: callDigest(tool, input, whole), ms: time.end - time.start }
}

/** Makes a tool call for the core. `refused`: a user refused the call without a message, and this ends the turn. */
export function callOf({
  tool,
  refused,
  final = false,
  ...call
}: Pick<Call, "callID" | "tool" | "state"> & { refused: boolean; final?: boolean }): Call {
  return {
    type: "tool",
    ...call,
    tool,
    refused: refused && (tool === "question" ? "question" : "permission"),
    ...(tool === "todowrite" && { keepsTodos: true }),
    ...(final && { final: true }),
  }
}

/** OpenCode's own tool for launching agents, which has this name. */
export const LAUNCHING_TOOL = "task"

/** A count or an amount. Anything else counts as 0: negative figures would give budget back, and no limit stops NaN. */
export const figureOf = (given: unknown): number =>
  typeof given === "number" && Number.isFinite(given) && given > 0 ? given : 0

/** Usage from OpenCode's fields. */
export function toUsage(tokens: unknown, cost: unknown): Usage {
  const { input, output, reasoning, cache } = (tokens ?? {}) as Record<string, unknown>
  const { read, write } = (cache ?? {}) as Record<string, unknown>
  return {
    input: figureOf(input),
    output: figureOf(output),
    reasoning: figureOf(reasoning),
    cacheRead: figureOf(read),
    cacheWrite: figureOf(write),
    cost: figureOf(cost),
  }
}

/** Name and message of OpenCode's error objects, `{name, data: {message}}`; anything else as text. */
export function toError(error: unknown): { name: string; message: string } {
  if (typeof error !== "object" || error === null) return { name: "Error", message: String(error ?? "unknown error") }
  const { name, message, data } = error as { name?: unknown; message?: unknown; data?: { message?: unknown } }
  const text = [data?.message, message, name].find((candidate) => typeof candidate === "string" && candidate !== "")
  return { name: typeof name === "string" ? name : "Error", message: errorLine(String(text ?? "unknown error")) }
}

/** Provider's answer in a refusal error. Header names are lower case. */
export function refusalIn(error: unknown): { readonly refusal?: Pick<Refusal, "status" | "headers" | "body"> } {
  const { data } = (error ?? {}) as { data?: Partial<ApiErrorData> }
  const { statusCode: status, responseHeaders: headers, responseBody: body } = data ?? {}
  if (typeof status !== "number") return {}
  return { refusal: { status, ...(headers && { headers }), ...(typeof body === "string" && { body }) } }
}

type ApiErrorData = { statusCode: number; responseHeaders: Record<string, string>; responseBody: string }

/** Longest message of a provider that is kept. */
const MOST_ERROR_CHARS = 2000

/**
 * An error's text without the stack trace. Providers give times at the end of a message, so it is cut only if very
 * long.
 */
export const errorLine = (text: string): string => oneLine(text.split("\n    at ")[0] ?? "", MOST_ERROR_CHARS)

export function toMessage({ info, parts }: { info: SdkMessage; parts: readonly Part[] }): Message {
  return toCoreMessage(
    info,
    parts.flatMap((part) => toParts(part, info)),
  )
}

export function toCoreMessage(info: SdkMessage, parts: readonly MessagePart[]): Message {
  const shared = { id: info.id, createdAt: info.time.created, parts }
  if (info.role === "user") return { ...shared, role: "user", summary: false }
  return {
    ...shared,
    role: "assistant",
    parentID: info.parentID,
    completedAt: info.time.completed,
    finish: info.finish === undefined ? undefined : finishIn(info.finish, parts),
    error: info.error && errorOf(toError(info.error)),
    usage: toUsage(info.tokens, info.cost),
    summary: info.summary === true,
  }
}

/** Tools that write the one file named in their input. */
const WRITING_TOOLS = new Set(["write", "edit", "multiedit"])
/** Tool that can write several files. Their names are in its metadata. */
const PATCHING_TOOL = "apply_patch"

/** Converts a part for the core. Empty for types that the core does not read. */
export function toParts(part: Part, message: SdkMessage): readonly MessagePart[] {
  const directory = message.role === "assistant" ? message.path.cwd : ""
  if (part.type === "text") return [textOf(part)]
  if (part.type === "reasoning") return [{ type: "reasoning", text: tail(part.text, MOST_THOUGHT_CHARS) }]
  if (part.type === "compaction") return [{ type: "compaction", ...(!part.auto && { byUser: true as const }) }]
  // Such a part exists only with snapshots. It lists files that anybody changed below the folder during the step.
  if (part.type === "patch")
    return [{ type: "files", own: false, paths: part.files.map((file) => below(directory, file)) }]
  if (part.type !== "tool") return []
  const { callID, tool, state } = part
  const refused = state.status === "error" && isRefusal(state.error)
  const paths = writtenBy(part).map((file) => below(directory, file))
  const files = paths.length > 0 ? [{ type: "files" as const, own: true, paths }] : []
  const call = endedCall(tool, state)
  const made = callOf({ callID, tool, state: state.status, refused, final: isFinal(part) })
  return [{ ...made, ...byProviderIn(part), ...(call && { call }) }, ...files, ...commandOf(part)]
}

/** Enough characters to show the model's last thoughts. */
const MOST_THOUGHT_CHARS = 1000

const textOf = ({ text, synthetic, metadata }: Extract<Part, { type: "text" }>): MessagePart => ({
  type: "text",
  text,
  synthetic: synthetic === true,
  ...(metadata?.compaction_continue === true && { continues: true as const }),
  ...(synthetic === true && text === BY_SHELL && { shell: true as const }),
})

/** Text of the user message that OpenCode stores before a shell command of the user. */
export const BY_SHELL = "The following tool was executed by the user"

/** Mark of a call that the provider runs; undefined for any other call. */
export const byProviderIn = ({ metadata }: { readonly metadata?: { readonly providerExecuted?: unknown } }) =>
  metadata?.providerExecuted ? { byProvider: true as const } : undefined

/**
 * Whether OpenCode's loop does not call the model again because of this tool call. After any other tool call it does.
 */
const isFinal = ({ metadata, state }: ToolPart): boolean =>
  byProviderIn({ metadata }) !== undefined || (state.status === "error" && state.metadata?.interrupted === true)

/** Whether OpenCode calls the model again after this part, whatever the provider's finish reason is. */
export const asksAgain = (part: Part): boolean => part.type === "tool" && !isFinal(part)

/** Files that a call edited or wrote. */
function writtenBy({ tool, state }: ToolPart): readonly string[] {
  if (state.status !== "completed") return []
  const { files } = (state.metadata ?? {}) as { files?: unknown }
  const found = WRITING_TOOLS.has(tool) ? [state.input?.filePath] : []
  if (tool === PATCHING_TOOL && Array.isArray(files))
    found.push(...files.flatMap((each) => [each?.filePath, each?.movePath]))
  return found.filter((file) => typeof file === "string")
}

type StoredCall = { readonly status?: string; readonly input?: unknown; readonly metadata?: unknown }

/** Files that existed before a tool call and that the call has changed. */
export function changedBy(tool: string, { status, input, metadata }: StoredCall): readonly string[] {
  if (status !== "completed") return []
  const { files, exists } = (metadata ?? {}) as {
    files?: readonly { type?: string; filePath?: string }[]
    exists?: boolean
  }
  if (tool === PATCHING_TOOL && Array.isArray(files))
    return files.flatMap(({ type, filePath }) => (type === "add" || !filePath ? [] : [filePath]))
  const { filePath } = (input ?? {}) as { filePath?: string }
  return WRITING_TOOLS.has(tool) && exists !== false && filePath ? [filePath] : []
}

/** OpenCode's shell tool. OpenCode cuts long output; test reports are at the end of an output. */
const SHELL = "bash"

/** The command of a shell call that has ended. Empty where the call was refused or never began. */
function commandOf({ tool, state }: ToolPart): readonly MessagePart[] {
  if (tool !== SHELL || (state.status !== "completed" && state.status !== "error")) return []
  const command = state.input?.command
  if (typeof command !== "string") return []
  if (state.status === "error") return isCutOff(state.error) ? [{ type: "command", command }] : []
  const exit = state.metadata?.exit
  return [{ type: "command", ...ranOf(command, typeof exit === "number" ? exit : undefined, state.output ?? "") }]
}

const isCutOff = (error: string): boolean => /aborted/i.test(error)

/** Path of a file relative to `directory` if the file is inside. On one line, because names may contain line breaks. */
function below(directory: string, given: string): string {
  const file = normalize(given)
  const inside = directory !== "" && file.startsWith(`${directory}/`)
  return oneLine(inside ? file.slice(directory.length + 1) : file, MOST_PATH_CHARS)
}

const MOST_PATH_CHARS = 400

/** Whether a user refused the call without a message. After a refusal with a message, the agent goes on. */
const isRefusal = (error: string): boolean =>
  /rejected permission(?!.*with the following feedback)|dismissed this question/i.test(head(error, MOST_ERROR_CHARS))

/** Whether the rule allows or denies OpenCode's own `task` tool for a single agent. */
export const picksAgent = ({
  permission,
  pattern,
}: {
  readonly permission: string
  readonly pattern: string
}): boolean => permission === LAUNCHING_TOOL && pattern !== "*"

export function toAgent(agent: Agent): AgentInfo {
  return {
    name: agent.name,
    description: agent.description ?? "",
    mode: agent.mode,
    hidden: agent.hidden,
    // OpenCode returns `null` for no variant, and does not accept it.
    model: agent.model && {
      provider: agent.model.providerID,
      id: agent.model.modelID,
      variant: agent.variant ?? undefined,
    },
  }
}
