import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Session } from "@opencode-ai/sdk/v2/types"
import { type Clock, LEASE_MS, OpencodeError, type TaskRecord, type UnverifiedRecord } from "../core/ports.ts"
import { hasPendingNotification, isActive, parentSessionOf, type Task, type TaskDraft } from "../core/task.ts"
import { sliced } from "../lib/clock.ts"
import { addBounded, grouped, totalOver } from "../lib/collections.ts"
import { SerialQueue } from "../lib/promises.ts"
import {
  decodeRequest,
  encodeRecord,
  hasRecord,
  isNewerVersion,
  namesItsSession,
  RECORD_KEY,
  REQUEST_KEY,
  type RecordDecoder,
  UI_METADATA_KEY,
  type UiMetadata,
} from "../runtime/record/codec.ts"
import { ownerNow, ownershipOf, type Signer } from "../runtime/record/identity.ts"
import { call, find } from "./client.ts"
import { figureOf } from "./convert.ts"

/** Most sessions for which the time of the last write is kept. Any other session is read before its next write. */
const MOST_RENEWALS = 1024

const MOST_UNVERIFIED = 5000

type Metadata = Readonly<Record<string, unknown>>

export type RecordPorts = {
  readonly client: OpencodeClient
  readonly clock: Clock
  /** Plugin instance that the written records name as owner. */
  readonly instance: string
  readonly folder: string | undefined
  readonly signer: Signer
  readonly decode: RecordDecoder
  /** The session's metadata as the last event showed it. */
  readonly lastMetadata: (sessionID: string) => Metadata | undefined
}

/**
 * Reads and writes records of tasks in the metadata of sessions. Signatures are verified, and keys of other programs
 * are kept.
 */
export class OpencodeRecords {
  readonly #ports: RecordPorts
  /** Time of each session's last record write. */
  readonly #renewals = new Map<string, number>()
  readonly #unverified = new Map<string, UnverifiedRecord>()
  /**
   * Writes run one after the other for each session, because a write reads the metadata, changes it and writes it back.
   */
  readonly #writes = new SerialQueue()

  constructor(ports: RecordPorts) {
    this.#ports = ports
  }

  in(session: Session): TaskRecord | undefined {
    return this.#ports.decode(session, this.#ports.signer)
  }

