import type { PassingKind } from "../../core/pause.ts"

/**
 * Circuit breaker of one model; a model that was never refused has none. Refusals of the provider trip the breaker,
 * which then parks the model's runs, and the first part of an answer resets it.
 */
export type Breaker = {
  readonly closedAt: number
  /** Time at which a probe may be sent. */
  readonly opensAt: number
  /** True if the provider stated the time. Otherwise `opensAt` is a guess, whose distance doubles with each refusal. */
  readonly stated: boolean
  readonly kind: PassingKind
  /** The provider's error message. */
  readonly why: string
  /** Consecutive refusals that stated no time, since the last complete answer. */
  readonly refused: number
  /** The run whose request tests whether the provider answers again. */
  readonly probe?: { readonly taskID: string; readonly at: number }
  /**
   * Present while the breaker resets: size of the current wave, runs of this wave that were sent, and time of the last
   * one.
   */
  readonly recovery?: { readonly wave: number; readonly gone: readonly string[]; readonly at: number }
  /** True if no run waits for the model: the breaker blocks nothing from `opensAt` on. */
  readonly deserted?: boolean
}

export type Trip = {
  readonly kind: Breaker["kind"]
  readonly why: string
  readonly until?: number
}

/** Wait after a refusal that states no time. Each refused probe doubles the wait. */
const FIRST_WAIT_MS = 5000
export const MOST_WAIT_MS = 300_000
/** A provider's time that is nearer than this counts as "at once", in ms. */
const AT_ONCE_MS = 1000
/** A request without an answer for this long no longer keeps other requests waiting, in ms. */
const UNHEARD_MS = 30_000
/** Number of runs admitted after the probe is answered; each further wave is twice as large. */
const FIRST_WAVE = 2
/** Largest size of a wave. A wave of this size holds no run back. */
const MOST_WAVE = 1024

/**
 * Records a refusal. The refusal of a request sent before the breaker tripped changes neither probe nor wait, but a
 * time that it states is used.
 */
export function recordRefusal(
  breaker: Breaker | undefined,
  { kind, why, until }: Trip,
  now: number,
  sentAt = now,
): Breaker {
  if (breaker && sentAt <= breaker.closedAt) {
    if (breaker.recovery || until === undefined || (breaker.stated && until <= breaker.opensAt)) return breaker
    return { ...breaker, opensAt: until, stated: true, kind, why }
  }
  // Such a time is not believed from a probe: a provider that always says "at once" would be asked without end.
  const isTrusted = until !== undefined && (until - now > AT_ONCE_MS || !breaker || breaker.recovery !== undefined)
  if (isTrusted) return { closedAt: now, opensAt: until, stated: true, kind, why, refused: 0 }
  const refused = (breaker?.refused ?? 0) + 1
  const wait = Math.min(FIRST_WAIT_MS * 2 ** (refused - 1), MOST_WAIT_MS)
  return { closedAt: now, opensAt: now + wait, stated: false, kind, why, refused }
}

/**
 * The breaker with its times moved by a system clock that was set back since it tripped: otherwise it would stay open
 * until the clock is there again.
 */
export function inPresent(breaker: Breaker, now: number): Breaker {
  const { closedAt, opensAt, probe, recovery } = breaker
  const ms = closedAt - now
  if (ms <= 0) return breaker
  return {
    ...breaker,
    closedAt: now,
    opensAt: opensAt - ms,
    ...(probe && { probe: { ...probe, at: probe.at - ms } }),
    ...(recovery && { recovery: { ...recovery, at: recovery.at - ms } }),
  }
}

/** The breaker of a limit that is over: runs that work may ask, and those that wait are sent in waves, first one alone. */
export const resetting = (breaker: Breaker, now: number): Breaker => ({
  ...breaker,
  recovery: { wave: 1, gone: [], at: now },
})

/** Counts a run as sent: as the probe, or in the current wave. */
export function sentThrough(breaker: Breaker, taskID: string, now: number): Breaker {
  const { recovery } = breaker
  if (!recovery) return { ...breaker, probe: { taskID, at: now } }
  if (recovery.gone.includes(taskID)) return breaker
  return { ...breaker, recovery: { ...recovery, gone: [...recovery.gone, taskID], at: now } }
}

/**
 * Removes a run that was sent and will not answer, because it ended, was cancelled or waits for something else. Another
 * run may be sent in its place.
 */
export function withdraw(breaker: Breaker, taskID: string): Breaker {
  const { recovery } = breaker
  if (recovery?.gone.includes(taskID))
    return { ...breaker, recovery: { ...recovery, gone: recovery.gone.filter((id) => id !== taskID) } }
  if (breaker.probe?.taskID !== taskID) return breaker
  const { probe: _gone, ...rest } = breaker
  return rest
}

/** Runs that were sent and have no answer yet. */
export const underWay = ({ recovery, probe }: Breaker): readonly string[] =>
  recovery?.gone ?? (probe ? [probe.taskID] : [])

/**
 * Removes requests that had no answer for too long, so that other requests may be sent. `isFar`: another machine asks the
 * model. Of its answers nothing is heard, only of refusals: what was not refused for so long counts as answered.
 */
export function withoutUnheard(breaker: Breaker, now: number, isFar = false): Breaker {
  const since = breaker.recovery?.at ?? breaker.probe?.at ?? now
  const [taskID] = underWay(breaker)
  if (taskID === undefined || now - since < UNHEARD_MS) return breaker
  if (isFar) return answered(breaker, { taskID, sentAt: since, isWhole: false })
  return underWay(breaker).reduce(withdraw, breaker)
}

/**
 * Records the first part of an answer, or a complete answer. An answer to a request from before the breaker tripped
 * proves nothing; while the breaker resets, only an answer to the current wave starts the next wave.
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

/** Number of waiting runs that may be sent now: the rest of the wave, or one probe when its time has come. */
export function freeRequests(breaker: Breaker, now: number): number {
  if (breaker.recovery) return Math.max(0, breaker.recovery.wave - breaker.recovery.gone.length)
  return breaker.probe === undefined && now >= breaker.opensAt ? 1 : 0
}

/** Whether the open breaker blocks a request. A request of the probe's own run is not blocked. */
export const isClosedFor = (breaker: Breaker | undefined, taskID: string | undefined): boolean =>
  breaker !== undefined && breaker.recovery === undefined && (taskID === undefined || breaker.probe?.taskID !== taskID)

/** Whether a run that has not begun must wait, because it is neither the probe nor in the current wave. */
export const mustWaitForBreaker = (breaker: Breaker | undefined, taskID: string): boolean =>
  breaker !== undefined && !underWay(breaker).includes(taskID)

/**
 * Next time at which a run may be sent without any event: when the breaker opens, or when the requests under way have
 * had no answer for too long.
 */
export function nextProbe({ recovery, probe, opensAt }: Breaker): number {
  if (recovery) return recovery.gone.length > 0 ? recovery.at + UNHEARD_MS : Number.POSITIVE_INFINITY
  return probe ? probe.at + UNHEARD_MS : opensAt
}
