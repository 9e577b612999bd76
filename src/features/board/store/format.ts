import { setImmediate as nextTurn } from "node:timers/promises"
import { z } from "zod"
import type { ArchivedTask } from "../rules/archive.ts"
import type { BoardState } from "../state.ts"
import { type BoardTask, MOST_ID, resourceSchema, stepSchema, taskSchema } from "../task.ts"

export const BOARD_FILE = "tasks.json"
/** Format version. */
const VERSION = 1
/** Parsing this many takes about a millisecond. */
const TASKS_A_TURN = 25

/** Keeps unknown fields, nested ones too. */
const TaskInFile = taskSchema
  .extend({
    steps: z.array(stepSchema.loose()).default([]),
    resources: z.array(resourceSchema.loose()).default([]),
  })
  .loose()

const LineSchema = TaskInFile.extend({ archivedAt: z.string() })

const FileSchema = z.looseObject({
  version: z.unknown().optional(),
  tasks: z.array(z.unknown()),
  nextId: z.unknown().optional(),
})

/** Content of `tasks.json`, with unknown fields beside it. */
export type BoardFile = Pick<BoardState, "tasks" | "nextId"> & { readonly others: Readonly<Record<string, unknown>> }

export type Unreadable = { readonly problem: string }

/**
 * Parses `tasks.json` of time `writtenAt`; a fault is returned as one line. Large boards are parsed in slices, because
 * OpenCode has one thread.
 */
export async function parseBoard(text: string, writtenAt: string): Promise<BoardFile | Unreadable> {
  // Some editors write a byte order mark.
  const json = parseJson(text.replace(/^\uFEFF/, ""))
  if (json === undefined) return { problem: text.trim() === "" ? "it is empty" : "it is not valid JSON" }
  const version = (json as { version?: unknown } | null)?.version
  if (typeof version === "number" && version > VERSION)
    return { problem: `it was written by a newer version (its format is ${version}, this one knows ${VERSION})` }
  const parsed = FileSchema.safeParse(json)
  if (!parsed.success) return { problem: problemOf(parsed.error) }
  // Run state stood here in an earlier version. It is now stored elsewhere, since anybody could write it here.
  const { tasks: given, nextId, runtime: _remembered, ...others } = parsed.data
  const tasks: BoardTask[] = []
  for (const [index, value] of given.entries()) {
    if (index > 0 && index % TASKS_A_TURN === 0) await nextTurn()
    const task = TaskInFile.safeParse(value)
    if (!task.success) return { problem: problemOf(task.error, ["tasks", index]) }
    tasks.push(withTimes(withoutAbsent(task.data) as BoardTask, writtenAt))
  }
  const ids = new Set<string>()
  for (const { id } of tasks) {
    if (ids.has(id)) return { problem: `two of its tasks have the id ${id}` }
    ids.add(id)
  }
  return { tasks, nextId: Math.max(isNextId(nextId) ? nextId : 1, highestId(tasks) + 1), others }
}

const withTimes = (task: BoardTask, writtenAt: string): BoardTask => ({
  ...task,
  createdAt: task.createdAt || writtenAt,
  updatedAt: task.updatedAt || writtenAt,
})

const isNextId = (value: unknown): value is number => Number.isInteger(value) && (value as number) <= MOST_ID

export const formatBoard = ({ tasks, nextId, others }: BoardFile): string =>
  `${JSON.stringify({ ...others, tasks, nextId }, null, 2)}\n`

/** Undefined for an unreadable line. */
export function parseLine(line: string): ArchivedTask | undefined {
  const parsed = LineSchema.safeParse(parseJson(line))
  return parsed.success ? (withoutAbsent(parsed.data) as ArchivedTask) : undefined
}

/** The id comes first, so that the index can read only the beginning of a line. */
export const formatLine = ({ id, ...task }: ArchivedTask): string => `${JSON.stringify({ id, ...task })}\n`

/** Highest id in use, or named by a step. */
export function highestId(tasks: readonly BoardTask[]): number {
  const ids = tasks.flatMap(({ id, steps }) => [id, ...steps.map(({ taskId }) => taskId ?? "0")])
  return ids.reduce((highest, id) => Math.max(highest, Number(id)), 0)
}

export function parseJson(text: string): unknown {
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

/** Removes keys with undefined values, nested ones too. */
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
