import { z } from "zod"
import { MAX_TIMER_MS } from "../core/ports.ts"
import {
  exactByUser,
  fewer,
  inBoth,
  meets,
  projects,
  stricter,
  stricterIfSet,
  stricterOfEach,
  stricterOfEachAgent,
  users,
  withLessMoney,
} from "./rules.ts"

// zod sets its English texts by a side effect that the bundler drops: without them, every problem reads "Invalid input".
z.config(z.locales.en())

const milliseconds = z.int().min(0).max(MAX_TIMER_MS)
const count = z.int().min(0)
const zeroOrFrom = (least: number) =>
  count.refine((value) => value === 0 || value >= least, `must be 0 or at least ${least}`)
const dollars = z.number().min(0)
const timeOfDay = z.string().regex(/^([01]?\d|2[0-3]):[0-5]\d$/, 'must be a time of day such as "22:00"')

export const DEFAULT_SCHEDULE = "0 6-21 * * *"

const LOOPBACK = /^(localhost|::1|127(\.\d{1,3}){3})$/
const ELSEWHERE =
  "it must be a loopback address, since the page is plain HTTP; to open it on another machine, forward its port there: ssh -L 4097:127.0.0.1:4097 <this machine>"

/** A name of a host: what a task's place is called by. */
const HOST_NAME = /^[a-z0-9][a-z0-9-]{0,31}$/
/** What begins with a hyphen would be an option to ssh. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const SSH_NAME = /^[^-\s\u0000-\u001f][^\s\u0000-\u001f]*$/
const NO_SSH_NAME = "a destination is one word, and does not begin with a hyphen"
/** A model of its host's; "" for none. */
const HOST_MODEL = /^$|^[^/\s]+\/\S+$/
const isOneLine = (text: string) => !/[\n\r\0]/.test(text)
const isInside = (pattern: string) => !pattern.split("/").includes("..")
const TAKEN_NAMES = ["here", "worktree"]
const hostNameProblem = (name: string): string | undefined => {
  if (TAKEN_NAMES.includes(name)) return "that is the name of another place"
  return HOST_NAME.test(name) ? undefined : "a host's name has lower-case letters, digits and hyphens, 32 at most"
}

/** One host, as the object that it may be written as. */
const HostSchema = z
  .strictObject({
    ssh: z
      .string()
      .regex(SSH_NAME, NO_SSH_NAME)
      .optional()
      .describe("Where ssh connects to: a name of ~/.ssh/config, or user@machine."),
    command: z
      .array(z.string().refine((word) => !word.includes("\0"), "it has a character that no command can have"))
      .min(1)
      .refine(([program]) => program !== "", "its first word is a program")
      .optional()
      .describe(
        'In place of ssh: a command that runs a line of shell there, say ["docker", "exec", "-i", "box", "sh", "-c"].',
      ),
    setup: z
      .string()
      .nullable()
      .default(null)
      .describe("Command that is run in a fresh worktree there before the agent. null: that of worktree.setup."),
    copy: z
      .array(z.string().min(1).refine(isInside, "a pattern names what lies in the project"))
      .default([])
      .describe("Patterns of files that git ignores and that are sent along. Those of worktree.copy are not."),
    model: z
      .string()
      .regex(HOST_MODEL, "a model is written as provider/model")
      .default("")
      .describe(
        "provider/model there, where the host lacks the one that the task would have and its agent names none.",
      ),
    maxTasks: count.default(4).describe("Tasks that work there at once. More wait their turn."),
    opencode: z
      .string()
      .refine(isOneLine, "a path is one line")
      .default("")
      .describe("Path of OpenCode there, where it is not found."),
    connectTimeout: milliseconds.default(10_000).describe("Longest duration of one attempt to connect. 0: any."),
    contactTimeout: milliseconds
      .default(600_000)
      .describe("How long a task goes on without contact before it ends as failed. 0: up to its own time limit."),
    unattended: z
      .int()
      .min(10_000)
      .max(MAX_TIMER_MS)
      .default(1_800_000)
      .describe("How long agents on a host keep running after they lose contact with this machine."),
  })
  .refine(({ ssh, command }) => (ssh === undefined) !== (command === undefined), "it needs either ssh or command")

