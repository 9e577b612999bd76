import type { CallState, OpencodeEvent, Undone } from "../core/ports.ts"
import type { Ask } from "../core/task.ts"
import { addBounded } from "../lib/collections.ts"
import { filesOf } from "../lib/repository.ts"
import { oneLine } from "../lib/text.ts"
import { decodeRequest } from "../runtime/record/codec.ts"
import {
  BY_SHELL,
  byProviderIn,
  changedBy,
  endedCall,
  errorLine,
  errorOf,
  finishOf,
  refusalIn,
  toError,
  toUsage,
} from "./convert.ts"

type Asked = { readonly id: string; readonly sessionID: string }

export const permissionAsk = (
  { id, sessionID, permission, patterns }: Asked & { permission?: string; patterns?: readonly string[] },
  askedAt: number,
): Ask => {
  const doing = doingOf(permission, patterns)
  const what = describePermission(permission, patterns)
  return { id, sessionID, kind: "permission", what, ...(doing && { doing }), askedAt }
}

export const questionAsk = (
  { id, sessionID, questions }: Asked & { questions?: readonly { question?: string }[] },
  askedAt: number,
): Ask => ({ id, sessionID, kind: "question", what: describeQuestion(questions), askedAt })

const named = (patterns: readonly string[] = []): string => patterns.filter((pattern) => pattern !== "*").join(", ")

/** Example: `bash: rm -rf build`. */
function describePermission(permission = "a permission", patterns?: readonly string[]): string {
  const what = named(patterns)
  return oneLine(what === "" ? permission : `${permission}: ${what}`)
}

/** Descriptions of OpenCode's permissions. */
const DOING: Readonly<Record<string, string>> = {
  __proto__: null as never,
  read: "reading",
  edit: "editing",
  bash: "running",
  webfetch: "fetching",
  external_directory: "using",
  doom_loop: "the same call three times in a row of",
}

/** Example: `reading /x`. */
function doingOf(permission = "", patterns?: readonly string[]): string | undefined {
  const [verb, what] = [DOING[permission], named(patterns)]
  return verb && what !== "" ? oneLine(`${verb} ${what}`) : undefined
}

const describeQuestion = (questions: readonly { question?: string }[] = []): string =>
  oneLine(questions.flatMap(({ question }) => question ?? []).join(" / ") || "a question")

/** Event from OpenCode's `event` hook; only the type is trusted. */
export type RawEvent = { readonly type: string; readonly properties: unknown }

/** Most open reasoning parts that are kept. Each working session has at most one. */
const MOST_THOUGHTS = 256

/** Most shell commands of users that are kept. A session runs one at a time. */
const MOST_SHELLS = 64

/**
 * Converts OpenCode's events; undefined for an event that the plugin does not need. Runs for every event, so the type
 * is checked before anything else.
 */
export class EventReader {
  /**
   * Ids of open reasoning parts. They are needed because an event with new text does not say whether its part is
   * reasoning.
   */
  readonly #thoughts = new Map<string, true>()

  /** Messages with shell commands of users, by the message that OpenCode writes before each; "" until that is heard. */
  readonly #shells = new Map<string, string>()

  read(event: RawEvent, now: number): OpencodeEvent | undefined {
    const convert = CONVERTERS[event.type]
    if (!convert) return undefined
    try {
      const properties = (event.properties ?? {}) as Properties
      return this.#isByShell(properties) ? undefined : convert(properties, now, this.#thoughts)
    } catch {
      // An event is only a hint, so an event with unknown contents is ignored.
      return undefined
    }
  }

