import type { Activity, OpencodeEvent } from "../../src/core/ports.ts"
import { type Ask, type Model, NO_USAGE } from "../../src/core/task.ts"
import { errorOf, finishOf } from "../../src/opencode/convert.ts"
import { Calls, type FakeTool, type Stopped, Waits } from "./fake-calls.ts"
import type { FakeDatabase, StoredMessage, StoredPart, StoredSession } from "./fake-database.ts"
import type { HangReply, Reply, TextReply, ToolReply, Usage } from "./model.ts"

/** OpenCode asks it where a prompt names none. */
const DEFAULT_MODEL: Model = { provider: "scripted", id: "alpha" }

/** What a script sees of a model's request; the scripts of the real OpenCode's model see more. */
type FakeRequest = {
  readonly sessionID: string
  /** The text of the last user message, or what a hook tells with this request. */
  readonly lastUser: string
  /** The text of the last user message that is stored. */
  readonly prompt: string
  /** Calls that ended since the last user message. */
  readonly toolResults: readonly { readonly name: string }[]
  readonly agent: string
}

/** What the plugin's hooks do with a request before it goes out, and with a call of a tool. */
export type FakeHooks = {
  /** The next request of this session is one that compacts it. */
  compacting: (sessionID: string) => void
  inRequest: (sessionID: string) => { readonly text: string; readonly withoutTools: boolean } | undefined
  /** Resolves when the request may be sent; undefined where it may be sent now. */
  holdRequest: (sessionID: string, model?: Model, compacts?: boolean) => Promise<void> | undefined
  refusesTools: (sessionID: string, tool: string) => string | undefined
}

export type FakeScript = (request: FakeRequest) => Reply | undefined

export type TurnPorts = {
  readonly database: FakeDatabase
  readonly after: (ms: number, run: () => void) => void
  readonly now: () => number
  readonly emit: (event: OpencodeEvent) => void
  readonly activity: Map<string, Activity>
  readonly asks: Map<string, Ask>
  readonly answerTo: (request: FakeRequest) => Reply
  readonly hooks: FakeHooks
  /** True where a permission question comes before this tool runs. */
  readonly asksFor: (tool: string) => boolean
  /** The plugin's own tools, by name. */
  readonly tools: ReadonlyMap<string, FakeTool>
  /** What a step may take of fresh tokens before its session is compacted. */
  readonly contextTokens: () => number
  /** The agent that compacts sessions: its model where it has one of its own, and a refusal of its provider. */
  readonly compaction: () => { readonly model?: Model; readonly reply?: () => Reply | undefined }
  /** How long the snapshot of files takes that is made between the last part of a step and its finish. */
  readonly snapshotMs: (sessionID: string) => number
}

const THINKING_MS = 10
/** Between the end of a turn and what OpenCode writes after it. */
const CLOSING_MS = 5
const EMPTY_ANSWER_MS = 150
const RETRY_DELAYS_MS = [2000, 4000, 8000, 16_000, 30_000] as const
const ABORTED = { name: "MessageAbortedError", message: "Aborted" }
/** What providers say in OpenCode's words; "error" and "other" are words of providers that a test's model does not speak. */
const FINISHES: Readonly<Record<string, string>> = {
  stop: "stop",
  length: "length",
  tool_calls: "tool-calls",
  content_filter: "content-filter",
  error: "error",
  other: "other",
}
const FILTERED = { name: "ContentFilterError", message: "The response was blocked by the provider's content filter." }
const COMPACTION = "compaction"
const CONTINUE = "Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed."

type Step = "goes on" | "ended" | "failed" | Stopped

/** One turn of a session's model: answers until nothing is left to answer. */
export class Turn {
  readonly #ports: TurnPorts
  readonly #session: StoredSession
  readonly #waits: Waits
  readonly #calls: Calls
  #message: StoredMessage | undefined
  #outgrown = false
  #openText = ""
  #withoutTools = false
  #conclude: ((reply: Reply) => void) | undefined

  constructor(session: StoredSession, ports: TurnPorts) {
    this.#session = session
    this.#ports = ports
    this.#waits = new Waits(ports.after)
    this.#calls = new Calls(session, ports, this.#waits)
  }

