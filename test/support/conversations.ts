import { eventually, idle, messages, openSession, say } from "./drive.ts"
import type { ModelMessage, ModelRequest, Reply, ScriptedModel } from "./model.ts"
import { textOf } from "./model-request.ts"
import type { Opencode } from "./opencode.ts"
import { notified } from "./plugin.ts"

/** What the parent's model answers to a request; a function is handed the ids of the tasks launched so far. */
type Step = Reply | ((tasks: readonly string[]) => Reply)

type Turn = {
  readonly user: string
  /** One for each request of the parent's model, those that notifications bring included. */
  readonly parent: readonly Step[]
  /** Notifications that the parent has when the turn is over. */
  readonly told?: number
}

export type Scenario = {
  readonly title: string
  /** For somebody who reads the page. */
  readonly about: string
  readonly turns: readonly Turn[]
  /** What children answer, by a word of their prompt; `after` so many answers of the parent's, and when it is idle. */
  readonly children?: Readonly<Record<string, { readonly reply: Reply; readonly after?: number }>>
  /** Show what the child with this word in its prompt is sent at first, too. */
  readonly child?: string
}

const TASK_ID = /\bbg_[a-z0-9]{8}\b/
const PATIENCE = { timeout: 30_000 }

const call = (name: string, args: unknown) => ({ name: `superagents_${name}`, args })
const calls = (...tools: { name: string; args: unknown }[]): Reply => ({ tools })
const task = (description: string, prompt: string, more: object = {}) =>
  call("task", { description, prompt, agent: "general", ...more })
const LONG = Array.from({ length: 120 }, (_, index) => `src/file${index + 1}.ts uses the loader as well.`).join("\n")