  /** Sessions in which an unverified record was found. Only sessions that were read are known. */
  unverified(): readonly UnverifiedRecord[] {
    return [...this.#unverified.values()]
  }

  /** Remembers or forgets the session as having a record whose signature does not verify. */
  #notice(session: Session, record: TaskRecord | undefined): void {
    const { id, time } = session
    const cost = figureOf(session.cost)
    if (record || !this.#ports.decode(session)) this.#unverified.delete(id)
    else addBounded(this.#unverified, id, { sessionID: id, cost, changedAt: time.updated }, MOST_UNVERIFIED)
  }

  /**
   * Verified records in these sessions, without copies in other sessions. `isNoticed`: whether an unverified record of
   * this session is remembered.
   */
  async among(
    sessions: readonly Session[],
    isNoticed: (session: Session) => boolean = () => false,
  ): Promise<readonly Recorded<Session>[]> {
    const recorded: Recorded<Session>[] = []
    const pause = sliced()
    for (const row of sessions.toSorted((one, other) => one.time.created - other.time.created)) {
      await pause()
      const record = this.in(row)
      if (record) recorded.push({ row, record })
      if (isNoticed(row)) this.#notice(row, record)
    }
    return withoutCopies(recorded, ({ task }) => this.#holdsPrompt(task))
  }

  /**
   * Like `among`, for a list that may lack sessions. The missing siblings are read, because a record may be copied from
   * them.
   */
  async amongSome(
    sessions: readonly Session[],
    isNoticed: (session: Session) => boolean,
  ): Promise<readonly Recorded<Session>[]> {
    const parents = new Map<string, Promise<readonly TaskRecord[]>>()
    const children = (parentID: string) => {
      const known = parents.get(parentID) ?? this.of(parentID)
      parents.set(parentID, known)
      return known
    }
    const isCopy = async ({ row, record: { task, owner } }: Recorded<Session>) => {
      // An instance knows the sessions of its own tasks, so these need no check.
      if (namesItsSession(row.metadata) || ownershipOf(owner, this.#ports.instance) === "ours") return false
      return !(await children(parentSessionOf(task))).some((record) => record.task.sessionID === row.id)
    }
    const found = await this.among(sessions, isNoticed)
    const copies = await Promise.all(found.map(isCopy))
    return found.filter((_each, at) => !copies[at])
  }

  /** Records of the tasks that this session launched. */
  async of(parentID: string): Promise<readonly TaskRecord[]> {
    const children = await find("list children", this.#ports.client.session.children({ sessionID: parentID }))
    return (await this.among(children ?? [])).map(({ record }) => record)
  }

  async #holdsPrompt({ sessionID, run }: Task): Promise<boolean> {
    const route = this.#ports.client.session.message({ sessionID, messageID: run.promptID })
    return (await find("read a message", route)) !== undefined
  }

  /** Metadata for a new session of this task. */
  metadataOf(task: TaskDraft): { [key: string]: unknown } {
    const { instance, folder, signer } = this.#ports
    return { [RECORD_KEY]: encodeRecord(task, ownerNow(instance, folder), signer) }
  }

  /** Writes the record; `undefined` removes it. Rejects with `takenOver` where another process owns the task. */
  save(sessionID: string, task: Task | undefined): Promise<void> {
    const record = task ? this.metadataOf(task) : {}
    const at = this.#ports.clock.now()
    const write = async () => {
      const known = this.#holds(sessionID) ? this.#ports.lastMetadata(sessionID) : undefined
      // Without keys of other programs there is nothing to merge, so the session is not read first.
      if (known && Object.keys(known).every((key) => key === RECORD_KEY) && !isNewerVersion(known))
        await this.#write(sessionID, record)
      else
        await this.#edit(sessionID, (metadata, session) => {
          if (isNewerVersion(metadata)) return undefined
          this.#refuseTakenOver(session, task)
          const { [RECORD_KEY]: _ours, ...others } = metadata
          return { ...others, ...record }
        })
      // After the task has ended and its parent was notified, any process may resume it. So the next write reads the
      // session first.
      if (task && isLookedAfter(task)) this.renewed(sessionID, at)
      else this.#renewals.delete(sessionID)
    }
    return this.#writes.take(write, sessionID)
  }

  /** Removes the terminal's request with this id. */
  clearRequest(sessionID: string, requestID: string): Promise<void> {
    const edit = () =>
      this.#edit(sessionID, (metadata) => {
        if (decodeRequest(metadata)?.id !== requestID) return undefined
        const { [REQUEST_KEY]: _request, ...others } = metadata
        return others
      })
    return this.#writes.take(edit, sessionID)
  }

  /** Writes the UI metadata of a remote task; `undefined` removes it. */
  writeUiMetadata(sessionID: string, uiMetadata: UiMetadata | undefined): Promise<void> {
    const edit = () =>
      this.#edit(sessionID, (metadata) => {
        const { [UI_METADATA_KEY]: before, ...others } = metadata
        if (before === undefined && uiMetadata === undefined) return undefined
        return uiMetadata === undefined ? others : { ...others, [UI_METADATA_KEY]: uiMetadata }
      })
    return this.#writes.take(edit, sessionID)
  }

  /** Remembers that the session's record was written at this time. */
  renewed(sessionID: string, at = this.#ports.clock.now()): void {
    addBounded(this.#renewals, sessionID, at, MOST_RENEWALS)
  }

  /**
   * True while no other process can have taken the task over since the last write. False after a long sleep, or once
   * the parent was notified of the task's end.
   */
  #holds(sessionID: string): boolean {
    return this.#ports.clock.now() - (this.#renewals.get(sessionID) ?? Number.NEGATIVE_INFINITY) < LEASE_MS
  }

  /**
   * Throws where the write would overwrite another process's work. Another live process's task may be written only to
   * begin a new run after its end, and a later run is never overwritten.
   */
  #refuseTakenOver(session: Session, task: Task | undefined): void {
    const record = this.in(session)
    const ownership = record && ownershipOf(record.owner, this.#ports.instance)
    if (!record || ownership === "ours") return
    const { id, run } = record.task
    const ahead = task ? task.run.generation - run.generation : 0
    if (ahead > 0 && !isLookedAfter(record.task)) return
    if (ahead < 0 || ownership === "alive")
      throw new OpencodeError(`another process has taken task ${id} over`, { takenOver: true })
  }

  /** Reads the session's metadata and writes what `edit` returns. Nothing is written for `undefined`. */
  async #edit(sessionID: string, edit: (metadata: Metadata, session: Session) => Metadata | undefined): Promise<void> {
    const session = await call("read a session", this.#ports.client.session.get({ sessionID }))
    const metadata = edit(session.metadata ?? {}, session)
    if (metadata) await this.#write(sessionID, metadata)
  }

  async #write(sessionID: string, metadata: Metadata): Promise<void> {
    await call("write a session", this.#ports.client.session.update({ sessionID, metadata }))
  }
}

/** Whether the task is active, or its parent must still be notified of its end. */
const isLookedAfter = (task: Task): boolean => isActive(task) || hasPendingNotification(task)

/**
 * Cost of a session and of those below it that have no record of their own: OpenCode's own `task` tool made them, and
 * each row has only its own cost.
 */
export const costWithBelow = <
  Row extends { readonly id: string; readonly parentID?: string; readonly metadata?: unknown },
>(
  rows: readonly Row[],
  costOf: (row: Row) => number,
): ((row: Row) => number) =>
  totalOver(
    rows.filter(({ metadata }) => !hasRecord(metadata)),
    costOf,
    (sum, cost) => sum + cost,
  )

/** A session's row and its verified record. */
type Recorded<Row> = { readonly row: Row; readonly record: TaskRecord }

/**
 * Drops copied records. A first record names no session, so a copy of it in a sibling looks like the task: prefer the
 * record that names its session, then the session with the task's prompt, then the oldest. `recorded` is ordered oldest
 * first.
 */
export async function withoutCopies<Row extends { readonly metadata?: unknown }>(
  recorded: readonly Recorded<Row>[],
  holdsPrompt: (record: TaskRecord) => Promise<boolean>,
): Promise<readonly Recorded<Row>[]> {
  const byTask = grouped(recorded, ({ record: { task } }) => `${task.parentID} ${task.id}`)
  const rightful = new Set<Recorded<Row>>()
  for (const several of byTask.values()) rightful.add(await rightfulOf(several, holdsPrompt))
  return recorded.filter((each) => rightful.has(each))
}

async function rightfulOf<Row extends { readonly metadata?: unknown }>(
  several: readonly Recorded<Row>[],
  holdsPrompt: (record: TaskRecord) => Promise<boolean>,
): Promise<Recorded<Row>> {
  const [oldest] = several as [Recorded<Row>]
  if (several.length === 1) return oldest
  const named = several.find(({ row }) => namesItsSession(row.metadata))
  if (named) return named
  for (const each of several) if (await holdsPrompt(each.record)) return each
  return oldest
}
