import { z } from "zod"
import { oneLine } from "../../lib/text.ts"
import { purseMoney } from "./options.ts"

/**
 * A board task (`#5`) is work with steps that outlives a conversation; a thread is the session in which its owner works
 * on it. Plain data, changed only in `rules/`; not to be confused with a background task (`bg_…`).
 */

const BOARD_STATUSES = ["draft", "active", "done", "canceled"] as const

export type BoardStatus = (typeof BOARD_STATUSES)[number]

/** Status as readers see it: the stored `canceled` is shown as `cancelled`. */
export const shownStatus = (status: BoardStatus): string => (status === "canceled" ? "cancelled" : status)

/** Greatest id. Greater ids could not be counted exactly, so files with such ids are rejected. */
export const MOST_ID = 999_999_999_999_999

export const IS_ID = /^[1-9]\d{0,14}$/

const MOST_TITLE_CHARS = 200
const MOST_STEP_TITLE_CHARS = 60
const MOST_TEXT_CHARS = 20_000
export const MOST_VALUE_CHARS = 2000

/** Most steps, and most resources, of a task. */
export const MOST_ITEMS = 100

/** Most archived tasks read at once. */
const MOST_HISTORY = 1000

/** Pattern of a session id. Strict, because people copy the id into commands. */
const IS_SESSION = /^ses_\w{1,80}$/

/**
 * Schemas of input. Each accepts what a caller may write and gives it the stored form, so the rules need not check it
 * again.
 */

/** One line that is not empty. */
export function line(most = MOST_TITLE_CHARS) {
  const error = `must be a text of 1 to ${most} characters`
  const oneSpaced = (text: string) => text.replace(/\s+/g, " ").trim()
  return z.string(error).overwrite(oneSpaced).min(1, error).max(most, error)
}

function longText() {
  const error = `must be a text of at most ${MOST_TEXT_CHARS} characters`
  return z.string(error).max(MOST_TEXT_CHARS, error)
}

/**
 * List of entries. The number of entries is checked first, because each wrong entry costs time and a line of the error.
 */
function listOf<Item extends z.ZodType>(item: Item) {
  const error = `must be a list of at most ${MOST_ITEMS} entries`
  return z.array(z.unknown(), error).max(MOST_ITEMS, error).pipe(z.array(item))
}