export type HostSettings = z.infer<typeof HostSchema>

/** The name alone stands for ssh's. */
const HostEntry = z.union([
  z
    .string()
    .regex(SSH_NAME, NO_SSH_NAME)
    .transform((ssh) => HostSchema.parse({ ssh })),
  HostSchema,
])

/**
 * The options, the second element of the plugin's tuple in opencode.json. Times are milliseconds; 0 turns a limit off.
 * Each is registered with its rule of option-rules.ts: which value holds where a user and a project both set it.
 */
export const OptionsSchema = z.strictObject({
  enabled: z.boolean().default(true).describe("Offer the tools at all.").register(meets, projects),
  pollInterval: milliseconds
    .nullable()
    .default(null)
    .describe(
      "Time between two looks at OpenCode while a task runs, for events that were missed. 0: events alone. null: 12 s, and 2 s while nothing was heard of a task.",
    )
    .register(meets, projects),
  maxConcurrentTasks: count
    .default(10)
    .describe("Tasks of one session that run at once. More wait their turn.")
    .register(meets, stricter),
  maxConcurrentPerModel: z
    .record(z.string(), count)
    .default({})
    .describe("Tasks that use one model at once, by provider/model.")
    .register(meets, stricterOfEach),
  agents: z
    .record(
      z.string().min(1),
      z.strictObject({
        model: z.string().min(1).optional().describe("provider/model or provider/model#variant."),
        timeout: milliseconds.optional().describe("Longest duration of a run, where the call gives none."),
        maxCost: dollars.optional().describe("What a run may cost in US dollars, where the call gives nothing."),
        place: z.string().min(1).optional().describe("Where it works, where the call does not say."),
        maxConcurrent: count.optional().describe("Tasks of this agent that run at once, in all sessions."),
      }),
    )
    .default({})
    .describe(
      'What holds for single agents where a call does not say: {"explore": {"model", "timeout", "maxCost", "place", "maxConcurrent"}}, each of them optional.',
    )
    .register(meets, stricterOfEachAgent),
  maxDepth: count
    .default(1)
    .describe("How deep tasks may launch tasks of their own. 1: they may not; 0: any depth.")
    .register(meets, stricter),
  maxLaunchesPerMinute: count
    .default(60)
    .describe("Launches of one session in a minute. More are refused.")
    .register(meets, stricter),
  taskTimeout: milliseconds
    .default(1_800_000)
    .describe(
      "Longest duration of a run, and the largest timeout a call may ask for. Waiting in the queue does not count.",
    )
    .register(meets, stricter),
  stallTimeout: milliseconds
    .default(600_000)
    .describe(
      "Longest silence. Three times that while an agent writes a tool call. A running tool, an open question, a retry and tasks of its own are no silence.",
    )
    .register(meets, stricter),
  maxRepeats: count
    .default(12)
    .describe(
      "Equal calls of an agent in a row with equal results: after so many it is told so, after twice as many it is asked for its last word and ended. A call that took over 10 s does not count.",
    )
    .register(meets, stricter),
  maxTokensPerTask: count
    .default(2_000_000)
    .describe("Input, output, reasoning and cache write tokens of a run; cache reads do not count.")
    .register(meets, stricter),
  maxTokensPerSession: count
    .default(0)
    .describe("The same tokens, of all tasks of a session and of those below them, ended ones too.")
    .register(meets, stricter),
  maxCostPerTask: dollars
    .default(0)
    .describe("What a task may cost in US dollars, all its runs and its own tasks together.")
    .register(meets, stricter),
  maxCostPerSession: dollars
    .default(10)
    .describe("What all tasks of a session, and those below them, may cost in US dollars, ended ones too.")
    .register(meets, stricter),
  maxCostPerDay: dollars
    .default(0)
    .describe("What all tasks of the project may cost in US dollars within 24 hours, restarts or not.")
    .register(meets, stricter),
  lastWord: milliseconds
    .default(60_000)
    .describe("How long before its time limit an agent is asked for its last word; a third of that limit at most.")
    .register(meets, projects),
  permissionTimeout: milliseconds
    .nullable()
    .default(null)
    .describe(
      "How long an agent's permission or other question may stay open before it is refused. null: an hour where somebody has OpenCode open or wrote within the last hour, else 5 minutes; meanwhile no time of the task counts.",
    )
    .register(meets, stricterIfSet),
  todoGrace: milliseconds
    .default(5000)
    .describe("How long an idle agent with open todos is waited for before it counts as done.")
    .register(meets, projects),
  resultCacheTTL: milliseconds
    .default(300_000)
    .describe("How long an answer is kept in memory, and an identical task is reused.")
    .register(meets, projects),
  maxHistory: count
    .default(200)
    .describe("Ended tasks kept for one session. Those that were read go first.")
    .register(meets, projects),
  reuseIdentical: z
    .boolean()
    .default(false)
    .describe(
      "The same prompt for the same agent and model, while it runs or within resultCacheTTL, returns the earlier task.",
    )
    .register(meets, projects),
  allowModelOverride: z
    .boolean()
    .default(true)
    .describe("Let the calling model choose a task's model.")
    .register(meets, projects),
  resumable: z
    .array(z.enum(["completed", "error", "cancelled"]))
    .default(["completed"])
    .describe('Statuses that can be resumed; also "error" and "cancelled".')
    .register(meets, projects),
  cacheHold: milliseconds
    .default(5000)
    .describe(
      "How long tasks with a common beginning wait for the first of them, so that the provider's cache is warm. 0: not at all.",
    )
    .register(meets, projects),
  nativeTask: z
    .boolean()
    .default(true)
    .describe(
      "Offer OpenCode's own task tool, too. false takes it out of all requests, but for the turn of a message that mentions an agent.",
    )
    .register(meets, projects),
  wake: z
    .enum(["each", "last", "never"])
    .default("each")
    .describe('Which notifications start the parent\'s model: "each", the "last" of a batch, or "never".')
    .register(meets, projects),
  notifyAnswerChars: z
    .int()
    .min(0)
    .max(20_000)
    .default(4000)
    .describe("Longest answer that comes whole with the notification; of a longer one the beginning. 0: none.")
    .register(meets, projects),
  childPrompt: z
    .union([z.boolean(), z.string().trim().min(1).max(10_000)])
    .default(true)
    .describe("What a fresh agent's system prompt says of working in the background: your text, or false for nothing.")
    .register(meets, projects),
  verbose: z
    .boolean()
    .default(false)
    .describe("Log every call to OpenCode, every transition, every notification; no prompt and no secret.")
    .register(meets, projects),
  toasts: z
    .boolean()
    .default(true)
    .describe("Toasts at launch, at the end and when a question waits.")
    .register(meets, projects),
  osNotifications: z
    .boolean()
    .default(false)
    .describe("A desktop notification when an agent ends, asks or needs you; the sound is OpenCode's own.")
    .register(meets, projects),
  fork: z
    .strictObject({
      maxTokens: zeroOrFrom(1000)
        .default(100_000)
        .describe(
          "Most tokens that a fork begins with, preamble included; never more than 60 % of its model's context.",
        )
        .register(meets, stricter),
      maxToolResultChars: zeroOrFrom(100)
        .default(1500)
        .describe("Longest tool result in a fork's history; agents' answers stay whole up to 20,000 characters.")
        .register(meets, projects),
      whole: z
        .enum(["asked", "cheaper", "never"])
        .default("asked")
        .describe(
          'Forks that begin with their parent\'s own bytes, which the provider\'s cache has: where they are "asked" for, wherever they are "cheaper", or "never".',
        )
        .register(meets, projects),
    })
    .prefault({})
    .describe("What a forked task takes over from its parent."),
  worktree: z
    .strictObject({
      setup: z
        .string()
        .default("")
        .describe("Command that is run in a fresh worktree before the agent, say npm ci. Empty: none.")
        .register(meets, projects),
      dependencies: z
        .enum(["auto", "none"])
        .default("auto")
        .describe(
          "Whether a worktree gets copies of the installed dependencies that git ignores (node_modules, .venv, vendor and the like). With worktree.setup it gets none: that command installs them.",
        )
        .register(meets, projects),
      copy: z
        .array(z.string().min(1))
        .default([])
        .describe("Patterns of files that git ignores and that a worktree gets a copy of, say .env.")
        .register(meets, projects),
      keepDays: count
        .default(30)
        .describe("How long a task's work is kept under its ref when it is merged or empty, in days. 0: for ever.")
        .register(meets, projects),
      dropUnmerged: z
        .boolean()
        .default(false)
        .describe("Drop work that was never merged after keepDays, too.")
        .register(meets, projects),
    })
    .prefault({})
    .describe("Tasks that work in a git worktree of their own."),
  checkTimeout: milliseconds
    .default(600_000)
    .describe("Longest duration of a task's check, in ms. 0: that of its run.")
    .register(meets, stricter),
  checkRetries: count
    .default(2)
    .describe("How often an agent is asked again when its check does not pass, before its task ends as failed.")
    .register(meets, fewer),
  gate: z
    .union([z.boolean(), z.literal("exact")], 'must be true, false or "exact"')
    .default(true)
    .describe(
      'Park tasks whose provider is at its limit, and let them go on when it opens. "exact": reads the headers and bodies of refusals as well, for which OpenCode\'s fetch is wrapped. false: they end as failed.',
    )
    .register(meets, exactByUser),
  fallbackModels: z
    .record(z.string(), z.array(z.string().regex(/^[^/\s]+\/\S+$/, "must be a model, as provider/model")))
    .default({})
    .describe(
      'Models that a task goes on with while its own is at its limit for over a minute, in this order: by agent, else by provider/model. {"general": ["openai/gpt-5-mini"]}',
    )
    .register(meets, projects),
  maxParked: milliseconds
    .default(86_400_000)
    .describe("How long a task may be parked in all before it ends as failed.")
    .register(meets, stricter),
  schemaRetries: count
    .default(2)
    .describe("How often an agent is asked again when its answer does not match its schema.")
    .register(meets, fewer),
  each: z
    .strictObject({
      ask: count
        .default(25)
        .describe("With more items than this, the user is asked before. 0: never.")
        .register(meets, stricter),
      most: z.int().min(1).max(10_000).default(1000).describe("Most items of one task.").register(meets, stricter),
    })
    .prefault({})
    .describe("One prompt for many items."),
  board: z
    .strictObject({
      dir: z
        .string()
        .min(1)
        .default(".opencode/tasks")
        .describe(
          "Where the board's files lie: relative to the project. A folder outside of it counts from your own configuration alone.",
        )
        .register(meets, projects),
      agents: z
        .array(z.string().min(1))
        .nullable()
        .default(null)
        .describe("The agents that may own tasks, and are offered the board's tools. null: all that are not hidden.")
        .register(meets, inBoth),
      schedule: z
        .string()
        .min(1)
        .default(DEFAULT_SCHEDULE)
        .describe("When the owners of active tasks are woken: a cron pattern, in local time.")
        .register(meets, projects),
      maxConcurrentRuns: count
        .default(3)
        .describe("Tasks of the board that are worked on at once.")
        .register(meets, stricter),
      purse: z
        .strictObject({ from: timeOfDay, until: timeOfDay, max: dollars.gt(0) })
        .optional()
        .describe(
          'A purse that is opened each night: {"from": "22:00", "until": "07:00", "max": 5}, in local time and US dollars.',
        )
        .register(meets, withLessMoney),
    })
    .optional()
    .describe(
      "The board: tasks with steps, subtasks and threads of their own. Off unless it is there; {} turns it on.",
    ),
  web: z
    .strictObject({
      port: z
        .int()
        .min(0)
        .max(65_535)
        .default(4097)
        .describe("Where the page is served; the next free port where that is taken.")
        .register(meets, projects),
      host: z
        .string()
        .regex(LOOPBACK, { error: ELSEWHERE })
        .default("127.0.0.1")
        .describe("The loopback address to listen at. Another machine gets to the page through a tunnel: ssh -L.")
        .register(meets, projects),
    })
    .optional()
    .describe("A page in the browser, with all background tasks and the board. Off unless it is there."),
  hosts: z
    .record(z.string(), HostEntry)
    .optional()
    .describe(
      "Other machines on which tasks may work, by name: where ssh connects to, or more. Off unless it is there. From your own configuration alone.",
    )
    .register(meets, users),
})

