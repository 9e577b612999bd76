import type { AgentInfo } from "../../core/ports.ts"
import type { FileDiff } from "../../lib/repository.ts"
import type { Hit } from "./filter.ts"
import type { Conversation, HistoryRun } from "./opencode/sessions.ts"
import type { Limits } from "./ports.ts"
import type { agentFacts, agentRow } from "./rows.ts"

/** Data that the server sends to the page. Times are in ms since 1970. */

/** A background task in lists. Features add their fields. */
export interface AgentRow extends Readonly<ReturnType<typeof agentRow>> {}

export type AgentDetail = AgentRow &
  Readonly<ReturnType<typeof agentFacts>> & {
    readonly answer: string
    readonly diff: readonly FileDiff[]
    /** Conversation that launched the task; absent where it does not exist any more. */
    readonly parent?: { readonly id: string; readonly title: string }
    /** Its runs, oldest first. */
    readonly runs: readonly HistoryRun[]
  }

/** Result of an action: the task, and the tool's text. */
export type ActionResult = { readonly agent: AgentRow; readonly text: string }

/** Choices for a launch. */
export type Choices = {
  readonly agents: readonly Pick<AgentInfo, "name" | "description">[]
  readonly models: readonly string[]
  readonly sessions: readonly Conversation[]
}

/** Spending as the daily limit counts it, including cleared tasks and other processes. Absent without a daily limit. */
type Spent = { readonly cost: number; readonly atLeast: boolean }

/** Whole state of the page: first event of a stream. Features add their fields. */
export interface PageSnapshot {
  readonly project: string
  /** The server's clock. */
  readonly now: number
  readonly agents: readonly AgentRow[]
  /** Address of OpenCode's page without the session id; absent where the page cannot be reached. */
  readonly threadBase?: string
  readonly limits?: Limits
  readonly spent?: Spent
}

/** Changes since the last event. Features add their fields. */
export interface Delta {
  readonly now: number
  readonly agents?: readonly AgentRow[]
  readonly agentsGone?: readonly string[]
  readonly spent?: Spent
}

/** Matches in answers; `next`: where to continue. */
export type AnswersFound = {
  readonly found: readonly ({ readonly id: string } & Hit)[]
  readonly next?: number
}

/**
 * Mutual authentication of page and server. Each caller has an id and a secret that the server derives from it, first
 * of a link, then of a web session; secrets are never sent again.
 *
 *     page    GET /hello?id&nonce
 *     server  origin, boot, state, proof (only the holder of the secret can create it, for this address)
 *     page    authorization: id.access (valid while this server process runs)
 */
export type Hello = {
  /** Address that the server takes for its own. Behind a proxy, the page sees another. */
  readonly origin: string
  /** Id of the server process. */
  readonly boot: string
  readonly state: "live" | "ended"
  readonly proof: string
}

export const proofText = ({ origin, boot, state }: Omit<Hello, "proof">, nonce: string): string =>
  ["superagents proof", origin, boot, state, nonce].join("\n")

export const accessText = (boot: string): string => `superagents access\n${boot}`

/** A new web session, as the server hands it to the page. */
export type Issued = { readonly id: string; readonly secret: string }

/** Splits `id.rest` at the last dot: ids contain dots. */
export function splitCredential(text: string): { id: string; rest: string } | undefined {
  const at = text.lastIndexOf(".")
  return at > 0 ? { id: text.slice(0, at), rest: text.slice(at + 1) } : undefined
}
