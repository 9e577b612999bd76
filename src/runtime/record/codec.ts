import { z } from "zod"
import { PAUSE_FIELDS } from "../../core/pause.ts"
import type { Owner, TaskRecord, TaskRequest } from "../../core/ports.ts"
import { parentSessionOf, REASON_CODES, STATUSES, type Task, type TaskDraft } from "../../core/task.ts"
import type { Signer } from "./identity.ts"

const Usage = z.object({
  input: z.number(),
  output: z.number(),
  reasoning: z.number(),
  cacheRead: z.number(),
  cacheWrite: z.number(),
  cost: z.number(),
  atLeast: z.literal(true).optional(),
})

const Reason = z.object({ code: z.enum(REASON_CODES), text: z.string() })

/** The schema is kept as given, because copying its keys would lose a key named `__proto__`. */
const Schema = z.custom<Readonly<Record<string, unknown>>>(
  (given) => typeof given === "object" && given !== null && !Array.isArray(given),
)

const Model = z.object({ provider: z.string(), id: z.string(), variant: z.string().optional() })

const Run = z.object({
  generation: z.int().min(0),
  promptID: z.string(),
  createdAt: z.number(),
  startedAt: z.number().optional(),
  endedAt: z.number().optional(),
  timeout: z.number(),
  budget: z.object({ max: z.number(), before: z.number() }).optional(),
  recent: z.array(z.object({ endedAt: z.number(), cost: z.number() })).optional(),
  after: z.array(z.string()).optional(),
  heldBehind: z.string().optional(),
  lastWordAt: z.number().optional(),
  lastWordFor: Reason.optional(),
  check: z.string().optional(),
  guard: z.array(z.string()).optional(),
  files: z.array(z.string()).optional(),
  schema: Schema.optional(),
  ...PAUSE_FIELDS,
  stillSince: z.number().optional(),
  stillMs: z.number().optional(),
  parentStopped: z.literal(true).optional(),
  model: Model.optional(),
  switches: z.array(z.object({ model: z.string(), step: z.number(), why: z.string() })).optional(),
})

const TestCount = z.object({ passed: z.number(), failed: z.number(), skipped: z.number() })

const Command = { command: z.string(), exitCode: z.number().optional(), tests: TestCount.optional() }

const Check = z.object({
  command: z.string(),
  passed: z.boolean(),
  runs: z.number(),
  how: z.string(),
  tests: TestCount.optional(),
  output: z.string().optional(),
  touched: z.array(z.string()).optional(),
  guarded: z.array(z.string()).optional(),
})

const Receipt = z.object({
  commands: z.number(),
  failed: z.number(),
  cut: z.number(),
  latest: z.array(z.object(Command)),
  telling: z.array(z.object({ ...Command, end: z.enum(["failed", "passed", "reported"]) })).optional(),
  check: Check.optional(),
})

const Group = z.union([
  z.object({
    kind: z.literal("tries"),
    prompt: z.string(),
    count: z.number(),
    ladder: z.array(z.string()).optional(),
    timeout: z.number(),
    winner: z.string().optional(),
    passed: Check.optional(),
    again: z.string().optional(),
  }),
  z.object({
    kind: z.literal("each"),
    prompt: z.string(),
    total: z.number(),
    timeout: z.number(),
    file: z.string(),
    place: z.object({ kind: z.string(), folder: z.string(), merge: z.boolean() }).optional(),
  }),
])

const Part = z.object({
  kind: z.enum(["tries", "each"]),
  of: z.string(),
  nth: z.number(),
  run: z.number(),
  caller: z.string(),
  under: z.string(),
})

const TryRow = z.object({
  model: z.string().optional(),
  how: z.string(),
  ms: z.number(),
  cost: z.number(),
  task: z.string().optional(),
  session: z.string().optional(),
  ref: z.string().optional(),
  guard: z.enum(["held", "broken"]).optional(),
})

const GroupResult = z.union([
  z.object({ kind: z.literal("tries"), won: z.string().optional(), cost: z.number(), rows: z.array(TryRow) }),
  z.object({
    kind: z.literal("each"),
    total: z.number(),
    valid: z.number(),
    failed: z.number(),
    notBegun: z.number(),
    unmerged: z.number().optional(),
    cost: z.number(),
    file: z.string(),
    groups: z.array(z.object({ why: z.string(), count: z.number(), first: z.array(z.number()) })),
  }),
])

const Work = z.object({
  files: z.array(z.string()),
  moreFiles: z.number(),
  added: z.number(),
  removed: z.number(),
  submodules: z.array(z.string()),
  held: z.object({ folder: z.string(), because: z.array(z.string()) }).optional(),
  notes: z.array(z.string()).optional(),
  merge: z
    .object({
      kind: z.enum(["merged", "nothing", "conflict", "refused"]),
      files: z.array(z.string()),
      leftOut: z.array(z.string()).optional(),
      text: z.string().optional(),
    })
    .optional(),
})