export type Options = z.infer<typeof OptionsSchema>

export type BoardOptions = NonNullable<Options["board"]>

export const DEFAULTS: Options = Object.freeze(OptionsSchema.parse({}))

/** Options as somebody wrote them: those alone that are there and right. */
export type Given = Readonly<Record<string, unknown>>

/** With the defaults for all that is not given. */
export const complete = (given: Given): Options =>
  Object.keys(given).length === 0 ? DEFAULTS : OptionsSchema.parse(given)

/**
 * Reads the options a user wrote, without the defaults. A wrong value or an unknown key is told in `problems`, one line
 * each; the others stay as they are. `own`: what is used where a value is wrong, to be told; else the default is.
 */
export function readOptions(input: unknown, own?: Options): { given: Given; problems: string[] } {
  if (input === undefined || input === null) return { given: {}, problems: [] }
  if (!isPlainObject(input))
    return { given: {}, problems: [`The options must be an object, not ${describe(input)}. Using the defaults.`] }
  const problems: string[] = []
  const instead = own ? { word: "Using", values: own } : { word: "Using the default,", values: DEFAULTS }
  return { given: readObject(OptionsSchema.shape, input, instead, "", problems), problems }
}

function readObject(
  shape: Record<string, z.ZodType>,
  input: Record<string, unknown>,
  instead: { readonly word: string; readonly values: Record<string, unknown> },
  path: string,
  problems: string[],
): Record<string, unknown> {
  const result: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(input)) {
    const name = path + key
    // Names the schema for editors and readers.
    if (name === "$schema") continue
    const schema = Object.hasOwn(shape, key) ? shape[key] : undefined
    if (!schema) {
      problems.push(`Unknown option "${name}". There are: ${Object.keys(shape).join(", ")}.`)
      continue
    }
    if (name === "hosts" && isPlainObject(value)) {
      result[key] = readHosts(value, problems)
      continue
    }
    const group = path === "" ? GROUPS[key] : undefined
    if (group && isPlainObject(value)) {
      const values = (instead.values[key] ?? group.parse({})) as Record<string, unknown>
      result[key] = readObject(group.shape, value, { ...instead, values }, `${key}.`, problems)
      continue
    }
    const parsed = schema.safeParse(value)
    if (parsed.success) result[key] = parsed.data
    else {
      const used = `${instead.word} ${describe(instead.values[key])}`
      problems.push(`Option "${name}" is ${describe(value)}: ${reasonOf(parsed.error)}. ${used}.`)
    }
  }
  return result
}

