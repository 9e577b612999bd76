/** What the near end asks of the far one, and what comes back: each order is the body of an `open` frame, as JSON. */

export type Order =
  /** A line for `sh`; what follows in `data` frames is its stdin, until `end`. */
  | { readonly do: "run"; readonly line: string; readonly cwd?: string }
  /** A request to OpenCode's server there; its body follows likewise. */
  | {
      readonly do: "request"
      readonly method: string
      /** Path and query. */
      readonly path: string
      readonly headers: Readonly<Record<string, string>>
    }
  /** Has OpenCode's server run there. */
  | { readonly do: "serve" }
  /** Tells what happens in tasks' sessions there, a hint in each `data` frame; the `head` comes once that can be heard. */
  | { readonly do: "listen" }
  /** No task of ours is there any more: the server may end soon. */
  | { readonly do: "rest" }

/** What a relay is told when it begins. */
export type RelaySettings = {
  /** Names this side among those that use the same server. */
  readonly client: string
  /** How long the server there goes on without a sign of anybody, in ms. */
  readonly unattended: number
  /** How long it is kept when nobody has a task there, in ms. */
  readonly kept: number
  /** How long the relay stays without a sign of this side, in ms. */
  readonly patience: number
}

/** What a relay says of itself at first. */
export type Hello = { readonly now: number; readonly cache: string; readonly pid: number }

/** What comes back to a ping. `server`: whether OpenCode's server answers; undefined where none was started or asked. */
export type Pong = { readonly now: number; readonly server?: boolean }

/** How OpenCode's server there is. `id` changes with each start. */
export type Served = {
  readonly id: string
  readonly version: string
  /** When it was started, by the clock there. */
  readonly since?: number
}

/** How a call ended. `code`: of a command; null where a signal ended it. `isServerGone`: OpenCode's server answers nobody. */
export type CallEnd = { readonly code?: number | null; readonly problem?: string; readonly isServerGone?: boolean }

export type CallHead = { readonly status: number; readonly headers: Readonly<Record<string, string>> }

/** Something happened in a session there. `urgent`: it may have ended, or asks something. */
export type Hint = { readonly session: string; readonly urgent: boolean }

/** Whoever answers there may be anybody: what it says of itself is looked at before it is used. */
export const isHello = (given: unknown): given is Hello => {
  const { now, cache } = (given ?? {}) as Partial<Hello>
  const isPath = typeof cache === "string" && PATH.test(cache)
  return typeof now === "number" && Math.abs(now) < MOST_TIME_MS && isPath
}

/** What a host says of its server; undefined where it cannot be read. */
export function servedIn(text: string): Served | undefined {
  try {
    const { id, version, since } = JSON.parse(text) as Partial<Served>
    if (!isWord(id) || !isWord(version)) return undefined
    return { id, version, ...(typeof since === "number" && { since }) }
  } catch {
    return undefined
  }
}

/** What was told of a session there; undefined where it cannot be read. */
export function hintIn(text: string): Hint | undefined {
  try {
    const { session, urgent } = JSON.parse(text) as Partial<Hint>
    return isWord(session) ? { session, urgent: urgent === true } : undefined
  } catch {
    return undefined
  }
}

/** The last moment of a `Date`. */
const MOST_TIME_MS = 8.64e15
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const PATH = /^\/[^\u0000-\u001f]{0,1000}$/
const isWord = (given: unknown): given is string => typeof given === "string" && /^[\w.+-]{0,100}$/.test(given)
