import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Session } from "@opencode-ai/sdk/v2/types"
import { type Clock, HostError, LEASE_MS, type TaskRecord, type Unbelieved } from "../core/ports.ts"
import { isActive, owesNotification, parentSessionOf, type Task, type TaskDraft } from "../core/task.ts"
import { addBounded } from "../lib/bounded-set.ts"
import { Turn } from "../lib/turn.ts"
import {
  decodeRecord,
  decodeRequest,
  encodeRecord,
  isNewerVersion,
  namesItsSession,
  RECORD_KEY,
  REQUEST_KEY,
} from "../runtime/record/codec.ts"
import { type Recorded, withoutCopies } from "../runtime/record/copies.ts"
import { ownerNow, ownershipOf } from "../runtime/record/owner.ts"
import type { Signer } from "../runtime/record/signature.ts"
import { UI_METADATA_KEY, type UiMetadata } from "../runtime/record/ui-metadata.ts"
import { call, find } from "./client.ts"

/** Sessions whose last write is remembered at most; one more costs a read before its next write. */
const MOST_RENEWALS = 1024

const MOST_UNBELIEVED = 5000

type Metadata = Readonly<Record<string, unknown>>

export type RecordPorts = {
  readonly client: OpencodeClient
  readonly clock: Clock
  /** The plugin instance that owns what is written here, and the folder that it serves. */
  readonly instance: string
  readonly folder: string | undefined
  /** The installation's. */
  readonly signer: Signer
  /** A session's metadata as an event last told it. */
  readonly heard: (sessionID: string) => Metadata | undefined
}

/** Our entries in sessions' metadata: read with their signature, written without touching what others keep there. */
export class OpencodeRecords {
  readonly #ports: RecordPorts
  /** When each session's record was last written here. */
  readonly #renewals = new Map<string, number>()
  readonly #unbelieved = new Map<string, Unbelieved>()
  /** Each write of a session's metadata reads, merges and writes. */
  readonly #writes = new Turn()

  constructor(ports: RecordPorts) {
    this.#ports = ports
  }

