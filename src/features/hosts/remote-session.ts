import type { Message, NewSession } from "../../core/ports.ts"
import type { Ask, Preparing, Task } from "../../core/task.ts"
import type { RemoteFolder, RemoteSessionInfo } from "./remote.ts"

/** Where a task's files are on its host, once that was reached. */
export type RemotePlace = { readonly folder: string; readonly session: RemoteSessionInfo }

/** Of a task that has none there. */
export const NO_SESSION: RemoteSessionInfo = { id: "", skew: 0 }

/**
 * A session here that stands for one on a host: it has the record, and at the end the answer, and is never asked. What
 * is known of the other one is kept here while the task is at work.
 */
export type RemoteSession = {
  readonly taskID: string
  readonly sessionID: string
  readonly host: string
  /** Where its parent works. */
  readonly parentFolder: string
  readonly title: string
  readonly agent: string
  model: NewSession["model"]
  readonly isModelNamed?: boolean
  /** Absent where it was made by an earlier process: then its session there is made already. */
  readonly rules?: NewSession["rules"]
  /** Of a task that stands for several: it has no session there, only a folder where their work is checked. */
  readonly bare?: boolean
  /** What its messages are is read there; else they are read here. */
  live: boolean
  /** There may be files of it there. */
  sent: boolean
  /** All that it changed is here, as of this commit, and its folder is still to be removed; "" for one that has no work. */
  home?: string
  /** Its prompt has been handed over, or was by an earlier process. */
  asked: boolean
  far?: RemotePlace
  /** The last look at its folder. */
  look?: { readonly at: number; readonly found: Promise<RemoteFolder> }
  /** What was read of it last. */
  read?: { readonly since: string; readonly messages: readonly Message[] }
  /** The last message of what is kept here of its answer. */
  kept?: string
  asks: readonly Ask[]
  /** What the screen is told of it beside that. */
  preparing?: Preparing
  /** What it changed is being fetched. */
  fetches?: boolean
  lost?: boolean
  /** The run of its host's server that was asked last. */
  server?: string
  /** It was stopped while there was no contact: that is done when there is. */
  owesAbort: boolean
}

/** What its task changed may be there alone. */
export const isThere = (remote: RemoteSession | undefined): remote is RemoteSession =>
  remote?.live === true && remote.sent

/** The stub of a task that an earlier process, or another one, has made. */
export const remoteSessionOf = (task: Task, live: boolean): RemoteSession | undefined => {
  const { id, sessionID, place, description, agent, model, team } = task
  if (!place) return undefined
  const asked = live && team === undefined
  return {
    taskID: id,
    sessionID,
    host: place.kind,
    parentFolder: place.folder,
    title: description,
    agent,
    model,
    live,
    sent: true,
    asked,
    asks: [],
    owesAbort: false,
    ...(team && { bare: true }),
  }
}

/** Clocks that differ less are the same to ids, which are only for the order of messages. */
const SAME_CLOCK_MS = 60_000
const TIMED = /^((?:msg|prt)_)([0-9a-f]{12})(.*)$/

/** The difference that ids are moved by, where the host's clock is another one. */
export const skewOfIDs = (skew: number): number => (Math.abs(skew) < SAME_CLOCK_MS ? 0 : Math.trunc(skew))

/** An id as it is where the clock is `ms` ahead. */
export function movedID(id: string, ms: number): string {
  const [, kind, time, rest] = TIMED.exec(id) ?? []
  if (ms === 0 || kind === undefined) return id
  const moved = BigInt.asUintN(48, BigInt(`0x${time}`) + BigInt(ms) * 4096n)
  return `${kind}${moved.toString(16).padStart(12, "0")}${rest}`
}

/** A message of the host's as it is here. */
export function movedMessage(message: Message, { ids, clock }: { ids: number; clock: number }): Message {
  const { id, parentID, createdAt, completedAt } = message
  return {
    ...message,
    id: movedID(id, -ids),
    createdAt: createdAt - clock,
    ...(completedAt !== undefined && { completedAt: completedAt - clock }),
    ...(parentID !== undefined && { parentID: movedID(parentID, -ids) }),
  }
}