/** Launch to end, in each mode. */
export const SCENARIOS: readonly Scenario[] = [
  {
    title: "Fresh: three agents side by side",
    about: "Launched in one message. The message about each end brings the answer, so nothing has to be fetched.",
    turns: [
      {
        user: "Find out how the loader works.",
        parent: [
          calls(
            task("Read the loader", "READ the loader, and say what it does."),
            task("Find its callers", "CALLERS of the loader: find them."),
            task("Write findings", "WRITE the findings down.", { batch: "writing" }),
          ),
          { text: "Three agents are at work; I am waiting." },
          { text: "The loader reads the file once. Waiting for the others." },
          { text: "It has two callers. Waiting for the last one." },
          { text: "The loader reads the file once, has two callers, and the findings are in findings.md." },
        ],
        told: 3,
      },
    ],
    children: {
      READ: { reply: { text: "It reads the file once and keeps it (src/loader.ts:12)." }, after: 2 },
      CALLERS: { reply: { text: "src/main.ts:4 and src/test.ts:9." }, after: 3 },
      WRITE: { reply: { text: "Written to findings.md." }, after: 4 },
    },
    child: "READ",
  },
  {
    title: "A long answer",
    about: "The message brings the beginning, and the call that reads on.",
    turns: [
      {
        user: "List every use of the loader.",
        parent: [
          calls(task("List the uses", "LIST every use.")),
          { text: "Waiting." },
          ([id]) => calls(call("output", { task_id: id, offset: 1000 })),
          { text: "There are 120 uses." },
        ],
        told: 1,
      },
    ],
    children: { LIST: { reply: { text: LONG }, after: 2 } },
  },
  {
    title: "Fork: an agent that knows this conversation",
    about: "The child begins with the parent's history up to the call, and a preamble.",
    turns: [
      { user: "The loader is slow: it reads the file twice.", parent: [{ text: "Noted: it reads the file twice." }] },
      {
        user: "Let somebody who knows this repair it.",
        parent: [
          calls(task("Repair the loader", "REPAIR it.", { fork: true })),
          { text: "Waiting." },
          { text: "It is repaired." },
        ],
        told: 1,
      },
    ],
    children: { REPAIR: { reply: { text: "Repaired: the file is read once (src/loader.ts:12)." }, after: 3 } },
    child: "REPAIR",
  },
  {
    title: "Resume: a completed task asked again",
    about: "It remembers its work. Figures tell this run and all runs apart.",
    turns: [
      {
        user: "How many tests are there?",
        parent: [
          calls(task("Count the tests", "COUNT the tests.")),
          { text: "Waiting." },
          { text: "There are 40 tests." },
        ],
        told: 1,
      },
      {
        user: "And how many of them are slow?",
        parent: [
          ([id]) => calls(call("task", { resume: id, prompt: "SLOW ones: how many?" })),
          { text: "Waiting." },
          ([id]) => calls(call("output", { task_id: id })),
          { text: "Three of the 40 tests are slow." },
        ],
        told: 2,
      },
    ],
    children: {
      COUNT: { reply: { text: "There are 40 tests." }, after: 2 },
      SLOW: { reply: { text: "Three of them are slow." }, after: 5 },
    },
  },
  {
    title: "Failure: the provider says no",
    about: "The reason comes with the message.",
    turns: [
      {
        user: "Summarize the log.",
        parent: [
          calls(task("Summarize the log", "SUMMARIZE the log.")),
          { text: "Waiting." },
          { text: "The agent failed: the provider has no credit left." },
        ],
        told: 1,
      },
    ],
    children: { SUMMARIZE: { reply: { status: 400, body: { error: { message: "no credit left" } } }, after: 2 } },
  },
  {
    title: "List, output and cancel while agents run",
    about: "An end by the parent's own call starts no turn of its parent's.",
    turns: [
      {
        user: "Watch the build and the tests.",
        parent: [
          calls(
            task("Watch the build", "WATCH the build.", { batch: "build" }),
            task("Watch the tests", "WATCH the tests."),
          ),
          ([id]) => calls(call("list", {}), call("output", { task_id: id })),
          { text: "They are at work." },
        ],
      },
      {
        user: "Never mind.",
        parent: [calls(call("cancel", { all: true })), { text: "Both are stopped." }],
        told: 2,
      },
      {
        user: "What had they found?",
        parent: [([id]) => calls(call("output", { task_id: id?.slice(0, 9) })), { text: "Nothing yet." }],
        told: 2,
      },
    ],
    children: { WATCH: { reply: { hang: true, text: "Nothing yet." } } },
  },
  {
    title: "Waiting for one answer",
    about: "`block: true` hands the answer over; the message about the end starts no turn and does not repeat it.",
    turns: [
      {
        user: "I need the version now.",
        parent: [
          calls(task("Find the version", "VERSION, please.")),
          ([id]) => calls(call("output", { task_id: id, block: true })),
          { text: "It is 4.2." },
        ],
        told: 1,
      },
      { user: "Thanks.", parent: [{ text: "You are welcome." }], told: 1 },
    ],
    children: { VERSION: { reply: { text: "4.2", delay: 2000 } } },
  },
  {
    title: "Clear",
    about: "What runs is stopped, and nobody is told.",
    turns: [
      {
        user: "Watch the build. No, forget it.",
        parent: [
          calls(task("Watch the build", "WATCH the build.")),
          calls(call("clear", {})),
          calls(call("list", {})),
          { text: "Forgotten." },
        ],
      },
    ],
    children: { WATCH: { reply: { hang: true } } },
  },
  {
    title: "Errors",
    about: "What a wrong call is told.",
    turns: [
      {
        user: "Try all that can go wrong.",
        parent: [
          calls(
            call("task", { fork: true, resume: "bg_1", prompt: 7 }),
            call("task", { prompt: "x" }),
            call("task", { description: "x", prompt: "x", agent: "nobody" }),
            call("task", { description: "x", prompt: "x", agent: "general", model: "scripted/alpah" }),
            call("task", { prompt: "x", resume: "bg_none" }),
            call("task", { description: "x", prompt: "x", agent: "general", fast: true }),
            call("output", { task_id: "bg_none", offset: -1 }),
            call("list", { status: "done" }),
            call("cancel", {}),
            call("cancel", { batch: "none" }),
            call("clear", { all: true }),
          ),
          { text: "That was all." },
        ],
      },
    ],
  },
]