/** Each host by itself: a bad one is left out, the others hold. */
function readHosts(input: Record<string, unknown>, problems: string[]): Record<string, HostSettings> {
  const hosts: Record<string, HostSettings> = {}
  for (const [name, value] of Object.entries(input)) {
    const parsed = HostSchema.safeParse(typeof value === "string" ? { ssh: value } : value)
    const problem = hostNameProblem(name) ?? (parsed.success ? undefined : hostProblem(parsed.error))
    if (problem === undefined && parsed.success) hosts[name] = parsed.data
    else problems.push(`Option "hosts.${name}" is ${describe(value)}: ${problem}. It is left out.`)
  }
  return hosts
}

const hostProblem = ({ issues }: z.ZodError): string => {
  const [{ path, message } = { path: [], message: "not valid" }] = issues
  return path.length > 0 ? `${path.join(".")}: ${message}` : message
}

/** Options that consist of options, each read by itself. */
export const GROUPS: Readonly<Record<string, z.ZodObject>> = {
  fork: OptionsSchema.shape.fork.unwrap(),
  worktree: OptionsSchema.shape.worktree.unwrap(),
  each: OptionsSchema.shape.each.unwrap(),
  board: OptionsSchema.shape.board.unwrap(),
  web: OptionsSchema.shape.web.unwrap(),
}

const isPlainObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const reasonOf = (error: z.ZodError): string => error.issues[0]?.message ?? "not valid"

const describe = (value: unknown): string => JSON.stringify(value)?.slice(0, 60) ?? String(value)