const Outcome = z.object({
  reason: Reason.optional(),
  note: z.string().optional(),
  toolCalls: z.number(),
  recentTools: z.array(z.string()),
  usage: Usage,
  openTodos: z.number(),
  filesChanged: z.array(z.string()),
  moreFiles: z.number(),
  meanwhile: z.object({ files: z.array(z.string()), more: z.number() }).optional(),
  saidLastWord: z.boolean().optional(),
  thought: z.string().optional(),
  unanswered: z.array(z.string()).optional(),
  value: z
    .union([
      z.object({
        valid: z.literal(true),
        asked: z.number(),
        at: z.number(),
        length: z.number(),
        file: z.string().optional(),
        refused: z.number().optional(),
      }),
      z.object({ valid: z.literal(false), asked: z.number(), refused: z.number().optional() }),
    ])
    .optional(),
  receipt: Receipt.optional(),
  work: Work.optional(),
  team: GroupResult.optional(),
  first: z.object({ read: z.number(), of: z.number() }).optional(),
})

const Delivery = z.union([
  z.object({ state: z.literal("none") }),
  z.object({
    state: z.enum(["pending", "confirmed", "abandoned"]),
    wake: z.boolean(),
    done: z.number(),
    total: z.number(),
    running: z.number(),
  }),
])

/** A task as stored in its record, without the id of its session. */
const Draft = z.object({
  id: z.string(),
  parentID: z.string(),
  parentMessageID: z.string(),
  description: z.string(),
  agent: z.string(),
  model: Model.optional(),
  batch: z.string(),
  depth: z.int().min(0),
  fork: z
    .object({
      messages: z.number(),
      tokens: z.number(),
      droppedMessages: z.number(),
      cutResults: z.number(),
      cuts: z.array(z.object({ tool: z.string(), call: z.string(), kept: z.number(), of: z.number() })).optional(),
      whole: z.literal(true).optional(),
      rides: z.string().optional(),
      briefed: z.literal(true).optional(),
      price: z.object({ cached: z.number(), anew: z.number() }).optional(),
      why: z.string().optional(),
    })
    .optional(),
  place: z.object({ kind: z.string(), folder: z.string(), merge: z.boolean() }).optional(),
  team: Group.optional(),
  part: Part.optional(),
  createdAt: z.number(),
  earlier: z.object({ toolCalls: z.number(), usage: Usage }),
  fingerprint: z.string(),
  status: z.enum(STATUSES),
  run: Run,
  outcome: Outcome.optional(),
  delivery: Delivery,
  retrievedAt: z.number().optional(),
  forgotten: z.literal(true).optional(),
})

/** Key of the record in a session's metadata. */
export const RECORD_KEY = "superagents"
/** Key of the terminal's request for the session's task. */
export const REQUEST_KEY = "superagentsRequest"
/** Records of version 1 were not signed and are not accepted. */
const VERSION = 2

const RecordSchema = z.object({
  version: z.literal(VERSION),
  /**
   * Session that the record was written for, so that a copy in another session is recognized. Absent when the session
   * is created.
   */
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
 * Reads the record in a session's metadata. Undefined if there is none, a newer version wrote it, or it is a copy. With
 * `signer`, only this installation's records are accepted; the terminal passes none, because it only displays tasks.
 */
export function decodeRecord({ id, parentID, metadata }: Row, signer?: Signer): TaskRecord | undefined {
  const stored = stripped(metadata)
  if (!stored || (signer && !signer.isSigned(stored.record, stored.signature))) return undefined
  const parsed = RecordSchema.safeParse(stored.record)
  if (!parsed.success) return undefined
  const { session, owner } = parsed.data
  const task = fromStored(parsed.data.task)
  if (session !== undefined && session !== id) return undefined
  // A session without a parent may be a copy that OpenCode made, so its record must name this session.
  const isOfParent = (parentID ?? "") === parentSessionOf(task) || (parentID === undefined && session === id)
  return isOfParent ? { owner, task: { ...task, sessionID: id } satisfies Task } : undefined
}

/** Converts a task to its stored form, in which a group is called `team`, and a member's place in its group `part`. */
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
  // No error is thrown here: this runs for every changed session, and each error would cost a stack trace.
  return given === undefined ? undefined : RequestSchema.safeParse(given).data
}

/** False for a session's first record, which is written at the session's creation and does not name the session. */
export const namesItsSession = (metadata: unknown): boolean => stripped(metadata)?.record.session !== undefined

/** True if a newer version of the plugin wrote the record, which must then be left alone. */
export function isNewerVersion(metadata: unknown): boolean {
  const { version } = (stripped(metadata)?.record ?? {}) as { version?: unknown }
  return typeof version === "number" && version > VERSION
}

const entry = (metadata: unknown, key: string): unknown =>
  typeof metadata === "object" && metadata !== null && Object.hasOwn(metadata, key)
    ? (metadata as { [key: string]: unknown })[key]
    : undefined
