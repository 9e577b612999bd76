import { oneLine } from "../../lib/text.ts"
import { NOT_FOUND } from "./bootstrap.ts"

/**
 * How a host is reached, and what is made of it when it is not: pure. Attempts, their times, and what the rest is told;
 * the link carries it out.
 */

/** `phase`: what is known of the way to the host. */
export type Reach =
  /** Nobody needs it. */
  | { readonly phase: "idle" }
  /** An attempt is under way. `since` is when the host was first wanted. */
  | { readonly phase: "connecting"; readonly since: number; readonly tries: number; readonly why?: string }
  | { readonly phase: "contact" }
  /** It was in contact, and is not. `tries`: attempts since; `nextAt`: of the next one, absent while one is under way. */
  | {
      readonly phase: "no contact"
      readonly since: number
      readonly tries: number
      readonly nextAt?: number
      readonly why?: string
    }
  /** Never reached: the next one who needs it begins anew. */
  | { readonly phase: "ended"; readonly why: string }

export type ReachInput =
  /** `known`: it was reached before. */
  | { readonly type: "wanted"; readonly known: boolean }
  | { readonly type: "opened" }
  /** The connection, or the attempt at one, is over. `byItself`: its command ended, rather than hung. */
  | { readonly type: "closed"; readonly why: string; readonly byItself: boolean; readonly fatal?: boolean }
  | { readonly type: "due" }
  | { readonly type: "unwanted" }

/** How often a command that ends by itself is tried before a first contact. */
const FIRST_TRIES = 3
const FIRST_PAUSES_MS = [1500, 3000]
/** After a loss: at once, then after these, the last one for ever. */
const PAUSES_MS = [0, 1000, 2000, 4000, 5000]

export const IDLE: Reach = { phase: "idle" }

/** What becomes of the way to a host. A phase that stands for an attempt under way has to have one begun: `begins`. */
export function step(reach: Reach, input: ReachInput, now: number): Reach {
  switch (input.type) {
    case "wanted":
      return wanted(reach, input.known, now)
    case "opened":
      return reach.phase === "idle" || reach.phase === "ended" ? reach : { phase: "contact" }
    case "closed":
      return closed(reach, input, now)
    case "due":
      return reach.phase === "no contact" && reach.nextAt !== undefined && reach.nextAt <= now
        ? { ...reach, nextAt: undefined }
        : reach
    case "unwanted":
      return IDLE
  }
}

function wanted(reach: Reach, known: boolean, now: number): Reach {
  if (known && reach.phase !== "contact" && reach.phase !== "no contact")
    return { phase: "no contact", since: now, tries: 0, nextAt: now }
  return reach.phase === "idle" || reach.phase === "ended" ? { phase: "connecting", since: now, tries: 0 } : reach
}

function closed(reach: Reach, { why, byItself, fatal }: Extract<ReachInput, { type: "closed" }>, now: number): Reach {
  if (reach.phase === "contact") return { phase: "no contact", since: now, tries: 0, nextAt: now, why }
  if (reach.phase === "connecting") {
    const tries = byItself ? reach.tries + 1 : reach.tries
    if (fatal || tries >= FIRST_TRIES) return { phase: "ended", why }
    return { ...reach, tries, why }
  }
  if (reach.phase !== "no contact") return reach
  const tries = reach.tries + 1
  const pause = PAUSES_MS[Math.min(tries, PAUSES_MS.length - 1)] ?? 0
  return { ...reach, tries, nextAt: now + pause, why }
}

/** How long to wait before the next attempt of a phase in which one is to be made, in ms; undefined where none is. */
export function pauseBefore(reach: Reach, now: number): number | undefined {
  if (reach.phase === "connecting") return reach.tries === 0 ? 0 : (FIRST_PAUSES_MS[reach.tries - 1] ?? 0)
  if (reach.phase === "no contact") return reach.nextAt === undefined ? undefined : Math.max(0, reach.nextAt - now)
  return undefined
}

/** The line of a command's complaints that says why it ended: the last one that is not empty. */
export function lastLine(text: string): string {
  const lines = text.split("\n").map((line) => line.trim())
  return lines.findLast((line) => line !== "") ?? ""
}

/** Complaints that their reader can do something about, and what. */
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

/** Why a command ended, in its own last words, and what to do about that where it is known. */
function whyEnded(complaint: string, name: string): string {
  const line = oneLine(lastLine(complaint))
  const advice = ADVICE.find(([fits]) => fits.test(complaint))?.[1](name)
  return advice === undefined ? line : `${line.replace(/[.]?$/, ".")}${advice}`
}

/** Why a connection ended; `fatal` where to try again is no use. */
export function reasonOf(complaint: string, name: string): { why: string; fatal?: boolean } {
  if (complaint.includes(NOT_FOUND)) return { why: `OpenCode was not found on ${name}.`, fatal: true }
  return { why: `${name} could not be reached: ${whyEnded(complaint, name)}` }
}
