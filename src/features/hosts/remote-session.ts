import type { Activity, Message, NewSession } from "../../core/ports.ts"
import type { Ask, Preparing, Task } from "../../core/task.ts"

/** A session on a host. `skew`: the host's clock minus this machine's when the session was created, in ms. */
export type RemoteSessionInfo = { readonly id: string; readonly skew: number }

/** Data for a new remote session. By `folder` and `taskID` the session is found again. */
export type NewRemoteSession = Omit<NewSession, "parentID"> & {
  readonly folder: string
  readonly taskID: string
  readonly skew: number
}

/** Activity and questions of a folder's sessions. */
export type RemoteFolder = { readonly activity: ReadonlyMap<string, Activity>; readonly asks: readonly Ask[] }

/** Folder and session of a task on its host, known once the host was reached. */
export type RemoteLocation = { readonly folder: string; readonly session: RemoteSessionInfo }

/** Placeholder for a task without a remote session. */
export const NO_SESSION: RemoteSessionInfo = { id: "", skew: 0 }

/**
 * A local session that represents a remote one: it holds the record and at the end the answer, and is never prompted.
 * State of the remote session is kept here while the task is active.
 */
export type RemoteSession = {
  readonly taskID: string
  readonly sessionID: string
  readonly host: string
  /** The parent's folder. */
  readonly parentFolder: string
  readonly title: string
  readonly agent: string
  model: NewSession["model"]
  readonly isModelNamed?: boolean
  /** Set for a group, which has no remote session, only a folder for checks. */
  readonly bare?: boolean
  /** True while messages are read on the host; otherwise in the local session. */
  live: boolean
  /** True if files of the task may exist on the host. */
  sent: boolean
  /** Commit of the fetched work whose remote folder is still to be removed; "" for a folder without work. */
  home?: string
  /** Folder that stayed on the host after its work was fetched, and the paths that only it holds. */
  held?: { readonly folder: string; readonly unsaved: readonly string[] }
  /** True if the folder was not there when the work of a prompted agent was to be fetched. */
  isFolderGone?: boolean
  /** The prompt has been sent, perhaps by an earlier process. */
  promptSent: boolean
  location?: RemoteLocation
  /** Time of the last search for the session. */
  searchedAt?: number
  /** True if the host has no session, and no prompt was stored: an earlier process died before it sent the prompt. */
  neverBegan?: boolean
  /** Last read of the remote folder. */
  look?: { readonly at: number; readonly found: Promise<RemoteFolder> }
  /** Messages of the last read. `since`: the message id from which they were read. */
  read?: { readonly since: string; readonly messages: readonly Message[] }
  /** Id of the last remote message of the answer that is stored in the local session. */
  storedAnswerID?: string
  asks: readonly Ask[]
  /** Preparation shown in the terminal. */
  preparing?: Preparing
  /** True while the task's changes are fetched. */
  fetches?: boolean
  lost?: boolean
  /** Id of the server that got the last prompt: each start of a server has its own id. */
  server?: string
  /** True if the session was stopped without contact: the remote session is aborted at the next contact. */
  abortPending: boolean
}

/** Whether the task's changes may exist only on the host. */
export const hasRemoteWork = (remote: RemoteSession | undefined): remote is RemoteSession =>
  remote?.live === true && remote.sent

type NewSessionState = Omit<RemoteSession, "asks" | "abortPending"> & Pick<Partial<RemoteSession>, "abortPending">

export const newRemoteSession = (given: NewSessionState): RemoteSession => ({ asks: [], abortPending: false, ...given })

/** True for a run that was parked before it had begun: nothing of it is on the host. */
export const isParkedUnbegun = ({ parked }: Task["run"]): boolean => parked !== undefined && parked.found === undefined

/** State of the remote session of a task that an earlier or another process has launched. */
export const remoteSessionOf = (task: Task, live: boolean): RemoteSession | undefined => {
  const { id, sessionID, place, description, agent, model, group, run } = task
  if (!place) return undefined
  const { kind: host, folder: parentFolder } = place
  const promptSent = live && group === undefined && !isParkedUnbegun(run)
  const state = { live, sent: live, promptSent, ...(group && { bare: true }) }
  // No record says whether the call named the model: one that may be named is not replaced.
  const session = { taskID: id, sessionID, host, parentFolder, title: description, agent, model, isModelNamed: true }
  return newRemoteSession({ ...session, ...state })
}

/** Clock differences below this limit do not matter for ids, which only order messages. */
const SAME_CLOCK_MS = 60_000
const TIMED = /^((?:msg|prt)_)([0-9a-f]{12})(.*)$/

/** Difference by which ids are moved; 0 for small ones. */
export const skewOfIDs = (skew: number): number => (Math.abs(skew) < SAME_CLOCK_MS ? 0 : Math.trunc(skew))

/** Id with its time moved by `ms`. */
export function movedID(id: string, ms: number): string {
  const [, kind, time, rest] = TIMED.exec(id) ?? []
  if (ms === 0 || kind === undefined) return id
  const moved = BigInt.asUintN(48, BigInt(`0x${time}`) + BigInt(ms) * 4096n)
  return `${kind}${moved.toString(16).padStart(12, "0")}${rest}`
}

/** A host's message with local ids and times. */
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
