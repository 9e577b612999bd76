import { z } from "zod"
import type { Owner, TaskRecord, TaskRequest } from "../../core/ports.ts"
import { parentSessionOf, type Task, type TaskDraft } from "../../core/task.ts"
import { Draft } from "./draft.ts"
import type { Signer } from "./signature.ts"

/** Key of the record in a session's metadata. */
export const RECORD_KEY = "superagents"
/** Key of the terminal's request for the session's task. */
export const REQUEST_KEY = "superagentsRequest"
/** Version 1 was not signed. */
const VERSION = 2

const RecordSchema = z.object({
  version: z.literal(VERSION),
  /** Session that the record was written for: a copy names another. Absent when the session is created. */
  session: z.string().optional(),
  owner: z.object({
    pid: z.number(),
    machine: z.string(),
    boot: z.string(),
    namespace: z.string(),
    started: z.string(),
    instance: z.string(),
    folder: z.string().optional(),
    seenAt: z.number(),
  }),
  task: Draft,
})

type Row = { readonly id: string; readonly parentID?: string; readonly metadata?: unknown }

/** Record for the metadata. The session's id is not repeated in the task. */
export function encodeRecord(draft: TaskDraft & { sessionID?: string }, owner: Owner, signer: Signer): unknown {
  const { sessionID, ...task } = draft
  const record = { version: VERSION, session: sessionID, owner, task: toStored(task) }
  return { ...record, signature: signer.sign(record) }
}

/**
 * Record in a session's metadata; undefined where there is none, a newer version wrote it, or it is a copy. With
 * `signer`, only this installation's records are accepted; the terminal, which only displays, needs none.
 */
export function decodeRecord({ id, parentID, metadata }: Row, signer?: Signer): TaskRecord | undefined {
  const stored = stripped(metadata)
  if (!stored || (signer && !signer.isSigned(stored.record, stored.signature))) return undefined
  const parsed = RecordSchema.safeParse(stored.record)
  if (!parsed.success) return undefined
  const { session, owner } = parsed.data
  const task = fromStored(parsed.data.task)
  if (session !== undefined && session !== id) return undefined
  // Copies that OpenCode makes have no parent: the record must then name this session.
  const isOfParent = (parentID ?? "") === parentSessionOf(task) || (parentID === undefined && session === id)
  return isOfParent ? { owner, task: { ...task, sessionID: id } satisfies Task } : undefined
}

/** Stored tasks call a group `team`, and a member's place in its group `part`. */
function toStored({ group, member, outcome, ...task }: TaskDraft) {
  const { group: result, ...rest } = outcome ?? {}
  return {
    ...task,
    ...(group && { team: group }),
    ...(member && { part: member }),
    ...(outcome && { outcome: { ...rest, ...(result && { team: result }) } }),
  }
}

function fromStored({ team, part, outcome, ...task }: z.infer<typeof Draft>): TaskDraft {
  const { team: result, ...rest } = outcome ?? {}
  return {
    ...task,
    ...(team && { group: team }),
    ...(part && { member: part }),
    ...(outcome && { outcome: { ...rest, ...(result && { group: result }) } }),
  } as TaskDraft
}

/** Signed part and signature; undefined without a record. */
function stripped(metadata: unknown): { record: Readonly<{ [key: string]: unknown }>; signature: unknown } | undefined {
  const stored = entry(metadata, RECORD_KEY)
  if (typeof stored !== "object" || stored === null) return undefined
  const { signature, ...record } = stored as { signature?: unknown }
  return { record, signature }
}

const RequestSchema = z.object({
  id: z.string().min(1),
  action: z.enum(["cancel", "clear", "resume", "tell", "unpark", "answer"]),
  prompt: z.string().optional(),
  ask: z.string().optional(),
  reply: z
    .union([
      z.strictObject({ reply: z.enum(["once", "always", "reject"]), message: z.string().optional() }),
      z.strictObject({ answers: z.array(z.array(z.string())) }),
      z.strictObject({ dismiss: z.literal(true) }),
    ])
    .optional(),
})

/** The terminal's request in a session's metadata, if valid. */
export function decodeRequest(metadata: unknown): TaskRequest | undefined {
  const given = entry(metadata, REQUEST_KEY)
  // Called for every changed session: a thrown parse error would cost a stack trace each.
  return given === undefined ? undefined : RequestSchema.safeParse(given).data
}

/** False for the first record, which is written with the session itself. */
export const namesItsSession = (metadata: unknown): boolean => stripped(metadata)?.record.session !== undefined

/** A newer version wrote the record: it must be left alone. */
export function isNewerVersion(metadata: unknown): boolean {
  const { version } = (stripped(metadata)?.record ?? {}) as { version?: unknown }
  return typeof version === "number" && version > VERSION
}

const entry = (metadata: unknown, key: string): unknown =>
  typeof metadata === "object" && metadata !== null && Object.hasOwn(metadata, key)
    ? (metadata as { [key: string]: unknown })[key]
    : undefined
