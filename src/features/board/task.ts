import { z } from "zod"
import type { PauseKind } from "../../core/pause.ts"
import { oneLine } from "../../lib/text.ts"

/**
 * A board task (`#5`) is work with steps that outlives a conversation; a thread is the session in which its owner works
 * on it. Plain data, changed only in `rules/`; not to be confused with a background task (`bg_…`).
 */

export const BOARD_STATUSES = ["draft", "active", "done", "canceled"] as const

export type BoardStatus = (typeof BOARD_STATUSES)[number]

/** A status as it is shown: stored it is `canceled`, all else that is shown spells it with two l. */
export const shownStatus = (status: BoardStatus): string => (status === "canceled" ? "cancelled" : status)

/** Longer ids could not be counted exactly; files with them are rejected. */
export const MOST_ID = 999_999_999_999_999

export const IS_ID = /^[1-9]\d{0,14}$/

export const MOST_STEP_TITLE_CHARS = 60

/** Most steps, and most resources, of a task. */
export const MOST_ITEMS = 100

/** Strict, because people copy it into commands. */
const IS_SESSION = /^ses_\w{1,80}$/

/** In edited files, null counts as absent. */
const absent = <Schema extends z.ZodType>(schema: Schema) =>
  schema
    .nullish()
    .transform((value) => value ?? undefined)
    .optional()

const ID = z.union([z.string(), z.int()]).transform(String).pipe(z.string().regex(IS_ID, "an id is a number, as text"))

/** A stored step; `taskId`: its subtask. The rules check lengths. */
export const stepSchema = z.object({
  title: z.string(),
  details: absent(z.string()),
  done: z.boolean().default(false),
  taskId: absent(ID),
})

/** A step as callers give it: they cannot link it to a subtask. */
export const newStepSchema = z.strictObject({
  title: z.string().describe(`At most ${MOST_STEP_TITLE_CHARS} characters.`),
  details: z.string().optional(),
  done: z.boolean().optional(),
})

/** `value`: a URL or an absolute path. */
export const resourceSchema = z.object({
  type: z.enum(["url", "file"]),
  value: z.string(),
  label: absent(z.string()),
})

export const newResourceSchema = z.strictObject({
  type: resourceSchema.shape.type,
  value: z.string().describe("The URL, or an absolute path."),
  label: z.string().optional(),
})

/** A task as callers give it: the owner defaults to the calling agent, the status to `active`. */
export const newTaskSchema = z.strictObject({
  title: z.string(),
  description: z.string().optional(),
  owner: z.string().optional(),
  status: z.enum(["active", "draft"]).optional(),
  steps: z.array(newStepSchema).optional(),
  resources: z.array(newResourceSchema).optional(),
})

/** Absent fields stay. `done` and `canceled` archive the task. */
export const taskPatchSchema = z.strictObject({
  title: z.string().optional(),
  description: z.string().optional(),
  owner: z.string().optional(),
  status: z.enum(BOARD_STATUSES).optional(),
})

/** A stored task. Times are ISO; `archivedAt` is set in history. */
export const taskSchema = z.object({
  /** Never reused. */
  id: ID,
  title: z.string(),
  description: z.string().default(""),
  /** Agent that works on it. */
  owner: z.string(),
  /** Agent that created it, or `user`. */
  createdBy: z.string().default("user"),
  status: z.enum(BOARD_STATUSES),
  steps: z.array(stepSchema).default([]),
  resources: z.array(resourceSchema).default([]),
  threadId: z.string().regex(IS_SESSION).optional().catch(undefined),
  createdAt: z.string().default(""),
  updatedAt: z.string().default(""),
  archivedAt: absent(z.string()),
})

type Frozen<Value> = Value extends readonly (infer Item)[]
  ? readonly Frozen<Item>[]
  : Value extends object
    ? { readonly [Key in keyof Value]: Frozen<Value[Key]> }
    : Value

export type PlanStep = Frozen<z.output<typeof stepSchema>>
export type NewStep = Frozen<z.input<typeof newStepSchema>>
export type NewTask = Frozen<z.input<typeof newTaskSchema>>
export type TaskPatch = Frozen<z.input<typeof taskPatchSchema>>
export type Resource = Frozen<z.output<typeof resourceSchema>>
export type BoardTask = Frozen<z.output<typeof taskSchema>>

/** Example: `#5 Title`, on one line. */
export const headOf = ({ id, title }: Pick<BoardTask, "id" | "title">): string => `#${id} ${oneLine(title)}`

/** Current state of a task and its reason. */
export type TaskState = {
  readonly state:
    | "draft"
    | "done"
    | "canceled"
    | "running"
    | "queued"
    | PauseKind
    | "waits"
    | "needs you"
    | "waiting for a person"
    | "next run"
    | "rests"
  /** Cause of the state: what the task waits for or needs, or its next time; may be empty. */
  readonly reason: string
  /** State and reason in one line: `waits for #6`, `needs you: …`, `next run 14:00`. */
  readonly text: string
}

/** State for a model, which is not the "you" of "needs you". */
export const toModel = ({ state, reason, text }: TaskState): string =>
  state === "needs you" ? `waits for the user, who alone can answer, in its thread: ${reason}` : text

/** Whether two versions are equal except for plan and resources. */
export const isSameText = (one: BoardTask, other: BoardTask): boolean =>
  (["title", "description", "owner", "status"] as const).every((key) => one[key] === other[key])
