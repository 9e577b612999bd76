import { z } from "zod"
import type { Owner, TaskRecord, TaskRequest } from "../../core/ports.ts"
import { parentSessionOf, type Task, type TaskDraft } from "../../core/task.ts"
import { Draft } from "./draft.ts"
import type { Signer } from "./signature.ts"

/** The key of our record among a session's metadata. */
export const RECORD_KEY = "superagents"
/** The key of what the companion wants done with the session's task. */
export const REQUEST_KEY = "superagentsRequest"
/** 1 was not signed. */
const VERSION = 2

const RecordSchema = z.object({
  version: z.literal(VERSION),
  /** The session the record was written for: a copy of it names another. Absent in a session's first moment. */
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

/** A session's row, as far as a record has to do with it. */
type Row = { readonly id: string; readonly parentID?: string; readonly metadata?: unknown }

/** The record as it is put into metadata. The session's id is not repeated in the task. */
export function encodeRecord(draft: TaskDraft & { sessionID?: string }, owner: Owner, signer: Signer): unknown {
  const { sessionID, ...task } = draft
  const record = { version: VERSION, session: sessionID, owner, task }
  return { ...record, signature: signer.sign(record) }
}

/**
 * The record in a session's metadata; undefined where there is none, where a newer version wrote it, or where it is not
 * this session's: a copy, or below another parent. With `signer`, only what this installation wrote is believed; a
 * screen, which acts on nothing, may do without.
 */
export function decodeRecord({ id, parentID, metadata }: Row, signer?: Signer): TaskRecord | undefined {
  const stored = stripped(metadata)
  if (!stored || (signer && !signer.isSigned(stored.record, stored.signature))) return undefined
  const parsed = RecordSchema.safeParse(stored.record)
  if (!parsed.success) return undefined
  const { session, owner, task } = parsed.data
  if (session !== undefined && session !== id) return undefined
  // What the host makes by copying has no parent: then the record has to name this very session.
  const isOfParent = (parentID ?? "") === parentSessionOf(task) || (parentID === undefined && session === id)
  return isOfParent ? { owner, task: { ...task, sessionID: id } satisfies Task } : undefined
}

/** What was signed, and the signature; undefined where the metadata has no record. */
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

/** The companion's request in a session's metadata, if there is one that can be read. */
export function decodeRequest(metadata: unknown): TaskRequest | undefined {
  const given = entry(metadata, REQUEST_KEY)
  // Asked of every session that changes: a failed parse would cost each of them an error with its stack.
  return given === undefined ? undefined : RequestSchema.safeParse(given).data
}

/** False for the record of a task's first moments, which is written with the session itself. */
export const namesItsSession = (metadata: unknown): boolean => stripped(metadata)?.record.session !== undefined

/** True where the metadata holds a record that a newer version wrote: it is left alone. */
export function isNewerVersion(metadata: unknown): boolean {
  const { version } = (stripped(metadata)?.record ?? {}) as { version?: unknown }
  return typeof version === "number" && version > VERSION
}

const entry = (metadata: unknown, key: string): unknown =>
  typeof metadata === "object" && metadata !== null && Object.hasOwn(metadata, key)
    ? (metadata as { [key: string]: unknown })[key]
    : undefined
