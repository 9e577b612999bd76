import { z } from "zod"
import type { ArchivedTask } from "../rules/archive.ts"
import { type BoardState, WAKE_CAUSES } from "../state.ts"
import { BOARD_STATUSES, type BoardStatus, type BoardTask, IS_ID, MOST_ID } from "../task.ts"

export const BOARD_FILE = "tasks.json"
/** The version of the format, where a file names one. */
const VERSION = 1

const absent = <Schema extends z.ZodType>(schema: Schema) => schema.nullish().transform((value) => value ?? undefined)
const ID = z.union([z.string(), z.int()]).transform(String).pipe(z.string().regex(IS_ID, "an id is a number, as text"))

const StepSchema = z.looseObject({
  title: z.string(),
  details: absent(z.string()),
  done: z.boolean().default(false),
  taskId: absent(ID),
})

const ResourceSchema = z.looseObject({ type: z.enum(["url", "file"]), value: z.string(), label: absent(z.string()) })

/** What a hand may leave out has a default; what it adds is kept. */
const taskSchema = (writtenAt: string) =>
  z.looseObject({
    id: ID,
    title: z.string(),
    description: z.string().default(""),
    owner: z.string(),
    createdBy: z.string().default("user"),
    status: z.enum(BOARD_STATUSES),
    steps: z.array(StepSchema).default([]),
    resources: z.array(ResourceSchema).default([]),
    threadId: absent(z.string()),
    createdAt: z.string().default(writtenAt),
    updatedAt: z.string().default(writtenAt),
  })

const PulseSchema = z.looseObject({
  wake: z
    .object({ at: z.string(), cause: z.enum(WAKE_CAUSES) })
    .optional()
    .catch(undefined),
  ran: z.string().optional().catch(undefined),
  failures: z.int().min(1).optional().catch(undefined),
  failure: z.string().optional().catch(undefined),
  needs: z.string().optional().catch(undefined),
})

const FileSchema = z.looseObject({
  version: z.unknown().optional(),
  tasks: z.array(z.unknown()),
  nextId: z.unknown().optional(),
  runtime: z
    .object({
      tick: z.string().optional().catch(undefined),
      tasks: z.record(z.string(), PulseSchema.catch({})).optional(),
    })
    .catch({})
    .optional(),
})

/** `tasks.json`, and what stands in it beside what we know. */
export type BoardFile = { readonly state: BoardState; readonly others: Readonly<Record<string, unknown>> }

export type Unreadable = { readonly problem: string }

/** Reads the text of `tasks.json`. What it does not know is kept; what it cannot read is a problem in one line. */
export function parseBoard(text: string, writtenAt: string): BoardFile | Unreadable {
  // Some editors put a mark before the first character.
  const json = parseJson(text.replace(/^\uFEFF/, ""))
  if (json === undefined) return { problem: text.trim() === "" ? "it is empty" : "it is not valid JSON" }
  const version = (json as { version?: unknown } | null)?.version
  if (typeof version === "number" && version > VERSION)
    return { problem: `it was written by a newer version (its format is ${version}, this one knows ${VERSION})` }
  const parsed = FileSchema.safeParse(json)
  if (!parsed.success) return { problem: problemOf(parsed.error) }
  const { nextId, runtime = {}, ...others } = parsed.data
  const tasks: BoardTask[] = []
  let schema: ReturnType<typeof taskSchema> | undefined
  for (const [index, value] of parsed.data.tasks.entries()) {
    // A thousand tasks as we write them are read within a few ms; only what a hand has written takes longer.
    if (isAsWritten(value)) {
      tasks.push(value)
      continue
    }
    schema ??= taskSchema(writtenAt)
    const read = schema.safeParse(value)
    if (!read.success) return { problem: problemOf(read.error, ["tasks", index]) }
    tasks.push(withoutAbsent(read.data) as BoardTask)
  }
  const { tasks: _tasks, ...kept } = others
  const [ids, threads] = [new Set<string>(), new Set<string>()]
  for (const [index, task] of tasks.entries()) {
    const { threadId, ...rest } = task
    if (ids.has(task.id)) return { problem: `two of its tasks have the id ${task.id}` }
    ids.add(task.id)
    if (threadId === undefined) continue
    // A task that a hand has copied: a thread is that of one task, and the other gets its own with its first run.
    if (threads.has(threadId)) tasks[index] = rest
    threads.add(threadId)
  }
  const pulses = Object.entries(runtime.tasks ?? {}).flatMap(([id, pulse]) => {
    const kept = withoutAbsent(pulse)
    return ids.has(id) && Object.keys(kept).length > 0 ? [[id, kept] as const] : []
  })
  const state: BoardState = {
    tasks,
    nextId: Math.max(isNextId(nextId) ? nextId : 1, highestId(tasks) + 1),
    ...(runtime.tick !== undefined && { tick: runtime.tick }),
    pulses: Object.fromEntries(pulses),
  }
  return { state, others: kept }
}

