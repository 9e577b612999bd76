import type { RefusalKind } from "./refusal.ts"

/**
 * The gate of one model: closed by a provider's refusal, opened by an answer. Who meets it closed is parked. Pure; all
 * times are milliseconds since the epoch. A model that was never refused has no gate.
 */
export type Gate = {
  readonly closedAt: number
  /** When a probe may go. */
  readonly opensAt: number
  /** The provider told when it opens; else `opensAt` is a guess that doubles. */
  readonly told: boolean
  readonly kind: Exclude<RefusalKind, "money" | "other">
  /** The provider's own words. */
  readonly why: string
  /** Probes in a row that were refused without a time, since one was answered. */
  readonly refused: number
  /** The run that went to see, and when. */
  readonly probe?: { readonly taskID: string; readonly at: number }
  /** Since an answer came: how large the wave is that goes now, and who has gone in it. */
  readonly opening?: { readonly wave: number; readonly gone: readonly string[] }
}

export type Closing = {
  readonly kind: Gate["kind"]
  readonly why: string
  readonly until?: number
}

/** The wait after a refusal that tells no time; each refused probe doubles it. */
const FIRST_WAIT_MS = 5000
const MOST_WAIT_MS = 300_000
/** How many go after the probe is answered; each wave is twice as large as the one before. */
const FIRST_WAVE = 2
/** A wave that large is everybody. */
const MOST_WAVE = 1024

/**
 * A refusal came. `sentAt`: when its request was sent. One that was sent before the gate closed tells nothing new, but
 * may tell a later time.
 */
export function close(gate: Gate | undefined, { kind, why, until }: Closing, now: number, sentAt = now): Gate {
  const isLate = gate !== undefined && gate.opening === undefined && gate.probe === undefined && sentAt <= gate.closedAt
  if (isLate && gate) {
    if (until === undefined || (gate.told && until <= gate.opensAt)) return gate
    return { ...gate, opensAt: until, told: true, kind, why }
  }
  const refused = until === undefined && gate && !gate.opening ? gate.refused + 1 : 0
  const wait = Math.min(FIRST_WAIT_MS * 2 ** refused, MOST_WAIT_MS)
  return { closedAt: now, opensAt: until ?? now + wait, told: until !== undefined, kind, why, refused }
}

/** A run goes: to see, or in the wave. */
export function went(gate: Gate, taskID: string, now: number): Gate {
  const { opening } = gate
  if (!opening) return { ...gate, probe: { taskID, at: now } }
  if (opening.gone.includes(taskID)) return gate
  return { ...gate, opening: { ...opening, gone: [...opening.gone, taskID] } }
}

/** A run that went has gone another way (it ended, was cancelled, or waits for something else): another may go. */
export function withdrawn(gate: Gate, taskID: string): Gate {
  const { opening } = gate
  if (opening?.gone.includes(taskID))
    return { ...gate, opening: { ...opening, gone: opening.gone.filter((id) => id !== taskID) } }
  if (gate.probe?.taskID !== taskID) return gate
  const { probe: _gone, ...rest } = gate
  return rest
}

/** Who has gone and is not answered yet. */
export const underWay = ({ opening, probe }: Gate): readonly string[] => opening?.gone ?? (probe ? [probe.taskID] : [])

/**
 * An answer came to a request of a run's, sent at `sentAt`. One that was under way at the closing proves nothing; while
 * the gate opens, only one of the wave that went last calls the next.
 */
export function answered(gate: Gate, taskID: string, sentAt: number): Gate {
  const { probe: _done, opening, ...rest } = gate
  if (sentAt <= gate.closedAt) return gate
  if (!opening) return { ...rest, opening: { wave: FIRST_WAVE, gone: [] } }
  if (!opening.gone.includes(taskID)) return gate
  return { ...rest, opening: { wave: Math.min(opening.wave * 2, MOST_WAVE), gone: [] } }
}

/** How many of those that wait may go now: what is left of the wave, or the one probe when its time has come. */
export function mayGo(gate: Gate, now: number): number {
  if (gate.opening) return Math.max(0, gate.opening.wave - gate.opening.gone.length)
  return gate.probe === undefined && now >= gate.opensAt ? 1 : 0
}

/** Whether a request of anybody's may be sent: not while the gate is closed, but for the probe's own. */
export const isClosedFor = (gate: Gate | undefined, taskID: string | undefined): boolean =>
  gate !== undefined && gate.opening === undefined && (taskID === undefined || gate.probe?.taskID !== taskID)

/** Whether a run that has not begun may not: it begins as the probe or in a wave. */
export const isHeldBack = (gate: Gate | undefined, taskID: string): boolean =>
  gate !== undefined && !underWay(gate).includes(taskID)

/** When the next probe may go; infinite where one is under way, or an answer has come. */
export const nextProbe = (gate: Gate): number => (gate.opening || gate.probe ? Number.POSITIVE_INFINITY : gate.opensAt)