/** One message as a model is sent it. */
type Line = { readonly who: string; readonly text: string }

export type Conversation = {
  readonly title: string
  readonly about: string
  readonly parent: readonly Line[]
  readonly child?: readonly Line[]
}

/** Plays a scenario on a real OpenCode and returns what the models were sent. */
export async function play(opencode: Opencode, model: ScriptedModel, scenario: Scenario): Promise<Conversation> {
  const { title, about, turns, children = {}, child } = scenario
  const session = await openSession(opencode)
  const steps = turns.flatMap(({ parent }) => parent)
  let answered = 0
  const remove = model.use(async (request) => {
    if (request.sessionID === session) {
      const step = steps[answered++] ?? { text: "This turn was not expected." }
      return typeof step === "function" ? step(tasksIn(request)) : step
    }
    const script = Object.entries(children).find(([word]) => request.lastUser.startsWith(word))?.[1]
    if (!script || !(request.parentSessionID === session)) return undefined
    if (script.after !== undefined) {
      await eventually(() => answered >= (script.after ?? 0), PATIENCE)
      await idle(opencode, session, PATIENCE)
    }
    return script.reply
  })
  try {
    let expected = 0
    for (const { user, parent, told = 0 } of turns) {
      expected += parent.length
      await say(opencode, session, user)
      await notified(opencode, session, told, 30_000)
      await eventually(() => answered >= expected, PATIENCE)
      await idle(opencode, session, PATIENCE)
    }
    return {
      title,
      about,
      parent: await parentLines(opencode, model, session),
      child: childLines(model, session, child),
    }
  } finally {
    remove()
  }
}

/** Ids of the tasks that this model was told it has launched, in order. */
const tasksIn = ({ messages }: ModelRequest): string[] => [
  ...new Set(messages.flatMap(({ role, content }) => (role === "tool" && TASK_ID.exec(textOf(content))?.[0]) || [])),
]

async function parentLines(opencode: Opencode, model: ScriptedModel, session: string): Promise<Line[]> {
  const last = model.requests.findLast(({ sessionID }) => sessionID === session)
  const sent = linesOf(last?.messages ?? [])
  const stored = await messages(opencode, session)
  const said = stored.findLast(({ info }) => info.role === "assistant")?.parts
  const after = stored.slice(stored.findLastIndex(({ info }) => info.role === "assistant") + 1)
  const text = (parts: (typeof stored)[number]["parts"] = []) =>
    parts.flatMap((part) => (part.type === "text" ? part.text : [])).join("\n\n")
  return [
    ...sent,
    { who: "model", text: text(said) },
    ...after.map(({ parts }) => ({ who: "user, stored without a turn", text: text(parts) })),
  ]
}

function childLines(model: ScriptedModel, parent: string, word: string | undefined): Line[] | undefined {
  const first = model.requests.find(
    ({ parentSessionID, lastUser }) => word !== undefined && parentSessionID === parent && lastUser.startsWith(word),
  )
  if (!first) return undefined
  const tools = first.tools.filter((name) => name.startsWith("superagents_") || name === "task")
  return [
    { who: "system, its end", text: first.system.split("\n").slice(-1).join("\n") },
    { who: "tools for tasks", text: tools.length > 0 ? tools.join(", ") : "none" },
    ...linesOf(first.messages),
  ]
}

const WHO: Readonly<Record<string, string>> = { user: "user", assistant: "model", tool: "tool" }

const linesOf = (sent: readonly ModelMessage[]): Line[] =>
  sent
    .filter(({ role }) => role in WHO)
    .flatMap(({ role, content, tool_calls = [] }) => [
      ...(textOf(content) === "" ? [] : [{ who: String(WHO[role]), text: partsOf(content) }]),
      ...tool_calls.map(({ function: { name, arguments: args } }) => ({ who: "model calls", text: `${name} ${args}` })),
    ])

/** The parts of a message apart from each other: of a notification the user sees the first alone. */
const partsOf = (content: unknown): string =>
  Array.isArray(content) ? content.map((part) => textOf([part])).join("\n\n") : textOf(content)