  /** Whether a call is a shell command of the session's user. The message with it is the first after the one before it. */
  #isByShell({ info, part }: Properties): boolean {
    const { type, messageID, text, synthetic } = part ?? {}
    if (messageID && type === "text" && synthetic && text === BY_SHELL && !this.#shells.has(messageID))
      addBounded(this.#shells, messageID, "", MOST_SHELLS)
    if (info?.id && info.parentID && this.#shells.get(info.parentID) === "") this.#shells.set(info.parentID, info.id)
    return type === "tool" && messageID !== undefined && [...this.#shells.values()].includes(messageID)
  }
}

/** Known fields of OpenCode's events; any may be absent. */
type Properties = {
  sessionID?: string
  id?: string
  requestID?: string
  messageID?: string
  partID?: string
  field?: string
  delta?: string
  info?: Info
  part?: Part
  status?: { type?: string; attempt?: number; message?: string; next?: number }
  error?: unknown
  permission?: string
  patterns?: readonly string[]
  questions?: readonly { question?: string }[]
}
type Info = {
  id?: string
  parentID?: string
  sessionID?: string
  role?: string
  finish?: string
  providerID?: string
  modelID?: string
  summary?: unknown
  error?: unknown
  tokens?: unknown
  cost?: number
  metadata?: unknown
  revert?: { messageID?: string; snapshot?: string; diff?: string }
}
type Part = {
  id?: string
  type?: string
  sessionID?: string
  messageID?: string
  callID?: string
  tool?: string
  text?: string
  synthetic?: boolean
  time?: unknown
  state?: State
  metadata?: { providerExecuted?: unknown }
}

type State = {
  status?: string
  input?: unknown
  output?: unknown
  error?: unknown
  metadata?: unknown
  time?: { start?: number; end?: number }
}

type Convert = (properties: Properties, now: number, thoughts: Map<string, true>) => OpencodeEvent | undefined

const CONVERTERS: Readonly<Record<string, Convert>> = {
  __proto__: null as never,
  "session.created": ({ info }) =>
    info?.id ? { type: "created", sessionID: info.id, parentID: info.parentID } : undefined,
  "session.deleted": ({ info }) => (info?.id ? { type: "deleted", sessionID: info.id } : undefined),
  "session.updated": ({ info }) =>
    info?.id
      ? {
          type: "updated",
          sessionID: info.id,
          request: decodeRequest(info.metadata),
          ...(info.revert?.messageID && { undone: undoneIn(info.revert.messageID, info.revert) }),
        }
      : undefined,
  "session.idle": ({ sessionID }) => (sessionID ? { type: "idle", sessionID } : undefined),
  "session.status": ({ sessionID, status }) => {
    if (!sessionID || !status) return undefined
    if (status.type === "busy") return { type: "active", sessionID, activity: { type: "busy" } }
    if (status.type !== "retry") return undefined
    const { attempt = 0, message = "", next } = status
    return { type: "active", sessionID, activity: { type: "retry", attempt, message: errorLine(message), next } }
  },
  "session.error": ({ sessionID, error }) =>
    sessionID ? { type: "error", sessionID, error: errorOf(toError(error)), ...refusalIn(error) } : undefined,
  "message.updated": ({ info }) => {
    if (info?.role !== "assistant" || !isWord(info.finish) || !info.id || !info.sessionID) return undefined
    return {
      type: "answered",
      sessionID: info.sessionID,
      messageID: info.id,
      usage: toUsage(info.tokens, info.cost),
      finish: finishOf(info.finish),
      ...(info.providerID && info.modelID && { model: { provider: info.providerID, id: info.modelID } }),
      ...(info.summary === true && { summary: true }),
    }
  },
  "message.part.updated": ({ part }, _now, thoughts) => {
    if (!part?.sessionID || !part.messageID) return undefined
    const { sessionID, messageID } = part
    if (part.type === "tool" && part.callID && part.tool) {
      const { callID, tool, state: stored = {} } = part
      const state = stateOf(stored)
      const call = state === "ended" ? endedCall(tool, stored) : undefined
      const changed = changedBy(tool, stored)
      return {
        ...{ type: "tool", sessionID, messageID, callID, tool, state },
        ...(call && { call }),
        ...byProviderIn(part),
        ...(changed.length > 0 && { changed }),
      }
    }
    if (part.type === "step-start") return { type: "began", sessionID }
    if (part.type === "reasoning" && part.id) {
      addBounded(thoughts, part.id, true, MOST_THOUGHTS)
      return { type: "thinking", sessionID }
    }
    // Parts of user messages have no time, so they are left out here.
    if (part.type !== "text" || !part.id || !part.time) return undefined
    return { type: "text", sessionID, messageID, partID: part.id, text: part.text ?? "" }
  },
  "message.part.delta": ({ sessionID, messageID, partID, field, delta }, _now, thoughts) => {
    if (!sessionID || !messageID || !partID || field !== "text" || !delta) return undefined
    if (thoughts.has(partID)) return { type: "thinking", sessionID }
    return { type: "text-delta", sessionID, messageID, partID, delta }
  },
  "permission.asked": ({ id, sessionID, permission, patterns }, now) => {
    if (!id || !sessionID) return undefined
    return { type: "asked", ask: permissionAsk({ id, sessionID, permission, patterns }, now) }
  },
  "question.asked": ({ id, sessionID, questions }, now) => {
    if (!id || !sessionID) return undefined
    return { type: "asked", ask: questionAsk({ id, sessionID, questions }, now) }
  },
  "permission.replied": replied,
  "question.replied": replied,
  "question.rejected": replied,
}

const isWord = (value: unknown): value is string => typeof value === "string" && value !== ""

const undoneIn = (from: string, { snapshot, diff = "" }: NonNullable<Info["revert"]>): Undone => ({
  from,
  reset: filesOf(diff).map(({ file }) => file),
  restores: snapshot !== undefined,
})

function replied({ sessionID, requestID }: Properties): OpencodeEvent | undefined {
  return sessionID && requestID ? { type: "replied", sessionID, askID: requestID } : undefined
}

const stateOf = ({ status }: State): CallState =>
  status === "completed" || status === "error" ? "ended" : status === "pending" ? "pending" : "running"
