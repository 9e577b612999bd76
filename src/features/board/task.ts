import { z } from "zod"
import type { PauseKind } from "../../core/pause.ts"
import { oneLine } from "../../lib/text.ts"

/**
 * The board's words: a board task (`#5`) is work with steps that outlives a conversation; a thread is the OpenCode
 * session in which its owner works on it. Not to be confused with a background task (`bg_…`) of the core. Everything
 * here is plain data, as it stands in the files; a board changes only in `rules/`.
 */

export const BOARD_STATUSES = ["draft", "active", "done", "canceled"] as const

export type BoardStatus = (typeof BOARD_STATUSES)[number]

/** Ids have at most 15 digits: the files are not read with longer ones, which could not be counted on any more. */
export const MOST_ID = 999_999_999_999_999

export const IS_ID = /^[1-9]\d{0,14}$/

export const MOST_STEP_TITLE_CHARS = 60

/** Of one task's steps, and of its resources. */
export const MOST_ITEMS = 100

/** One form everywhere: it stands in commands that people copy. */
const IS_SESSION = /^ses_\w{1,80}$/

/** What a hand leaves out, or sets to null, is not there. */
const absent = <Schema extends z.ZodType>(schema: Schema) =>
  schema
    .nullish()
    .transform((value) => value ?? undefined)
    .optional()

const ID = z.union([z.string(), z.int()]).transform(String).pipe(z.string().regex(IS_ID, "an id is a number, as text"))

/** A step, as it is stored; `taskId` is the subtask that does it. Lengths are for the rules to check. */
export const stepSchema = z.object({
  title: z.string(),
  details: absent(z.string()),
  done: z.boolean().default(false),
  taskId: absent(ID),
})

/** A step as callers give it: its link to a subtask is not theirs to draw. */
export const newStepSchema = z.strictObject({
  title: z.string().describe(`At most ${MOST_STEP_TITLE_CHARS} characters.`),
  details: z.string().optional(),
  done: z.boolean().optional(),
})

/** `value` is a URL or an absolute path. */
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

/** A task as callers give it: an agent that names no owner means itself; `active` unless said. */
export const newTaskSchema = z.strictObject({
  title: z.string(),
  description: z.string().optional(),
  owner: z.string().optional(),
  status: z.enum(["active", "draft"]).optional(),
  steps: z.array(newStepSchema).optional(),
  resources: z.array(newResourceSchema).optional(),
})

/** What is left out stays as it is. `done` and `canceled` archive, as completing and canceling do. */
export const taskPatchSchema = z.strictObject({
  title: z.string().optional(),
  description: z.string().optional(),
  owner: z.string().optional(),
  status: z.enum(BOARD_STATUSES).optional(),
})

/** A task, as it is stored. Times are ISO; `archivedAt` is that of a task in history. */
export const taskSchema = z.object({
  /** Never used twice. */
  id: ID,
  title: z.string(),
  description: z.string().default(""),
  /** The agent that works on it. */
  owner: z.string(),
  /** The agent whose session made it, or `user`. */
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

export type Step = Frozen<z.output<typeof stepSchema>>
export type NewStep = Frozen<z.input<typeof newStepSchema>>
export type NewTask = Frozen<z.input<typeof newTaskSchema>>
export type TaskPatch = Frozen<z.input<typeof taskPatchSchema>>
export type Resource = Frozen<z.output<typeof resourceSchema>>
export type BoardTask = Frozen<z.output<typeof taskSchema>>

/** `#5 Title`, on one line: how a task is named to people and models. */
export const headOf = ({ id, title }: Pick<BoardTask, "id" | "title">): string => `#${id} ${oneLine(title)}`

/** What a task is doing, and why: the same for tools, screen, page and HTTP. */
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
  /** What it waits for, what is needed, when it runs next, why it rests; empty where there is nothing to say. */
  readonly reason: string
  /** Both in one line, as it is shown: `waits for #6`, `needs you: …`, `next run 14:00`. */
  readonly text: string
}

/** A state as a model reads it: it is not the one who is needed. */
export const toModel = ({ state, reason, text }: TaskState): string =>
  state === "needs you" ? `waits for the user, who alone can answer, in its thread: ${reason}` : text

/** Whether two forms of a task say the same, but for its plan and resources. */
export const isSameText = (one: BoardTask, other: BoardTask): boolean =>
  (["title", "description", "owner", "status"] as const).every((key) => one[key] === other[key])
