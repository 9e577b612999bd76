import type { PassingKind } from "./refusal.ts"

/**
 * The circuit breaker of one model: tripped by a provider's refusals, reset by the first part of an answer. Who meets it
 * tripped is parked. Pure; all times are milliseconds since the epoch. A model that was never refused has none.
 */
export type Breaker = {
  readonly closedAt: number
  /** When a probe may go. */
  readonly opensAt: number
  /** The provider told when it opens; else `opensAt` is a guess that doubles. */
  readonly told: boolean
  readonly kind: PassingKind
  /** The provider's own words. */
  readonly why: string
  /** Refusals in a row that told no time, since an answer was complete. */
  readonly refused: number
  /** The run that went to see, and when. */
  readonly probe?: { readonly taskID: string; readonly at: number }
  /** Since an answer began: how large the wave is that goes now, who has gone in it, and when the last of them went. */
  readonly recovery?: { readonly wave: number; readonly gone: readonly string[]; readonly at: number }
  /** Nobody waits for it: it is forgotten when its time has come. */
  readonly deserted?: boolean
}

export type Closing = {
  readonly kind: Breaker["kind"]
  readonly why: string
  readonly until?: number
}

/** The wait after a refusal that tells no time; each refused probe doubles it. */
const FIRST_WAIT_MS = 5000
const MOST_WAIT_MS = 300_000
/** A time that is so near means at once. */
const AT_ONCE_MS = 1000
/** Those that went and are not heard of for so long, in ms, do not hold the others up. */
const UNHEARD_MS = 30_000
/** How many go after the probe is answered; each wave is twice as large as the one before. */
const FIRST_WAVE = 2
/** A wave that large is everybody. */
const MOST_WAVE = 1024

/**
 * A refusal came. `sentAt`: when its request was sent. One that was sent before the breaker tripped tells nothing new:
 * it changes neither the probe nor the wait, but a time that it tells is believed.
 */
export function close(breaker: Breaker | undefined, { kind, why, until }: Closing, now: number, sentAt = now): Breaker {
  if (breaker && sentAt <= breaker.closedAt) {
    if (breaker.recovery || until === undefined || (breaker.told && until <= breaker.opensAt)) return breaker
    return { ...breaker, opensAt: until, told: true, kind, why }
  }
  // Who says "at once" and refuses the probe again would be asked without end.
  const isBelieved = until !== undefined && (until - now > AT_ONCE_MS || !breaker || breaker.recovery !== undefined)
  if (isBelieved) return { closedAt: now, opensAt: until, told: true, kind, why, refused: 0 }
  const refused = (breaker?.refused ?? 0) + 1
  const wait = Math.min(FIRST_WAIT_MS * 2 ** (refused - 1), MOST_WAIT_MS)
  return { closedAt: now, opensAt: now + wait, told: false, kind, why, refused }
}

/** A run goes: to see, or in the wave. */
export function sentThrough(breaker: Breaker, taskID: string, now: number): Breaker {
  const { recovery } = breaker
  if (!recovery) return { ...breaker, probe: { taskID, at: now } }
  if (recovery.gone.includes(taskID)) return breaker
  return { ...breaker, recovery: { ...recovery, gone: [...recovery.gone, taskID], at: now } }
}

/** A run that went has gone another way (it ended, was cancelled, or waits for something else): another may go. */
export function withdraw(breaker: Breaker, taskID: string): Breaker {
  const { recovery } = breaker
  if (recovery?.gone.includes(taskID))
    return { ...breaker, recovery: { ...recovery, gone: recovery.gone.filter((id) => id !== taskID) } }
  if (breaker.probe?.taskID !== taskID) return breaker
  const { probe: _gone, ...rest } = breaker
  return rest
}

/** Who has gone and is not answered yet. */
export const underWay = ({ recovery, probe }: Breaker): readonly string[] =>
  recovery?.gone ?? (probe ? [probe.taskID] : [])

/** Without those of whom nothing was heard for too long: others may go in their place. */
export function withoutUnheard(breaker: Breaker, now: number): Breaker {
  const since = breaker.recovery?.at ?? breaker.probe?.at ?? now
  return now - since < UNHEARD_MS ? breaker : underWay(breaker).reduce(withdraw, breaker)
}

/**
 * An answer came to a request of a run's, sent at `sentAt`: its first part, or all of it. One that was under way when the
 * breaker tripped proves nothing; while it resets, only one of the wave that went last calls the next.
 */
export function answered(
  breaker: Breaker,
  { taskID, sentAt, isWhole }: { readonly taskID: string; readonly sentAt: number; readonly isWhole: boolean },
): Breaker {
  if (sentAt <= breaker.closedAt) return breaker
  const { probe: _done, recovery, ...rest } = breaker
  const refused = isWhole ? 0 : breaker.refused
  if (!recovery) return { ...rest, refused, recovery: { wave: FIRST_WAVE, gone: [], at: sentAt } }
  const { wave, gone } = recovery
  if (!gone.includes(taskID)) return refused === breaker.refused ? breaker : { ...breaker, refused }
  return { ...rest, refused, recovery: { wave: Math.min(wave * 2, MOST_WAVE), gone: [], at: sentAt } }
}

/** How many of those that wait may go now: what is left of the wave, or the one probe when its time has come. */
export function freeRequests(breaker: Breaker, now: number): number {
  if (breaker.recovery) return Math.max(0, breaker.recovery.wave - breaker.recovery.gone.length)
  return breaker.probe === undefined && now >= breaker.opensAt ? 1 : 0
}

/** Whether a request of anybody's may be sent: not while the gate is closed, but for the probe's own. */
export const isClosedFor = (breaker: Breaker | undefined, taskID: string | undefined): boolean =>
  breaker !== undefined && breaker.recovery === undefined && (taskID === undefined || breaker.probe?.taskID !== taskID)

/** Whether a run that has not begun may not: it begins as the probe or in a wave. */
export const mustWaitForBreaker = (breaker: Breaker | undefined, taskID: string): boolean =>
  breaker !== undefined && !underWay(breaker).includes(taskID)

/** When the next may go by the clock alone: at the breaker's time, or when those that went have been unheard for too long. */
export function nextProbe({ recovery, probe, opensAt }: Breaker): number {
  if (recovery) return recovery.gone.length > 0 ? recovery.at + UNHEARD_MS : Number.POSITIVE_INFINITY
  return probe ? probe.at + UNHEARD_MS : opensAt
}