const isNextId = (value: unknown): value is number => Number.isInteger(value) && (value as number) <= MOST_ID
const isText = (value: unknown): value is string => typeof value === "string"
const isTextOrAbsent = (value: unknown): boolean => value === undefined || typeof value === "string"
const isIDOrAbsent = (value: unknown): boolean => value === undefined || (isText(value) && IS_ID.test(value))

/** Whether a task stands there as we write it ourselves: then there is nothing to mend. */
function isAsWritten(value: unknown): value is BoardTask {
  if (!isObject(value)) return false
  const { id, title, description, owner, createdBy, status, steps, resources, threadId, createdAt, updatedAt } =
    value as Record<string, unknown>
  if (!isText(id) || !IS_ID.test(id) || !isTextOrAbsent(threadId)) return false
  if (![title, description, owner, createdBy, createdAt, updatedAt].every(isText)) return false
  if (!BOARD_STATUSES.includes(status as BoardStatus) || !Array.isArray(steps) || !Array.isArray(resources))
    return false
  return steps.every(isStepAsWritten) && resources.every(isResourceAsWritten)
}

function isStepAsWritten(value: unknown): boolean {
  if (!isObject(value)) return false
  const { title, details, done, taskId } = value as Record<string, unknown>
  return isText(title) && isTextOrAbsent(details) && typeof done === "boolean" && isIDOrAbsent(taskId)
}

function isResourceAsWritten(given: unknown): boolean {
  if (!isObject(given)) return false
  const { type, value, label } = given as Record<string, unknown>
  return (type === "url" || type === "file") && isText(value) && isTextOrAbsent(label)
}

export function formatBoard({ state, others }: BoardFile): string {
  const { tasks, nextId, tick, pulses } = state
  const runtime = { ...(tick !== undefined && { tick }), tasks: pulses }
  return `${JSON.stringify({ ...others, tasks, nextId, runtime }, null, 2)}\n`
}

const LineSchema = taskSchema("").extend({ archivedAt: z.string() })

/** A line of history; undefined where it cannot be read. */
export function parseLine(line: string): ArchivedTask | undefined {
  const value = parseJson(line)
  if (isAsWritten(value) && "archivedAt" in value && isText(value.archivedAt)) return value as ArchivedTask
  const parsed = LineSchema.safeParse(value)
  return parsed.success ? (withoutAbsent(parsed.data) as ArchivedTask) : undefined
}

/** The id comes first: an index of history reads no more of a line. */
export const formatLine = ({ id, ...task }: ArchivedTask): string => `${JSON.stringify({ id, ...task })}\n`

/** The highest id in use, or named by a step. */
export function highestId(tasks: readonly BoardTask[]): number {
  const ids = tasks.flatMap(({ id, steps }) => [id, ...steps.map(({ taskId }) => taskId ?? "0")])
  return ids.reduce((highest, id) => Math.max(highest, Number(id)), 0)
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function problemOf({ issues: [issue] }: z.ZodError, above: readonly PropertyKey[] = []): string {
  const path = [...above, ...(issue?.path ?? [])]
  const where = path.map((key) => (typeof key === "number" ? `[${key}]` : `.${String(key)}`)).join("")
  return `${where.replace(/^\./, "") || "its content"}: ${issue?.message ?? "not valid"}`
}

/** The same without keys whose value is undefined, in lists of objects too. */
function withoutAbsent<Value extends object>(value: Value): Value {
  const entries = Object.entries(value).flatMap(([key, each]) => {
    if (each === undefined) return []
    return [
      [key, Array.isArray(each) ? each.map((item) => (isObject(item) ? withoutAbsent(item) : item)) : each] as const,
    ]
  })
  return Object.fromEntries(entries) as Value
}

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value)
