import {
  type Activity,
  type AgentInfo,
  type Host,
  HostError,
  type HostEvent,
  type LogFields,
  type Message,
  type NewSession,
  type Owner,
  type Persona,
  type Prompt,
  type SessionInfo,
  type TaskRecord,
  type Toast,
} from "../../src/core/ports.ts"
import type { Ask, Task, TaskDraft } from "../../src/core/task.ts"
import {
  decodeRecord,
  decodeRequest,
  encodeRecord,
  isForeignVersion,
  RECORD_KEY,
  REQUEST_KEY,
} from "../../src/host/record.ts"
import type { ClockView, FakeClock } from "./fake-clock.ts"
import { FakeDatabase, jsonCopy, type StoredMessage, type StoredSession } from "./fake-database.ts"
import { type FakeScript, Turn } from "./fake-turn.ts"

/** What a call meets: time, a failure before or after its work, the end of the process; or it is accepted in vain. */
export type CallFault = { slow?: number; fail?: HostError; after?: boolean } | "crash" | "forget" | undefined
export type EventFault = "lose" | "double" | { late: number } | undefined

export type FakeHostOptions = { clock: FakeClock; database?: FakeDatabase; instance?: string }

const BEGIN_MS = 5

const FAKE_AGENTS: readonly AgentInfo[] = [
  { name: "build", description: "The default agent.", mode: "primary" },
  { name: "general", description: "For anything.", mode: "subagent" },
  { name: "plan", description: "", mode: "all", model: { provider: "scripted", id: "beta" } },
]

/** OpenCode in memory, as one process on a database, with the manners of the real one that OPENCODE.md tells. */
export class FakeHost implements Host {
  readonly database: FakeDatabase
  readonly clock: ClockView
  readonly instance: string
  readonly scripts: FakeScript[] = []
  readonly toasts: Toast[] = []
  readonly logs: { level: string; message: string; fields?: LogFields }[] = []
  readonly calls: string[] = []
  readonly events: HostEvent[] = []
  agentList: readonly AgentInfo[] = FAKE_AGENTS
  modelList: readonly string[] = ["scripted/alpha", "scripted/beta"]
  /** Tools that need the user's permission. */
  readonly asking = new Set<string>()
  onCall: (method: string, sessionID: string | undefined) => CallFault = () => undefined
  onEvent: (event: HostEvent) => EventFault = () => undefined
  #listener: (event: HostEvent) => void = () => {}
  readonly #activity = new Map<string, Activity>()
  readonly #asks = new Map<string, Ask>()
  /** Prompts that were accepted a moment ago. */
  readonly #accepted = new Map<() => void, string>()
  /** Turns that are about to begin, with what takes that back. */
  readonly #beginning = new Map<string, () => void>()
  readonly #turns = new Map<string, Turn>()
  #dead = false

  constructor({ clock, database = new FakeDatabase(), instance = "first" }: FakeHostOptions) {
    this.clock = clock.view()
    this.database = database
    this.instance = instance
    database.living.add(instance)
  }

  listen(listener: (event: HostEvent) => void): void {
    this.#listener = listener
  }

  /** SIGKILL: nothing of this process goes on, and what was being written stays as it is. */
  kill(): void {
    this.#dead = true
    this.database.living.delete(this.instance)
    this.clock.kill()
    this.#listener = () => {}
  }

  /** How a record written now names this process. */
  get owner(): Owner {
    return { pid: 1, startedAt: 1, instance: this.instance, seenAt: this.clock.now() }
  }

  get isDead(): boolean {
    return this.#dead
  }

  // --- what a user does ---

  openSession(session: Partial<StoredSession> = {}): string {
    const { id, parentID } = this.database.add({ updatedAt: this.clock.now(), ...session })
    this.#emit({ type: "created", sessionID: id, parentID })
    return id
  }

