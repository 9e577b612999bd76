import { z } from "zod"
import { MAX_TIMER_MS } from "../../core/ports.ts"
import { count, type MergeRule, milliseconds, option, shownValue, TO_ALLOW, type ValuesOf } from "../../options/spec.ts"

/** Name of a host, by which tasks name it as their place. */
const HOST_NAME = /^[a-z0-9][a-z0-9-]{0,31}$/
/** Destination of ssh. A leading hyphen is refused, because ssh would read the destination as an option. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const SSH_NAME = /^[^-\s\u0000-\u001f][^\s\u0000-\u001f]*$/
const NO_SSH_NAME = "a destination is one word, and does not begin with a hyphen"
/** Model on the host, as `provider/model`; "" for none. */
const HOST_MODEL = /^$|^[^/\s]+\/\S+$/
const isOneLine = (text: string) => !/[\n\r\0]/.test(text)
const isInside = (pattern: string) => !pattern.split("/").includes("..")
const TAKEN_NAMES = ["here", "worktree"]
const hostNameProblem = (name: string): string | undefined => {
  if (TAKEN_NAMES.includes(name)) return "that is the name of another place"
  return HOST_NAME.test(name) ? undefined : "a host's name has lower-case letters, digits and hyphens, 32 at most"
}

/** Schema of a host that is written as an object. */
const hostSchema = () =>
  z
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
      maxTasks: count().default(4).describe("Tasks that work there at once. More wait their turn."),
      opencode: z
        .string()
        .refine(isOneLine, "a path is one line")
        .default("")
        .describe("Path of OpenCode there, where it is not found."),
      connectTimeout: milliseconds().default(10_000).describe("Longest duration of one attempt to connect. 0: any."),
      contactTimeout: milliseconds()
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

export type HostSettings = z.infer<ReturnType<typeof hostSchema>>

/** Schema of a host that is written as an object, or as a text: the destination of ssh. */
const hostEntry = () =>
  z.union([
    z
      .string()
      .regex(SSH_NAME, NO_SSH_NAME)
      .transform((ssh) => hostSchema().parse({ ssh })),
    hostSchema(),
  ])

/** Reads each host by itself: a bad host is left out with a problem, and the others are used. */
function readHosts(input: Record<string, unknown>, problems: string[]): Record<string, HostSettings> {
  const hosts: Record<string, HostSettings> = {}
  for (const [name, value] of Object.entries(input)) {
    const parsed = hostSchema().safeParse(typeof value === "string" ? { ssh: value } : value)
    const problem = hostNameProblem(name) ?? (parsed.success ? undefined : hostProblem(parsed.error))
    if (problem === undefined && parsed.success) hosts[name] = parsed.data
    else problems.push(`Option "hosts.${name}" is ${shownValue(value)}: ${problem}. It is left out.`)
  }
  return hosts
}

const hostProblem = ({ issues }: z.ZodError): string => {
  const [{ path, message } = { path: [], message: "not valid" }] = issues
  return path.length > 0 ? `${path.join(".")}: ${message}` : message
}

type Names = Readonly<Record<string, unknown>>

/** The user's value applies, not the project's: a host is reached by a command that runs as the user. */
const users: MergeRule = {
  merge: (own) => own,
  restrict(own, theirs) {
    const mine = (own ?? {}) as Names
    const [known, others] = [true, false].map((isKnown) =>
      Object.entries(theirs as Names).filter(([name]) => Object.hasOwn(mine, name) === isKnown),
    ) as [[string, unknown][], [string, unknown][]]
    const refused = others.map(
      ([name]) =>
        `This project's configuration names the host "${name}" (option "hosts"). It is left out: a host is reached by a command that runs as you, so only your own configuration can name one. ${TO_ALLOW}`,
    )
    return { allowed: known.length > 0 ? Object.fromEntries(known) : undefined, refused }
  },
}

export const options = {
  hosts: {
    ...option(
      () => z.record(z.string(), hostEntry()).optional(),
      undefined,
      "Other machines on which tasks may work, by name: where ssh connects to, or more. Off unless it is there. From your own configuration alone.",
      users,
    ),
    read: readHosts,
  },
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}
