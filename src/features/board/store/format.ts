import { setImmediate as nextTurn } from "node:timers/promises"
import { z } from "zod"
import type { BoardState } from "../state.ts"
import { type ArchivedTask, archivedTaskSchema, type BoardTask, MOST_ID, taskSchema } from "../task.ts"

export const BOARD_FILE = "tasks.json"
/** Format version. */
const VERSION = 1
/** Parsing this many takes about a millisecond. */
const TASKS_A_TURN = 25

const FileSchema = z.looseObject({
  version: z.unknown().refine((version) => typeof version !== "number" || version <= VERSION, {
    error: ({ input }) => `a newer version wrote the file (its format is ${input}, this one knows ${VERSION})`,
  }),
  tasks: z.array(z.unknown()),
  nextId: z.int().max(MOST_ID).catch(1),
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
  const parsed = FileSchema.safeParse(json)
  if (!parsed.success) return { problem: problemOf(parsed.error) }
  // Run state stood here in an earlier version. It is now stored elsewhere, since anybody could write it here.
  const { tasks: given, nextId, runtime: _remembered, ...others } = parsed.data
  const tasks: BoardTask[] = []
  for (const [index, value] of given.entries()) {
    if (index > 0 && index % TASKS_A_TURN === 0) await nextTurn()
    const task = taskSchema.safeParse(value)
    if (!task.success) return { problem: problemOf(task.error, ["tasks", index]) }
    tasks.push(withTimes(task.data, writtenAt))
  }
  const ids = new Set<string>()
  for (const { id } of tasks) {
    if (ids.has(id)) return { problem: `two of its tasks have the id ${id}` }
    ids.add(id)
  }
  return { tasks, nextId: Math.max(nextId, highestId(tasks) + 1), others }
}

const withTimes = (task: BoardTask, writtenAt: string): BoardTask => ({
  ...task,
  createdAt: task.createdAt || writtenAt,
  updatedAt: task.updatedAt || writtenAt,
})

export const formatBoard = ({ tasks, nextId, others }: BoardFile): string =>
  `${JSON.stringify({ ...others, tasks, nextId }, null, 2)}\n`

/** Undefined for an unreadable line. */
export const parseLine = (line: string): ArchivedTask | undefined => archivedTaskSchema.safeParse(parseJson(line)).data

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