  say(sessionID: string, text: string, persona: Partial<Persona> = {}): string {
    const messageID = this.database.nextID("msg")
    this.#take({
      sessionID,
      messageID,
      agent: persona.agent ?? "build",
      model: persona.model,
      parts: [{ id: this.database.nextID("prt"), text }],
    })
    return messageID
  }

  answer(askID: string): void {
    const ask = this.#asks.get(askID)
    if (ask) this.#turns.get(ask.sessionID)?.answerAsk(false, false)
  }

  abortByUser(sessionID: string): void {
    this.#abort(sessionID)
  }

  deleteByUser(sessionID: string): void {
    this.#delete(sessionID)
  }

  /** Writes a session's metadata as any client can. */
  writeMetadata(sessionID: string, metadata: Record<string, unknown>): void {
    const session = this.stored(sessionID)
    session.metadata = jsonCopy(metadata)
    session.updatedAt = this.clock.now()
    this.#emit({ type: "updated", sessionID, usage: session.usage, request: decodeRequest(session.metadata) })
  }

  stored(sessionID: string): StoredSession {
    const session = this.database.sessions.get(sessionID)
    if (!session) throw new Error(`no session ${sessionID}`)
    return session
  }

  /** An event out of the blue. */
  tell(event: HostEvent): void {
    this.#deliver(event)
  }

  // --- the port ---

  createSession(input: NewSession, draft: TaskDraft): Promise<string> {
    return this.#call("createSession", input.parentID, () => {
      const metadata = jsonCopy({ [RECORD_KEY]: encodeRecord(draft, this.owner) })
      const { parentID, title, agent, model, rules } = input
      return this.openSession({ parentID, title, agent, model, rules: [...rules], metadata })
    })
  }

  deleteSession(sessionID: string): Promise<void> {
    return this.#call("deleteSession", sessionID, () => {
      this.#find(sessionID)
      this.#abort(sessionID)
      this.#delete(sessionID)
    })
  }

  session(sessionID: string): Promise<SessionInfo | undefined> {
    return this.#call("session", sessionID, () => {
      const session = this.database.sessions.get(sessionID)
      if (!session) return undefined
      const { id, parentID, title, rules, usage, metadata } = session
      return { id, parentID, title, rules, usage, record: decodeRecord(jsonCopy(metadata), id) }
    })
  }

  parent(sessionID: string): Promise<SessionInfo | undefined> {
    return this.session(sessionID)
  }

  prompt(prompt: Prompt): Promise<void> {
    return this.#call("prompt", prompt.sessionID, () => {
      this.#find(prompt.sessionID)
      const take = () => {
        if (this.#accepted.delete(take)) this.#take(prompt)
      }
      this.#accepted.set(take, prompt.sessionID)
      this.#after(1, take)
    })
  }

  abort(sessionID: string): Promise<void> {
    return this.#call("abort", sessionID, () => this.#abort(sessionID))
  }

  activity(): Promise<ReadonlyMap<string, Activity>> {
    return this.#call("activity", undefined, () => new Map(this.#activity))
  }

  messagesSince(sessionID: string, messageID: string): Promise<readonly Message[]> {
    return this.#call("messagesSince", sessionID, () => {
      const { messages } = this.database.sessions.get(sessionID) ?? { messages: [] }
      const start = messages.findIndex(({ id }) => id === messageID)
      return start < 0 ? [] : messages.slice(start).map(toMessage)
    })
  }

  lastMessage(sessionID: string): Promise<Message | undefined> {
    return this.#call("lastMessage", sessionID, () => {
      const last = this.database.sessions.get(sessionID)?.messages.at(-1)
      return last && toMessage(last)
    })
  }

  hasMessage(sessionID: string, messageID: string, parts: number): Promise<boolean> {
    return this.#call("hasMessage", sessionID, () => {
      const message = this.#message(sessionID, messageID)
      return message !== undefined && message.parts.length >= parts
    })
  }

  persona(sessionID: string): Promise<Persona | undefined> {
    return this.#call("persona", sessionID, () => {
      const asked = this.#find(sessionID).messages.findLast(({ role }) => role === "user")
      return asked && { agent: asked.agent, model: asked.model }
    })
  }

  caller(sessionID: string, messageID: string): Promise<Persona | undefined> {
    return this.#call("caller", sessionID, () => {
      const message = this.#message(sessionID, messageID)
      return message?.role === "assistant" ? { agent: message.agent, model: message.model } : undefined
    })
  }

  openTodos(sessionID: string): Promise<number> {
    return this.#call("openTodos", sessionID, () => {
      const { todos } = this.database.sessions.get(sessionID) ?? { todos: [] }
      return todos.filter(({ status }) => status !== "completed" && status !== "cancelled").length
    })
  }

  agents(): Promise<readonly AgentInfo[]> {
    return this.#call("agents", undefined, () => this.agentList)
  }

  models(): Promise<readonly string[]> {
    return this.#call("models", undefined, () => this.modelList)
  }

  refuse(ask: Ask, message: string): Promise<void> {
    return this.#call("refuse", ask.sessionID, () => {
      if (!this.#asks.has(ask.id)) return
      this.#turns.get(ask.sessionID)?.answerAsk(true, ask.kind === "permission" && message !== "")
    })
  }

  openAsks(): Promise<readonly Ask[]> {
    return this.#call("openAsks", undefined, () => {
      return [...this.#asks.values()].map((ask) => ({ ...ask, askedAt: this.clock.now() }))
    })
  }

  saveRecord(sessionID: string, task: Task | undefined): Promise<void> {
    return this.#call("saveRecord", sessionID, () => {
      const session = this.#find(sessionID)
      if (isForeignVersion(session.metadata)) return
      const { [RECORD_KEY]: _ours, ...others } = session.metadata
      this.writeMetadata(sessionID, { ...others, ...(task && { [RECORD_KEY]: encodeRecord(task, this.owner) }) })
    })
  }

  clearRequest(sessionID: string, requestID: string): Promise<void> {
    return this.#call("clearRequest", sessionID, () => {
      const { metadata } = this.#find(sessionID)
      if (decodeRequest(metadata)?.id !== requestID) return
      const { [REQUEST_KEY]: _request, ...others } = metadata
      this.writeMetadata(sessionID, others)
    })
  }

  recordsSince(since: number): Promise<readonly TaskRecord[]> {
    return this.#call("recordsSince", undefined, () => this.#records(({ updatedAt }) => updatedAt >= since))
  }

  recordsOf(parentID: string): Promise<readonly TaskRecord[]> {
    return this.#call("recordsOf", parentID, () =>
      this.#records(() => true).filter(({ task }) => task.parentID === parentID),
    )
  }

  ownership({ instance }: Owner): "ours" | "alive" | "dead" {
    if (instance === this.instance) return "ours"
    return this.database.living.has(instance) ? "alive" : "dead"
  }

  toast(toast: Toast): void {
    if (!this.#dead) this.toasts.push(toast)
  }

  log(level: "debug" | "info" | "warn" | "error", message: string, fields?: LogFields): void {
    if (!this.#dead) this.logs.push({ level, message, fields })
  }

  // --- inside ---

  async #call<Result>(method: string, sessionID: string | undefined, work: () => Result): Promise<Result> {
    if (this.#dead) return new Promise(() => {})
    this.calls.push(method)
    const fault = this.onCall(method, sessionID)
    if (fault === "crash") this.kill()
    if (fault === "crash") return new Promise(() => {})
    const { slow, fail, after = false } = fault === "forget" ? {} : (fault ?? {})
    if (slow) await new Promise<void>((resolve) => void this.clock.after(slow, resolve))
    else await undefined
    if (this.#dead) return new Promise(() => {})
    if (fault === "forget") return undefined as Result
    if (fail && !after) throw fail
    const result = work()
    if (fail) throw new HostError(fail.message, { ambiguous: true })
    return result
  }

  /** The same message again changes nothing; but a session that has something unanswered takes it up. */
  #take(prompt: Prompt): void {
    const session = this.database.sessions.get(prompt.sessionID)
    if (!session) return
    const agent = prompt.agent ?? "build"
    if (!this.agentList.some(({ name }) => name === agent)) {
      const error = { name: "UnknownError", message: `Agent not found: "${agent}".` }
      this.#emit({ type: "error", sessionID: session.id, error })
      this.#emit({ type: "error", sessionID: session.id, error })
      return
    }
    const stored = session.messages.find(({ id }) => id === prompt.messageID)
    if (stored) stored.parts = this.#userMessage(prompt).parts
    else session.messages.push(this.#userMessage(prompt))
    if (prompt.noReply || this.#activity.has(session.id)) return
    this.#activity.set(session.id, { type: "busy" })
    this.#beginning.set(
      session.id,
      this.clock.after(BEGIN_MS, () => this.#begin(session)),
    )
  }

  #begin(session: StoredSession): void {
    // Aborted before it began.
    if (!this.#activity.has(session.id) || !this.database.sessions.has(session.id)) return
    const turn = this.#newTurn(session)
    this.#turns.set(session.id, turn)
    void turn.run().finally(() => {
      if (this.#turns.get(session.id) === turn) this.#turns.delete(session.id)
    })
  }

  #newTurn(session: StoredSession): Turn {
    return new Turn(session, {
      database: this.database,
      after: (ms, run) => this.#after(ms, run),
      now: () => this.clock.now(),
      emit: (event) => this.#emit(event),
      activity: this.#activity,
      asks: this.#asks,
      asksFor: (tool) => this.asking.has(tool),
      answerTo: (request) => {
        for (const script of this.scripts.toReversed()) {
          const reply = script(request)
          if (reply) return reply
        }
        return { text: "ok" }
      },
    })
  }

  #abort(sessionID: string): void {
    const turn = this.#turns.get(sessionID)
    this.#turns.delete(sessionID)
    if (turn) return turn.abort()
    for (const [take, session] of [...this.#accepted]) if (session === sessionID) take()
    const session = this.database.sessions.get(sessionID)
    this.#beginning.get(sessionID)?.()
    const begins = this.#activity.delete(sessionID)
    if (!session || !begins) return this.#emit({ type: "idle", sessionID })
    this.#newTurn(session).abortBeforeItBegins()
  }

  #delete(sessionID: string): void {
    for (const child of this.database.children(sessionID)) this.#delete(child.id)
    this.database.sessions.delete(sessionID)
    this.#emit({ type: "deleted", sessionID })
  }

  #userMessage({ messageID, agent = "build", model, parts }: Prompt): StoredMessage {
    return {
      id: messageID,
      role: "user",
      createdAt: this.clock.now(),
      agent,
      model,
      parts: parts.map((part) => ({ type: "text", id: part.id, text: part.text, synthetic: part.synthetic === true })),
    }
  }

  #records(wanted: (session: StoredSession) => boolean): TaskRecord[] {
    return [...this.database.sessions.values()].filter(wanted).flatMap((session) => {
      return decodeRecord(jsonCopy(session.metadata), session.id) ?? []
    })
  }

  #find(sessionID: string): StoredSession {
    const session = this.database.sessions.get(sessionID)
    if (session) return session
    throw new HostError(`Session not found: ${sessionID}`, { notFound: true })
  }

  #message(sessionID: string, messageID: string): StoredMessage | undefined {
    return this.database.sessions.get(sessionID)?.messages.find(({ id }) => id === messageID)
  }

  #after(ms: number, run: () => void): void {
    this.clock.after(ms, run)
  }

  #emit(event: HostEvent): void {
    if (this.#dead) return
    const fault = this.onEvent(event)
    if (fault === "lose") return
    if (typeof fault === "object") return void this.clock.after(fault.late, () => this.#deliver(event))
    this.#deliver(event)
    if (fault === "double") this.#deliver(event)
  }

  #deliver(event: HostEvent): void {
    if (this.#dead) return
    this.events.push(event)
    this.#listener(event)
  }
}

function toMessage(message: StoredMessage): Message {
  const { id, role, createdAt, parentID, finish, error, summary = false, usage, parts } = message
  return {
    id,
    role,
    createdAt,
    summary,
    ...(role === "assistant" && { parentID, finish, error, usage }),
    parts: parts.map((part) => {
      if (part.type === "text") return { type: "text", text: part.text, synthetic: part.synthetic }
      const { callID, tool, state, refused } = part
      return { type: "tool", callID, tool, state, refused }
    }),
  }
}
