import type { FakeScript } from "../support/fake-turn.ts"
import type { Reply } from "../support/model.ts"

/** What a step costs at most, in US dollars; a dollar is a million tokens. */
export const STEP_USD = 0.01
/** The tool by which an agent launches another. */
export const TOOL = "superagents_task"
const cents = (cost: number) => ({ usage: { input: cost * 1_000_000 } })
const bash = { name: "bash", args: {} }
/** Takes more of the context than it has: the session is compacted behind it. */
const FILLED = { input: 70_000 }
/** An answer that ends before its session is compacted. */
export const FULL = "done, and the context is full"
const NOTHING_LEFT = "there is nothing left to do"
/** Refused requests that no waiting helps, in words that limits have, too. */
export const WRONG = {
  schema: { status: 400, body: { error: { message: "Invalid schema for function 'set_rate_limit'" } } },
  prompt: { status: 422, body: { error: { message: "Not valid: why is my quota exceeded, and by whom?" } } },
  size: { status: 429, body: { error: { message: "Request too large for alpha: Limit 30000, Requested 41233." } } },
} satisfies Record<string, Reply>
const question = { name: "question", args: { questions: [{ question: "Which?" }] } }

/** What an agent does that is asked to `DO` this. Those that call tools answer when they have done so. */
const KINDS = {
  quick: { text: "done", usage: { input: 3000, cached: 2000 } },
  slow: { text: "done, slowly", delay: 3000, chunks: 4, pace: 500 },
  hanging: { hang: true, text: "so far" },
  working: { tools: [{ name: "read", args: { ms: 400 } }], ...cents(STEP_USD) },
  building: { tools: [{ name: "build", args: { ms: 40_000 } }] },
  broken: { status: 400, body: { error: { message: "no such luck" } } },
  retrying: { status: 503 },
  failing: { text: "so far", finish: "error" },
  filtered: { text: "so far", finish: "content_filter" },
  empty: { empty: true },
  odd: { text: "hm", finish: "odd", delay: 300 },
  asking: { tools: [bash] },
  "asking twice": { tools: [bash, bash] },
  questioning: { tools: [question, bash] },
  planning: { tools: [{ name: "todowrite", args: { todos: [{ content: "one", status: "pending" }] } }] },
  launching: { tools: [{ name: TOOL, args: { prompt: "DO slow" } }] },
  "launching twice": { tools: [1, 2].map((number) => ({ name: TOOL, args: { prompt: "DO quick", number } })) },
  valid: { text: '{"found": 1}', delay: 200 },
  stuck: { hang: true, text: "so far", call: { name: "write", args: "{" } },
  refused: WRONG.prompt,
  outgrowing: { tools: [{ name: "read", args: {} }], usage: FILLED },
  filling: { text: FULL, usage: FILLED },
} satisfies Record<string, Reply>

export type Kind = keyof typeof KINDS
/** In tasks without a schema it would be like any other answer. */
export const ALL_KINDS = (Object.keys(KINDS) as readonly Kind[]).filter((kind) => kind !== "valid")
/** What a task is asked for that has one. */
export const SCHEMA = { type: "object", required: ["found"] }

/** What an agent does when it is asked for its last word. */
export const LAST_WORDS = {
  obeys: { text: "this far", ...cents(0.003) },
  // Its calls are refused at once: it thinks, or it would ask thousands of times while a call to OpenCode takes long.
  "goes on": { tools: [{ name: "read", args: { ms: 100 } }], delay: 200, ...cents(STEP_USD) },
  hangs: { hang: true },
  "says nothing": { text: "" },
} satisfies Record<string, Reply>

export type LastWord = keyof typeof LAST_WORDS

const ASKED = "Answer at once"
const GO_ON = "Continue if you have next steps"
const INVALID = "Your answer is not valid"
/** How often an agent that works calls its tools. */
const STEPS = 5

/** The model of all sessions. */
export const modelOf =
  (lastWord: LastWord): FakeScript =>
  ({ lastUser, prompt, toolResults }) => {
    if (lastUser.includes(ASKED)) return LAST_WORDS[lastWord]
    if (lastUser.includes(GO_ON)) return { text: NOTHING_LEFT }
    if (lastUser.includes(INVALID)) return KINDS.valid
    // Behind the answers that it waited for, if it did; before what its place is like.
    const kind = /(?:^|\n)DO ([a-z ]+)$/m.exec(prompt.split("Your task:\n\n").at(-1) ?? "")?.[1] as Kind | undefined
    const reply: Reply | undefined = kind && KINDS[kind]
    if (!reply || !("tools" in reply)) return reply
    const most = kind === "working" ? STEPS : 1
    return toolResults.length >= most * reply.tools.length ? KINDS.quick : reply
  }

/** What refuses the requests of tasks for a time. */
export class Provider {
  readonly #now: () => number
  #closedUntil = 0
  #tells = false

  constructor(now: () => number) {
    this.#now = now
  }

  /** Refuses for so many ms from now on, and says so if it `tells`. */
  close(ms: number, tells: boolean): void {
    this.#closedUntil = this.#now() + ms
    this.#tells = tells
  }

  open(): void {
    this.#closedUntil = 0
  }

  /** Undefined while it answers. */
  get refusal(): Reply | undefined {
    const left = this.#closedUntil - this.#now()
    if (left <= 0) return undefined
    const when = this.#tells ? ` Try again in ${Math.ceil(left / 1000)}s` : ""
    return { status: 429, body: { error: { message: `Rate limit reached.${when}` } } }
  }
}
