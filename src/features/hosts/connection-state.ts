import { oneLine } from "../../lib/text.ts"
import { NOT_FOUND } from "./channel.ts"

/**
 * State machine of a host's connection: decides about attempts and delays, and names the states for readers. Pure:
 * `connection.ts` opens and closes the connection.
 */

export type ConnectionState =
  /** No task needs the connection. */
  | { readonly phase: "idle" }
  /** A first attempt is under way. `since`: when the host was first needed. */
  | { readonly phase: "connecting"; readonly since: number; readonly tries: number; readonly why?: string }
  | { readonly phase: "contact" }
  /**
   * Contact was lost. `tries`: number of attempts since then; `nextAt`: time of the next attempt, absent during one.
   */
  | {
      readonly phase: "no contact"
      readonly since: number
      readonly tries: number
      readonly nextAt?: number
      readonly why?: string
    }
  /** All attempts to reach the host for the first time failed. The next task that needs the host starts new ones. */
  | { readonly phase: "ended"; readonly why: string }

export type ConnectionInput =
  /** A task needs the connection. `known`: there was contact with the host before. */
  | { readonly type: "wanted"; readonly known: boolean }
  | { readonly type: "opened" }
  /** A connection or attempt has ended. `byItself`: true if the command exited, false if it hung. */
  | { readonly type: "closed"; readonly why: string; readonly byItself: boolean; readonly fatal?: boolean }
  | { readonly type: "due" }
  | { readonly type: "unwanted" }

/** Number of attempts for a first contact. Only attempts whose command exited by itself count. */
const FIRST_TRIES = 3
const FIRST_PAUSES_MS = [1500, 3000]
/** Delays in ms before the attempts after contact was lost. The last delay applies to all further attempts. */
const PAUSES_MS = [0, 1000, 2000, 4000, 5000]

export const IDLE: ConnectionState = { phase: "idle" }

export function step(state: ConnectionState, input: ConnectionInput, now: number): ConnectionState {
  switch (input.type) {
    case "wanted":
      return wanted(state, input.known, now)
    case "opened":
      return state.phase === "idle" || state.phase === "ended" ? state : { phase: "contact" }
    case "closed":
      return closed(state, input, now)
    case "due":
      return state.phase === "no contact" && state.nextAt !== undefined && state.nextAt <= now
        ? { ...state, nextAt: undefined }
        : state
    case "unwanted":
      return IDLE
  }
}

function wanted(state: ConnectionState, known: boolean, now: number): ConnectionState {
  if (known && state.phase !== "contact" && state.phase !== "no contact")
    return { phase: "no contact", since: now, tries: 0, nextAt: now }
  return state.phase === "idle" || state.phase === "ended" ? { phase: "connecting", since: now, tries: 0 } : state
}

function closed(
  state: ConnectionState,
  { why, byItself, fatal }: Extract<ConnectionInput, { type: "closed" }>,
  now: number,
): ConnectionState {
  if (state.phase === "contact") return { phase: "no contact", since: now, tries: 0, nextAt: now, why }
  if (state.phase === "connecting") {
    const tries = byItself ? state.tries + 1 : state.tries
    if (fatal || tries >= FIRST_TRIES) return { phase: "ended", why }
    return { ...state, tries, why }
  }
  if (state.phase !== "no contact") return state
  const tries = state.tries + 1
  const pause = PAUSES_MS[Math.min(tries, PAUSES_MS.length - 1)] ?? 0
  return { ...state, tries, nextAt: now + pause, why }
}

/** Delay before the next attempt, in ms; undefined where none is due. */
export function pauseBefore(state: ConnectionState, now: number): number | undefined {
  if (state.phase === "connecting") return state.tries === 0 ? 0 : (FIRST_PAUSES_MS[state.tries - 1] ?? 0)
  if (state.phase === "no contact") return state.nextAt === undefined ? undefined : Math.max(0, state.nextAt - now)
  return undefined
}

/** Last non-empty line, which usually names the reason. */
export function lastLine(text: string): string {
  const lines = text.split("\n").map((line) => line.trim())
  return lines.findLast((line) => line !== "") ?? ""
}

/** Patterns in a transport's error output, each with advice that is added to the reason. */
const ADVICE: readonly (readonly [RegExp, (name: string) => string])[] = [
  [
    /could not resolve hostname|name or service not known/i,
    (name) => ` Is that its name? It stands in the option hosts.${name}, or in ~/.ssh/config.`,
  ],
  [
    /permission denied|host key verification failed|passphrase|password is required|terminal is required/i,
    (name) =>
      ` Nobody can be asked for a key or a password here: run the command of hosts.${name} once in a terminal, until it works without a question.`,
  ],
]

/** Why a command ended, with advice where known. */
function whyEnded(complaint: string, name: string): string {
  const line = oneLine(lastLine(complaint))
  const advice = ADVICE.find(([fits]) => fits.test(complaint))?.[1](name)
  return advice === undefined ? line : `${line.replace(/[.]?$/, ".")}${advice}`
}

/** Reason for the end of a connection; `fatal` where another attempt cannot help. */
export function reasonOf(complaint: string, name: string): { why: string; fatal?: boolean } {
  if (complaint.includes(NOT_FOUND)) return { why: `OpenCode was not found on ${name}.`, fatal: true }
  return { why: `${name} could not be reached: ${whyEnded(complaint, name)}` }
}