  async run(): Promise<void> {
    const { emit, activity } = this.#ports
    const sessionID = this.#session.id
    activity.set(sessionID, { type: "busy" })
    for (;;) {
      emit({ type: "active", sessionID, activity: { type: "busy" } })
      const asked = newestUserMessage(this.#session.messages)
      if (!asked || this.#isAnswered(asked)) break
      const compaction = asked.parts.find((part) => part.type === "compaction")
      const result = compaction ? await this.#compact(asked, compaction.auto) : await this.#step(asked)
      if (result === "aborted" || result === "failed") return
      // Whatever the step came to, an answer too.
      if (this.#outgrown) this.#say(asked, { type: "compaction", auto: true })
      else if (result === "ended") break
      this.#outgrown = false
    }
    // What comes in this moment is stored, and nobody reads it.
    if ((await this.#waits.for(1)) === "aborted") return
    activity.delete(sessionID)
    emit({ type: "idle", sessionID })
  }

  /** OpenCode's manner: an error, an idle, then the message's own error, then a second idle. */
  abort(): void {
    if (this.#waits.aborted) return
    this.#waits.abort()
    this.#fail(ABORTED)
  }

  /** The prompt gets an empty answer that says so. */
  abortBeforeItBegins(): void {
    const asked = newestUserMessage(this.#session.messages)
    if (asked) this.#openMessage(asked)
    this.abort()
  }

  /** The model is asked, and has said nothing yet. */
  get thinks(): boolean {
    return this.#conclude !== undefined
  }

  /** What its model says now, whatever it was about to say. */
  conclude(reply: Reply): void {
    this.#conclude?.(reply)
  }

  answerAsk(ask: Ask, refused: boolean, feedback: boolean): void {
    this.#calls.answer(ask, { refused, feedback })
  }

  /** As OpenCode sees it: also where an answer to something else has a later id than what was asked. */
  /** Whether the last answer of the session has ended, and is one to this message. */
  #isAnswered(asked: StoredMessage): boolean {
    const last = this.#session.messages.findLast(({ role }) => role === "assistant")
    if (last?.parentID !== asked.id) return false
    return !["tool-calls", "unknown", undefined].includes(last.finish) && !last.parts.some(asksAgain)
  }

  async #step(asked: StoredMessage): Promise<Step> {
    const { answerTo, hooks } = this.#ports
    const since = this.#session.messages.slice(this.#session.messages.indexOf(asked) + 1)
    const calls = since.flatMap((each) => each.parts.flatMap((part) => (part.type === "tool" ? [part] : [])))
    const hold = hooks.holdRequest(this.#session.id, asked.model ?? DEFAULT_MODEL)
    const held = hold && this.#openMessage(asked)
    if (hold && (await this.#held(hold)) === "aborted") return "aborted"
    const word = hooks.inRequest(this.#session.id)
    this.#withoutTools = word?.withoutTools ?? false
    const request: FakeRequest = {
      sessionID: this.#session.id,
      lastUser: word?.text ?? textOf(asked),
      prompt: textOf(asked),
      toolResults: calls.map(({ tool }) => ({ name: tool })),
      agent: asked.agent,
    }
    const first = answerTo(request)
    const message = held ?? this.#openMessage(asked)
    return this.#asks(message, (attempt) => (attempt === 0 ? first : answerTo(request)))
  }

  /** Waits until a hook lets the request go. */
  #held(hold: Promise<void>): Promise<undefined | Stopped> {
    return this.#waits.until((resolve) => void hold.then(() => resolve(undefined)))
  }

  /** Asks the model, and again where its provider refuses: the same request, in the same message. */
  async #asks(message: StoredMessage, ask: (attempt: number) => Reply): Promise<Step> {
    for (let attempt = 0; ; attempt++) {
      const reply = ask(attempt)
      const said = await this.#thinks(reply.delay ?? THINKING_MS, reply)
      if (said === "aborted") return said
      const refusal = refusalOf(said)
      if (!refusal) return this.#reply(message, said as Answering)
      if (!("status" in said)) this.#ports.emit({ type: "began", sessionID: this.#session.id })
      const stopped = await this.#refused(refusal, attempt)
      if (stopped) return stopped
    }
  }

  async #reply(message: StoredMessage, reply: Answering): Promise<Step> {
    this.#ports.emit({ type: "began", sessionID: this.#session.id })
    if ("empty" in reply) {
      if ((await this.#waits.for(EMPTY_ANSWER_MS)) === "aborted") return "aborted"
      return this.#answered(message, "unknown", {})
    }
    if ("hang" in reply) return this.#hang(message, reply)
    return "tools" in reply ? this.#tools(message, reply) : this.#text(message, reply)
  }

  #openMessage(asked: StoredMessage): StoredMessage {
    const message: StoredMessage = {
      id: this.#ports.database.nextID("msg"),
      role: "assistant",
      createdAt: this.#ports.now(),
      agent: asked.agent,
      model: asked.model,
      parentID: asked.id,
      parts: [],
    }
    this.#message = message
    this.#openText = ""
    this.#session.messages.push(message)
    return message
  }

  /** Says its reply after a while, or what it is made to say meanwhile. */
  async #thinks(ms: number, reply?: Reply): Promise<Reply | Stopped> {
    const said = await this.#waits.until<Reply>((resolve) => {
      this.#conclude = resolve
      if (reply) this.#ports.after(ms, () => resolve(reply))
    })
    this.#conclude = undefined
    return said
  }

  async #hang(message: StoredMessage, { text, call }: HangReply): Promise<Step> {
    if (text) this.#delta(message, this.#ports.database.nextID("prt"), text)
    if (call) this.#calls.hang(message, call.name)
    const said = await this.#thinks(Number.POSITIVE_INFINITY)
    if (said === "aborted") return said
    return refusalOf(said) ? this.#asks(message, () => said) : this.#reply(message, said as Answering)
  }

  async #text(message: StoredMessage, reply: TextReply): Promise<Step> {
    const partID = this.#ports.database.nextID("prt")
    if (reply.reasoning) {
      this.#ports.emit({ type: "thinking", sessionID: this.#session.id })
      message.parts.push({ type: "reasoning", text: reply.reasoning })
    }
    const size = Math.max(1, Math.ceil(reply.text.length / (reply.chunks ?? 1)))
    for (let start = 0; start < reply.text.length; start += size) {
      if (start > 0 && (await this.#waits.for(reply.pace ?? 1)) === "aborted") return "aborted"
      this.#delta(message, partID, reply.text.slice(start, start + size))
    }
    if (reply.text !== "") this.#close(message, partID, reply.text)
    return this.#answered(message, FINISHES[reply.finish ?? "stop"] ?? "unknown", reply.usage)
  }

  #say(asked: StoredMessage, part: StoredPart): void {
    const { database, now } = this.#ports
    const { agent, model } = asked
    const id = database.nextID("msg")
    this.#session.messages.push({ id, role: "user", createdAt: now(), agent, model, parts: [part] })
  }

  /**
   * A request of its own, whose answer takes the place of what was said. Where that came by itself the agent is then
   * asked to go on; where its user asked for it the turn ends.
   */
  async #compact(asked: StoredMessage, auto: boolean): Promise<Step> {
    const { database, hooks, compaction } = this.#ports
    const { model = asked.model ?? DEFAULT_MODEL, reply } = compaction()
    const message = this.#openMessage(asked)
    Object.assign(message, { agent: COMPACTION, summary: true, model })
    hooks.compacting(this.#session.id)
    const hold = hooks.holdRequest(this.#session.id, model, true)
    if (hold && (await this.#held(hold)) === "aborted") return "aborted"
    const summed = await this.#asks(message, () => reply?.() ?? { text: "what was said so far, in short" })
    if (summed !== "goes on") return summed
    if ((await this.#waits.for(CLOSING_MS)) === "aborted") return "aborted"
    if (auto) this.#say(asked, { ...textPart(database.nextID("prt"), CONTINUE), synthetic: true, continues: true })
    return "goes on"
  }

  async #tools(message: StoredMessage, reply: ToolReply): Promise<Step> {
    const { database } = this.#ports
    if (reply.text) this.#close(message, database.nextID("prt"), reply.text)
    const outcome = await this.#calls.run(message, reply.tools, this.#withoutTools)
    if (outcome === "aborted") return "aborted"
    if (outcome === "failed") {
      this.#waits.abort()
      this.#fail({ name: "UnknownError", message: "The user rejected permission to use this specific tool call." })
      return "failed"
    }
    const answered = await this.#answered(message, FINISHES[reply.finish ?? "tool_calls"] ?? "unknown", reply.usage)
    return answered === "goes on" && outcome === "refused" ? "ended" : answered
  }

  /** Waits until OpenCode asks again; undefined where it does. */
  async #refused({ status, text, refusal }: Refused, attempt: number): Promise<Step | undefined> {
    const { activity, emit } = this.#ports
    const sessionID = this.#session.id
    const delay = status >= 500 || status === 429 ? RETRY_DELAYS_MS[attempt] : undefined
    if (delay === undefined) {
      this.#waits.abort()
      this.#fail({ name: "APIError", message: text }, refusal && { refusal })
      return "failed"
    }
    const retry: Activity = { type: "retry", attempt: attempt + 1, message: text }
    activity.set(sessionID, retry)
    emit({ type: "active", sessionID, activity: retry })
    if ((await this.#waits.for(delay)) === "aborted") return "aborted"
    activity.set(sessionID, { type: "busy" })
    emit({ type: "active", sessionID, activity: { type: "busy" } })
    return undefined
  }

  #fail(error: { name: string; message: string }, more: { refusal?: Refused["refusal"] } = {}): void {
    const { emit, activity, after, database } = this.#ports
    const sessionID = this.#session.id
    const message = this.#message
    emit({ type: "error", sessionID, error: errorOf(error), ...more })
    activity.delete(sessionID)
    emit({ type: "idle", sessionID })
    after(CLOSING_MS, () => {
      if (!database.sessions.has(sessionID)) return
      if (message && message.finish === undefined) {
        message.error = error
        message.completedAt = this.#ports.now()
        if (this.#openText !== "") message.parts.push(textPart(database.nextID("prt"), this.#openText))
        this.#calls.cutOff(message)
      }
      emit({ type: "idle", sessionID })
    })
  }

  #delta(message: StoredMessage, partID: string, delta: string): void {
    this.#openText += delta
    this.#ports.emit({ type: "text-delta", sessionID: this.#session.id, partID, delta, messageID: message.id })
  }

  #close(message: StoredMessage, partID: string, text: string): void {
    this.#openText = ""
    message.parts.push(textPart(partID, text))
    this.#ports.emit({ type: "text", sessionID: this.#session.id, partID, text, messageID: message.id })
  }

  async #answered(message: StoredMessage, finish: string, usage: Usage = {}): Promise<Step> {
    const { emit, snapshotMs, contextTokens } = this.#ports
    const snapshot = snapshotMs(this.#session.id)
    if (snapshot > 0 && (await this.#waits.for(snapshot)) === "aborted") return "aborted"
    const { input, output = 20, cached: cacheRead = 0, written: cacheWrite = 0 } = usage
    // A dollar for a million tokens; a tenth of a cent where a script does not say what it takes.
    const cost = input === undefined ? 0.001 : input / 1_000_000
    message.usage = { ...NO_USAGE, input: input ?? 100, output, cacheRead, cacheWrite, cost }
    message.finish = finish
    message.completedAt = this.#ports.now()
    if (finish === "content-filter") message.error = FILTERED
    this.#outgrown = message.summary !== true && message.usage.input > contextTokens()
    const sessionID = this.#session.id
    const { id: messageID, usage: used, summary } = message
    const answered = {
      type: "answered",
      sessionID,
      messageID,
      usage: used,
      finish: finishOf(finish),
      ...(message.model && { model: message.model }),
      ...(summary && { summary }),
    } as const
    emit(answered)
    emit(answered)
    this.#session.updatedAt = this.#ports.now()
    emit({ type: "updated", sessionID })
    return "goes on"
  }
}

type Answering = Exclude<Reply, { status: number } | { fails: unknown } | { cut: true }>
/** `refusal`: the provider's answer, where there was one. */
type Refused = {
  readonly status: number
  readonly text: string
  readonly refusal?: { readonly status: number; readonly body?: string }
}

/** The refusal that a reply is; undefined where it is an answer. */
function refusalOf(reply: Reply): Refused | undefined {
  if ("status" in reply) {
    const { status, body } = reply
    return {
      status,
      text: bodyText(body),
      refusal: { status, ...(body !== undefined && { body: JSON.stringify(body) }) },
    }
  }
  if ("cut" in reply) return { status: 500, text: "the connection broke" }
  return "fails" in reply ? { status: 500, text: bodyText({ error: reply.fails }) } : undefined
}

const textOf = ({ parts }: StoredMessage): string =>
  parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n")

const textPart = (id: string, text: string) => ({ type: "text", id, text, synthetic: false }) as const

const asksAgain = (part: StoredPart): boolean => part.type === "tool" && !part.interrupted

const bodyText = (body: unknown): string =>
  (body as { error?: { message?: string } } | undefined)?.error?.message ?? "scripted failure"

/** What the loop takes as asked: the user's message with the newest time, which one that is sent again gets anew. */
function newestUserMessage(messages: readonly StoredMessage[]): StoredMessage | undefined {
  const asked = messages.filter(({ role }) => role === "user")
  return asked.reduce<StoredMessage | undefined>(
    (newest, each) => (newest && newest.createdAt > each.createdAt ? newest : each),
    undefined,
  )
}