  in(session: Session): TaskRecord | undefined {
    return decodeRecord(session, this.#ports.signer)
  }

  /** Those that `notice` has met so far. */
  unbelieved(): readonly Unbelieved[] {
    return [...this.#unbelieved.values()]
  }

  /** Remembers which of these sessions have a record of their own that this installation did not sign. */
  notice(sessions: readonly Session[]): void {
    for (const session of sessions) {
      const { id, cost = 0, time } = session
      if (this.in(session) || !decodeRecord(session)) this.#unbelieved.delete(id)
      else addBounded(this.#unbelieved, id, { sessionID: id, cost, changedAt: time.updated }, MOST_UNBELIEVED)
    }
  }

  /** The records in these sessions, without those that were copied from another among them. */
  async among(sessions: readonly Session[]): Promise<readonly Recorded<Session>[]> {
    const oldestFirst = sessions.toSorted((one, other) => one.time.created - other.time.created)
    const recorded = oldestFirst.flatMap((row) => {
      const record = this.in(row)
      return record ? [{ row, record }] : []
    })
    return withoutCopies(recorded, ({ task }) => this.#holdsPrompt(task))
  }

  /** The same where the list need not have all children of a parent: what it was copied from may be missing there. */
  async amongSome(sessions: readonly Session[]): Promise<readonly Recorded<Session>[]> {
    const parents = new Map<string, Promise<readonly TaskRecord[]>>()
    const children = (parentID: string) => {
      const known = parents.get(parentID) ?? this.of(parentID)
      parents.set(parentID, known)
      return known
    }
    const isCopy = async ({ row, record: { task, owner } }: Recorded<Session>) => {
      // Of its own tasks an instance knows the sessions.
      if (namesItsSession(row.metadata) || ownershipOf(owner, this.#ports.instance) === "ours") return false
      return !(await children(parentSessionOf(task))).some((record) => record.task.sessionID === row.id)
    }
    const found = await this.among(sessions)
    const copies = await Promise.all(found.map(isCopy))
    return found.filter((_each, at) => !copies[at])
  }

  /** The records of the tasks that a session launched. */
  async of(parentID: string): Promise<readonly TaskRecord[]> {
    const children = await find("list children", this.#ports.client.session.children({ sessionID: parentID }))
    return (await this.among(children ?? [])).map(({ record }) => record)
  }

  async #holdsPrompt({ sessionID, run }: Task): Promise<boolean> {
    const route = this.#ports.client.session.message({ sessionID, messageID: run.promptID })
    return (await find("read a message", route)) !== undefined
  }

  /** The metadata of a session that is about to be made for this task. */
  metadataOf(task: TaskDraft): { [key: string]: unknown } {
    const { instance, folder, signer } = this.#ports
    return { [RECORD_KEY]: encodeRecord(task, ownerNow(instance, folder), signer) }
  }

  /** Writes the record, or removes it. Rejects as taken over where another process has the task by now. */
  save(sessionID: string, task: Task | undefined): Promise<void> {
    const record = task ? this.metadataOf(task) : {}
    const at = this.#ports.clock.now()
    const write = async () => {
      const known = this.#holds(sessionID) ? this.#ports.heard(sessionID) : undefined
      // Nobody else has written here: nothing has to be merged, and the session not to be read first.
      if (known && Object.keys(known).every((key) => key === RECORD_KEY) && !isNewerVersion(known))
        await this.#write(sessionID, record)
      else
        await this.#edit(sessionID, (metadata, session) => {
          if (isNewerVersion(metadata)) return undefined
          this.#refuseTakenOver(session, task)
          const { [RECORD_KEY]: _ours, ...others } = metadata
          return { ...others, ...record }
        })
      // One that has ended and was told of is anybody's to resume.
      if (task && isLookedAfter(task)) this.renewed(sessionID, at)
      else this.#renewals.delete(sessionID)
    }
    return this.#writes.take(write, sessionID)
  }

  /** Removes the companion's request of this id. */
  clearRequest(sessionID: string, requestID: string): Promise<void> {
    const edit = () =>
      this.#edit(sessionID, (metadata) => {
        if (decodeRequest(metadata)?.id !== requestID) return undefined
        const { [REQUEST_KEY]: _request, ...others } = metadata
        return others
      })
    return this.#writes.take(edit, sessionID)
  }

  /** Writes what the screen is to know of a task that works elsewhere; nothing where that is undefined. */
  sign(sessionID: string, uiMetadata: UiMetadata | undefined): Promise<void> {
    const edit = () =>
      this.#edit(sessionID, (metadata) => {
        const { [UI_METADATA_KEY]: before, ...others } = metadata
        if (before === undefined && uiMetadata === undefined) return undefined
        return uiMetadata === undefined ? others : { ...others, [UI_METADATA_KEY]: uiMetadata }
      })
    return this.#writes.take(edit, sessionID)
  }

  /** The session's record of this time is written. */
  renewed(sessionID: string, at = this.#ports.clock.now()): void {
    addBounded(this.#renewals, sessionID, at, MOST_RENEWALS)
  }

  /**
   * Whether nobody can have taken this session's task over since the last write: not so after a long sleep, nor once it
   * is over.
   */
  #holds(sessionID: string): boolean {
    return this.#ports.clock.now() - (this.#renewals.get(sessionID) ?? Number.NEGATIVE_INFINITY) < LEASE_MS
  }

  /** What another living process has is its own, but for a new run of what is over; and no later run is written over. */
  #refuseTakenOver(session: Session, task: Task | undefined): void {
    const record = this.in(session)
    const ownership = record && ownershipOf(record.owner, this.#ports.instance)
    if (!record || ownership === "ours") return
    const { id, run } = record.task
    const ahead = task ? task.run.generation - run.generation : 0
    if (ahead > 0 && !isLookedAfter(record.task)) return
    if (ahead < 0 || ownership === "alive")
      throw new HostError(`another process has taken task ${id} over`, { takenOver: true })
  }

  /** Reads, merges and writes; `undefined` leaves the metadata as they are. */
  async #edit(sessionID: string, edit: (metadata: Metadata, session: Session) => Metadata | undefined): Promise<void> {
    const session = await call("read a session", this.#ports.client.session.get({ sessionID }))
    const metadata = edit(session.metadata ?? {}, session)
    if (metadata) await this.#write(sessionID, metadata)
  }

  async #write(sessionID: string, metadata: Metadata): Promise<void> {
    await call("write a session", this.#ports.client.session.update({ sessionID, metadata }))
  }
}

/** It runs, or its end is still to be told. */
const isLookedAfter = (task: Task): boolean => isActive(task) || owesNotification(task)