/** Refuses a change that gives no field. */
function patchOf<Schema extends z.ZodObject>(schema: Schema): Schema {
  const names = Object.keys(schema.shape)
  const error = `Nothing to change: give at least one of ${names.map((name) => `\`${name}\``).join(", ")}.`
  return schema.refine((fields) => names.some((name) => (fields as Record<string, unknown>)[name] !== undefined), error)
}

/** Id of a task, which models write as `5` or `#5`. */
export const idSchema = z
  .string()
  .overwrite((text) => text.trim().replace(/^#/, ""))
  .regex(IS_ID, 'must be a number such as "5", as the lists of tasks show it')

const newStepSchema = z.strictObject({
  title: line(MOST_STEP_TITLE_CHARS).describe(`At most ${MOST_STEP_TITLE_CHARS} characters.`),
  details: longText().optional(),
  done: z.boolean().optional(),
})

export const stepsSchema = listOf(newStepSchema)

export const stepPatchSchema = patchOf(newStepSchema.partial())

const resourceType = z.enum(["url", "file"])
const isWebAddress = (value: string) => /^https?:/i.test(value) && URL.canParse(value)

export const newResourceSchema = z
  .strictObject({
    type: resourceType,
    value: line(MOST_VALUE_CHARS).describe("The URL, or an absolute path."),
    label: line().optional(),
  })
  .refine(({ type, value }) => type === "file" || isWebAddress(value), {
    path: ["value"],
    error: "must be a URL that begins with http:// or https://",
  })
  .refine(({ type, value }) => type === "url" || /^(\/|[A-Za-z]:[\\/])/.test(value), {
    path: ["value"],
    error: "must be an absolute path",
  })

/** The owner defaults to the calling agent, the status to `active`. */
export const newTaskSchema = z.strictObject({
  title: line(),
  description: longText().optional(),
  owner: line().optional(),
  status: z.enum(["active", "draft"]).optional(),
  steps: stepsSchema.optional(),
  resources: listOf(newResourceSchema).optional(),
})

export const newSubtaskSchema = z.strictObject({
  title: line(),
  description: longText().optional().describe("All that its owner has to know."),
  owner: line().describe("The agent that does it."),
})

/** Absent fields stay as they are. `done` and `canceled` archive the task. */
export const taskPatchSchema = patchOf(
  z.strictObject({
    title: line().optional(),
    description: longText().optional(),
    owner: line().optional(),
    status: z.enum(BOARD_STATUSES).optional(),
  }),
)

/** The rules check `until`, a time of day or an ISO time, against the clock. */
export const purseSchema = z.strictObject({
  max: purseMoney().describe("US dollars."),
  until: z.string().describe('"07:00", or an ISO time.'),
})

const LIMIT = `must be a whole number from 1 to ${MOST_HISTORY}`
export const historyLimit = z.number(LIMIT).int(LIMIT).min(1, LIMIT).max(MOST_HISTORY, LIMIT)

/** Schemas of what is stored. In edited files, null counts as absent, and unknown fields stay. */

const absent = <Schema extends z.ZodType>(schema: Schema) =>
  schema
    .nullish()
    .transform((value) => value ?? undefined)
    .optional()

/**
 * Schema that checks the known fields and keeps unknown ones. Its type names only the known fields. zod sets an unknown
 * key `__proto__` as the prototype of its result: the copy drops this.
 */
const stored = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.looseObject(shape).overwrite((value) => ({ ...value })) as unknown as z.ZodObject<Shape>

const ID = z.union([z.string(), z.int()]).transform(String).pipe(z.string().regex(IS_ID, "an id is a number, as text"))

/** A step of a plan. `taskId`: id of the step's subtask. */
const stepSchema = stored({
  title: z.string(),
  details: absent(z.string()),
  done: z.boolean().default(false),
  taskId: absent(ID),
})

/** `value`: a URL or an absolute path. */
const resourceSchema = stored({ type: resourceType, value: z.string(), label: absent(z.string()) })

/** A stored task. Times are ISO; `archivedAt` is set in history. */
export const taskSchema = stored({
  /** Id of the task. No other task ever gets the same id. */
  id: ID,
  title: z.string(),
  description: z.string().default(""),
  /** Agent that works on the task. */
  owner: z.string(),
  /** Agent that created the task, or `user`. */
  createdBy: z.string().default("user"),
  status: z.enum(BOARD_STATUSES),
  steps: z.array(stepSchema).default([]),
  resources: z.array(resourceSchema).default([]),
  threadId: z.string().regex(IS_SESSION).optional().catch(undefined),
  createdAt: z.string().default(""),
  updatedAt: z.string().default(""),
  archivedAt: absent(z.string()),
})

/**
 * A task in history. `archivedBy`: an agent, `user`, or `outside` for an edit of the file; `archivedIn`: the agent's
 * session, because a parent whose own thread cancels a subtask is not woken.
 */
export const archivedTaskSchema = stored({
  ...taskSchema.shape,
  archivedAt: z.string(),
  archivedBy: z.string().optional().catch(undefined),
  archivedIn: z.string().optional().catch(undefined),
})

type Frozen<Value> = Value extends readonly (infer Item)[]
  ? readonly Frozen<Item>[]
  : Value extends object
    ? { readonly [Key in keyof Value]: Frozen<Value[Key]> }
    : Value

export type PlanStep = Frozen<z.output<typeof stepSchema>>
export type NewStep = Frozen<z.output<typeof newStepSchema>>
export type StepPatch = Frozen<z.output<typeof stepPatchSchema>>
export type NewTask = Frozen<z.output<typeof newTaskSchema>>
export type NewSubtask = Frozen<z.output<typeof newSubtaskSchema>>
export type TaskPatch = Frozen<z.output<typeof taskPatchSchema>>
export type Resource = Frozen<z.output<typeof resourceSchema>>
export type BoardTask = Frozen<z.output<typeof taskSchema>>
export type PurseTerms = z.output<typeof purseSchema>
export type ArchivedTask = Frozen<z.output<typeof archivedTaskSchema>>

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
    | "parked"
    | "waits"
    | "needs you"
    | "waiting for a person"
    | "next run"
    | "rests"
  /** Cause of the state: what the task waits for or needs, or the time of its next run; may be empty. */
  readonly reason: string
  /** State and reason in one line: `waits for #6`, `needs you: …`, `next run 14:00`. */
  readonly text: string
}

/** Reason of a state in which a task waits until a user has seen a change of its file. */
export const CHANGED_OUTSIDE = "changed outside; look at it and start it"

/** State of a task as text for a model, where the state's own text asks the user for something. */
export function toModel({ state, reason, text }: TaskState): string {
  if (state === "needs you") return `waits for the user, who alone can answer, in its thread: ${reason}`
  if (reason !== CHANGED_OUTSIDE) return text
  return `${state === "draft" ? "draft, " : ""}waits for the user, who alone can start it: changed outside the board`
}
