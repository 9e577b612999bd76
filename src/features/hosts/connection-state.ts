import { oneLine } from "../../lib/text.ts"
import { NOT_FOUND } from "./channel.ts"

/**
 * State machine of a host's connection: attempts, delays, and states for readers. Pure; `connection.ts` carries it out.
 */

/** State of a host's connection. */
export type ConnectionState =
  /** No task needs it. */
  | { readonly phase: "idle" }
  /** A first attempt is under way. `since`: when the host was first needed. */
  | { readonly phase: "connecting"; readonly since: number; readonly tries: number; readonly why?: string }
  | { readonly phase: "contact" }
  /** Contact was lost. `tries`: attempts since; `nextAt`: the next one, absent during an attempt. */
  | {
      readonly phase: "no contact"
      readonly since: number
      readonly tries: number
      readonly nextAt?: number
      readonly why?: string
    }
  /** First contact failed: the next user starts again. */
  | { readonly phase: "ended"; readonly why: string }

export type ConnectionInput =
  /** `known`: there was contact before. */
  | { readonly type: "wanted"; readonly known: boolean }
  | { readonly type: "opened" }
  /** A connection or attempt has ended. `byItself`: the command exited, rather than hung. */
  | { readonly type: "closed"; readonly why: string; readonly byItself: boolean; readonly fatal?: boolean }
  | { readonly type: "due" }
  | { readonly type: "unwanted" }

/** Attempts before a first contact if the command exits by itself. */
const FIRST_TRIES = 3
const FIRST_PAUSES_MS = [1500, 3000]
/** Delays of attempts after a loss; the last one repeats. */
const PAUSES_MS = [0, 1000, 2000, 4000, 5000]

export const IDLE: ConnectionState = { phase: "idle" }

/** Next state. `begins`: an attempt was started. */
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

/** Patterns in error output, with advice. */
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
