import { z } from "zod"
import type { Owner, TaskRecord, TaskRequest } from "../core/ports.ts"
import type { Task, TaskDraft } from "../core/task.ts"

/** The key of our record among a session's metadata. */
export const RECORD_KEY = "superagents"
/** The key of what the companion wants done with the session's task. */
export const REQUEST_KEY = "superagentsRequest"
const VERSION = 1

const Usage = z.object({
  input: z.number(),
  output: z.number(),
  reasoning: z.number(),
  cacheRead: z.number(),
  cacheWrite: z.number(),
  cost: z.number(),
})

const Reason = z.object({
  code: z.enum([
    "provider",
    "host",
    "empty",
    "timeout",
    "silence",
    "tokens",
    "interrupted",
    "cancelled",
    "aborted",
    "deleted",
    "parent-ended",
  ]),
  text: z.string(),
})

const Run = z.object({
  generation: z.int().min(0),
  promptID: z.string(),
  createdAt: z.number(),
  startedAt: z.number().optional(),
  endedAt: z.number().optional(),
  timeout: z.number(),
  usageBefore: Usage,
  queuedPrompt: z.string().optional(),
})

const Outcome = z.object({
  reason: Reason.optional(),
  note: z.string().optional(),
  toolCalls: z.number(),
  usage: Usage,
  openTodos: z.number(),
  filesChanged: z.array(z.string()),
})

const Delivery = z.union([
  z.object({ state: z.literal("none") }),
  z.object({
    state: z.enum(["pending", "sent", "confirmed", "abandoned"]),
    wake: z.boolean(),
    done: z.number(),
    total: z.number(),
    running: z.number(),
  }),
])

const Draft = z.object({
  id: z.string(),
  parentID: z.string(),
  parentMessageID: z.string(),
  description: z.string(),
  agent: z.string(),
  model: z.object({ provider: z.string(), id: z.string(), variant: z.string().optional() }).optional(),
  batch: z.string(),
  depth: z.int().min(1),
  fork: z
    .object({ messages: z.number(), tokens: z.number(), droppedMessages: z.number(), cutResults: z.number() })
    .optional(),
  usageBefore: Usage,
  fingerprint: z.string(),
  status: z.enum(["running", "completed", "error", "cancelled", "resumed"]),
  run: Run,
  outcome: Outcome.optional(),
  delivery: Delivery,
  retrievedAt: z.number().optional(),
})

const Record = z.object({
  version: z.literal(VERSION),
  /** The session the record was written for: a fork's copy of it names another. Absent in a session's first moment. */
  session: z.string().optional(),
  owner: z.object({ pid: z.number(), startedAt: z.number(), instance: z.string(), seenAt: z.number() }),
  task: Draft,
})

/** The record as it is put into metadata. The session's id is not repeated in the task. */
export function encodeRecord(draft: TaskDraft & { sessionID?: string }, owner: Owner): unknown {
  const { sessionID, ...task } = draft
  return { version: VERSION, session: sessionID, owner, task }
}

/**
 * The record in a session's metadata; undefined where there is none, where a newer version wrote it, or where it was
 * written for another session.
 */
export function decodeRecord(metadata: unknown, sessionID: string): TaskRecord | undefined {
  if (typeof metadata !== "object" || metadata === null || !Object.hasOwn(metadata, RECORD_KEY)) return undefined
  const parsed = Record.safeParse((metadata as { [RECORD_KEY]: unknown })[RECORD_KEY])
  if (!parsed.success) return undefined
  const { session, owner, task } = parsed.data
  if (session !== undefined && session !== sessionID) return undefined
  return { owner, task: { ...task, sessionID } satisfies Task }
}

const Request = z.object({
  id: z.string().min(1),
  action: z.enum(["cancel", "clear", "resume"]),
  prompt: z.string().optional(),
})

/** The companion's request in a session's metadata, if there is one that can be read. */
export function decodeRequest(metadata: unknown): TaskRequest | undefined {
  if (typeof metadata !== "object" || metadata === null || !Object.hasOwn(metadata, REQUEST_KEY)) return undefined
  return Request.safeParse((metadata as { [REQUEST_KEY]: unknown })[REQUEST_KEY]).data
}

/** True where the metadata holds a record that a newer version wrote: it is left alone. */
export function isForeignVersion(metadata: unknown): boolean {
  if (typeof metadata !== "object" || metadata === null || !Object.hasOwn(metadata, RECORD_KEY)) return false
  const record = (metadata as { [RECORD_KEY]: unknown })[RECORD_KEY]
  return typeof record === "object" && record !== null && "version" in record && record.version !== VERSION
}
