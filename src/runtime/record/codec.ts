import { z } from "zod"
import type { AskOptions, Owner, TaskRecord, TaskRequest } from "../../core/ports.ts"
import { type GroupSchemas, RECORD_VERSION, record } from "../../core/record.ts"
import { type Ask, PREPARING, type Preparing, parentSessionOf, type Task, type TaskDraft } from "../../core/task.ts"
import type { Signer } from "./identity.ts"

/** Key of the record in a session's metadata. */
export const RECORD_KEY = "superagents"
/** Key of the terminal's request for the session's task. */
export const REQUEST_KEY = "superagentsRequest"
/** Key that names the task of a thread of the board: such a session is no conversation of a user. */
export const THREAD_KEY = "superagentsBoard"

type Row = { readonly id: string; readonly parentID?: string; readonly metadata?: unknown }

/** Record for the metadata. The session's id is not repeated in the task. */
export function encodeRecord(draft: TaskDraft & { sessionID?: string }, owner: Owner, signer: Signer): unknown {
  const { sessionID, ...task } = draft
  const unsigned = { version: RECORD_VERSION, session: sessionID, owner, task }
  return { ...unsigned, signature: signer.sign(unsigned) }
}

/** Reads records whose groups are of these kinds. */
export type RecordDecoder = ReturnType<typeof recordDecoder>

export function recordDecoder(kinds: readonly GroupSchemas[]) {
  const schema = lazy(() => record(z, kinds))
  /**
   * Reads the record in a session's metadata. Undefined if there is none, a newer version wrote it, or it is a copy.
   * With `signer`, only this installation's records are accepted; the terminal passes none, because it only displays
   * tasks.
   */
  return ({ id, parentID, metadata }: Row, signer?: Signer): TaskRecord | undefined => {
    const stored = stripped(metadata)
    if (!stored || (signer && !signer.isSigned(stored.record, stored.signature))) return undefined
    const parsed = schema().safeParse(stored.record)
    if (!parsed.success) return undefined
    const { session, owner, task } = parsed.data
    if (session !== undefined && session !== id) return undefined
    // A session without a parent may be a copy that OpenCode made, so its record must name this session.
    const isOfParent = (parentID ?? "") === parentSessionOf(task) || (parentID === undefined && session === id)
    return isOfParent ? { owner, task: { ...task, sessionID: id } satisfies Task } : undefined
  }
}

/** Signed part and signature; undefined without a record. */
function stripped(metadata: unknown): { record: Readonly<{ [key: string]: unknown }>; signature: unknown } | undefined {
  const stored = entry(metadata, RECORD_KEY)
  if (typeof stored !== "object" || stored === null) return undefined
  const { signature, ...record } = stored as { signature?: unknown }
  return { record, signature }
}

const requestSchema = lazy(() =>
  z.object({
    id: z.string().min(1),
    action: z.enum(["cancel", "clear", "resume", "tell", "unpark", "answer"]),
    generation: z.int().optional(),
    prompt: z.string().optional(),
    ask: z.string().optional(),
    reply: z
      .union([
        z.strictObject({ reply: z.enum(["once", "always", "reject"]), message: z.string().optional() }),
        z.strictObject({ answers: z.array(z.array(z.string())) }),
        z.strictObject({ dismiss: z.literal(true) }),
      ])
      .optional(),
  }),
)

/** The terminal's request in a session's metadata, if valid. */
export function decodeRequest(metadata: unknown): TaskRequest | undefined {
  const given = entry(metadata, REQUEST_KEY)
  // No error is thrown here: this runs for every changed session, and each error would cost a stack trace.
  return given === undefined ? undefined : requestSchema().safeParse(given).data
}

/** Whether the session has a record, even one that cannot be read or is not trusted. */
export const hasRecord = (metadata: unknown): boolean => stripped(metadata) !== undefined

/** False for a session's first record, which is written at the session's creation and does not name the session. */
export const namesItsSession = (metadata: unknown): boolean => stripped(metadata)?.record.session !== undefined

/** True if a newer version of the plugin wrote the record, which must then be left alone. */
export function isNewerVersion(metadata: unknown): boolean {
  const { version } = (stripped(metadata)?.record ?? {}) as { version?: unknown }
  return typeof version === "number" && version > RECORD_VERSION
}

const entry = (metadata: unknown, key: string): unknown =>
  typeof metadata === "object" && metadata !== null && Object.hasOwn(metadata, key)
    ? (metadata as { [key: string]: unknown })[key]
    : undefined

/** Metadata key for the display of a remote task, whose session sends no events here. */
export const UI_METADATA_KEY = "superagentsSigns"

/** A question with its options, stored because the terminal cannot read the remote session. */
export type RemoteAsk = Ask & { readonly offers: AskOptions }

export type UiMetadata = {
  /** Name of the host while it is out of reach. */
  readonly away?: string
  readonly preparing?: Preparing
  /** The task has ended, and its changes are being fetched. */
  readonly fetches?: true
  readonly asks: readonly RemoteAsk[]
}

const uiMetadataSchema = lazy(() => {
  const text = z.string().max(4000)
  const texts = z.array(text).max(50)
  return z.object({
    away: z.string().max(64).optional(),
    preparing: z.string().max(100).regex(PREPARING).optional(),
    fetches: z.literal(true).optional(),
    asks: z
      .array(
        z.object({
          id: text,
          sessionID: text,
          kind: z.enum(["permission", "question"]),
          what: text,
          askedAt: z.number(),
          offers: z.union([
            z.object({ kind: z.literal("permission"), permission: text, patterns: texts, always: texts }),
            z.object({
              kind: z.literal("question"),
              questions: z
                .array(
                  z.object({
                    question: text,
                    header: text,
                    options: z.array(z.object({ label: text, description: text })).max(50),
                    multiple: z.boolean(),
                    custom: z.boolean(),
                  }),
                )
                .max(20),
            }),
          ]),
        }),
      )
      .max(20),
  })
})

export function decodeUiMetadata(metadata: unknown): UiMetadata | undefined {
  const given = (metadata as Record<string, unknown> | null | undefined)?.[UI_METADATA_KEY]
  // No error is thrown here: this runs for every changed session, and each error would cost a stack trace.
  return given === undefined ? undefined : (uiMetadataSchema().safeParse(given).data as UiMetadata | undefined)
}

/** UI metadata to store; undefined where empty or too large. */
export function encodeUiMetadata({ away, preparing, fetches, asks }: UiMetadata): UiMetadata | undefined {
  if (away === undefined && preparing === undefined && !fetches && asks.length === 0) return undefined
  // The diff of a permission is not stored.
  const plain = asks.map(({ offers, ...ask }) => ({
    ...ask,
    offers: offers.kind === "permission" ? { ...offers, diff: undefined } : offers,
  }))
  const read = uiMetadataSchema().safeParse({ away, preparing, fetches, asks: plain })
  return read.success ? (read.data as UiMetadata) : undefined
}

/** Calls `build` at the first use. For schemas, which take too long to build while OpenCode starts. */
function lazy<Built extends object>(build: () => Built): () => Built {
  let built: Built | undefined
  return () => {
    built ??= build()
    return built
  }
}
