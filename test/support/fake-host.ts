import {
  type Activity,
  type AgentInfo,
  type Host,
  HostError,
  type LogFields,
  type LogLevel,
  type Message,
  type NewSession,
  type Owner,
  type Persona,
  type Prompt,
  type SessionInfo,
  type TaskRecord,
  type Toast,
  type Unbelieved,
} from "../../src/core/ports.ts"
import type { Ask, Task, TaskDraft } from "../../src/core/task.ts"
import {
  decodeRecord,
  decodeRequest,
  encodeRecord,
  isNewerVersion,
  RECORD_KEY,
  REQUEST_KEY,
} from "../../src/host/record/codec.ts"
import { withoutCopies } from "../../src/host/record/copies.ts"
import { jsonCopy, type StoredMessage, type StoredSession } from "./fake-database.ts"
import { FakeProcess } from "./fake-process.ts"
import { ownerOf, SIGNER } from "./records.ts"

/** What a call meets: time, a failure before or after its work, the end of the process; or it is accepted in vain. */
export type CallFault = { slow?: number; fail?: HostError; after?: boolean } | "crash" | "forget" | undefined

const FAKE_AGENTS: readonly AgentInfo[] = [
  { name: "build", description: "The default agent.", mode: "primary" },
  { name: "general", description: "For anything.", mode: "subagent" },
  { name: "plan", description: "", mode: "all", model: { provider: "scripted", id: "beta" } },
]

/** OpenCode in memory, with the manners of the real one that OPENCODE.md tells, as what the plugin sees of it. */
export class FakeHost extends FakeProcess implements Host {
  readonly toasts: Toast[] = []
  readonly logs: { level: string; message: string; fields?: LogFields }[] = []
  /** The names of the methods that were called. */
  readonly calls: string[] = []
  agentList: readonly AgentInfo[] = FAKE_AGENTS
  modelList: readonly string[] = ["scripted/alpha", "scripted/beta"]
  override agentNames = () => this.agentList.map(({ name }) => name)
  onCall: (method: string, sessionID: string | undefined) => CallFault = () => undefined

  /** How a record written now names this process. */
  get owner(): Owner {
    return ownerOf(this.instance, this.clock.now())
  }

  createSession(input: NewSession, draft: TaskDraft): Promise<string> {
    return this.#call("createSession", input.parentID, () => {
      const metadata = jsonCopy({ [RECORD_KEY]: encodeRecord(draft, this.owner, SIGNER) })
      const { parentID, title, agent, model, rules } = input
      const id = this.openSession({ parentID, title, agent, model, rules: [...rules], metadata })
      const folder = this.folders.get(parentID)
      if (folder !== undefined) this.folders.set(id, folder)
      return id
    })
  }

  deleteSession(sessionID: string): Promise<void> {
    return this.#call("deleteSession", sessionID, () => {
      this.#find(sessionID)
      this.abortByUser(sessionID)
      this.deleteByUser(sessionID)
    })
  }

  session(sessionID: string): Promise<SessionInfo | undefined> {
    return this.#call("session", sessionID, () => {
      const session = this.database.sessions.get(sessionID)
      if (!session) return undefined
      const { id, parentID, rules, undoneFrom, metadata } = session
      return {
        id,
        parentID,
        rules,
        reverted: undoneFrom !== undefined,
        record: decodeRecord(jsonCopy({ id, parentID, metadata }), SIGNER),
      }
    })
  }

  parent(sessionID: string): Promise<SessionInfo | undefined> {
    return this.session(sessionID)
  }

  prompt(prompt: Prompt): Promise<void> {
    return this.#call("prompt", prompt.sessionID, () => {
      this.#find(prompt.sessionID)
      this.accept(prompt)
    })
  }

  /** Where sessions were moved. */
  readonly folders = new Map<string, string>()

  folderOf(sessionID: string): string {
    return this.folders.get(sessionID) ?? "/project"
  }

  move(sessionID: string, folder: string): Promise<void> {
    return this.#call("move", sessionID, () => void this.folders.set(sessionID, folder))
  }

  abort(sessionID: string): Promise<void> {
    return this.#call("abort", sessionID, () => this.abortByUser(sessionID))
  }

  activity(): Promise<ReadonlyMap<string, Activity>> {
    return this.#call("activity", undefined, () => new Map(this.working))
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
    if (messageID === "") return this.persona(sessionID)
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
      this.answerAsk(ask, true, ask.kind === "permission" && message !== "")
    })
  }

  openAsks(): Promise<readonly Ask[]> {
    return this.#call("openAsks", undefined, () => {
      return [...this.asks.values()].map((ask) => ({ ...ask, askedAt: this.clock.now() }))
    })
  }

  saveRecord(sessionID: string, task: Task | undefined): Promise<void> {
    return this.#call("saveRecord", sessionID, () => {
      const session = this.#find(sessionID)
      if (isNewerVersion(session.metadata)) return
      const { [RECORD_KEY]: _ours, ...others } = session.metadata
      this.writeMetadata(sessionID, {
        ...others,
        ...(task && { [RECORD_KEY]: encodeRecord(task, this.owner, SIGNER) }),
      })
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

  unbelieved(): readonly Unbelieved[] {
    return [...this.database.sessions.values()].flatMap((row) => {
      const { id, parentID, metadata, messages, updatedAt } = row
      const stored = jsonCopy({ id, parentID, metadata })
      if (decodeRecord(stored, SIGNER) || !decodeRecord(stored)) return []
      return [{ sessionID: id, cost: costOf(messages), changedAt: updatedAt }]
    })
  }

  recordsOf(parentID: string): Promise<readonly TaskRecord[]> {
    return this.#call("recordsOf", parentID, async () =>
      (await this.#records(() => true)).filter(({ task }) => task.parentID === parentID),
    )
  }

  ownership({ instance }: Owner): "ours" | "alive" | "dead" {
    if (instance === this.instance) return "ours"
    return this.database.living.has(instance) ? "alive" : "dead"
  }

  toast(toast: Toast): void {
    if (!this.isDead) this.toasts.push(toast)
  }

  log(level: LogLevel, message: string, fields?: LogFields): void {
    if (!this.isDead) this.logs.push({ level, message, fields })
  }

  async #call<Result>(
    method: string,
    sessionID: string | undefined,
    work: () => Result | Promise<Result>,
  ): Promise<Result> {
    if (this.isDead) return new Promise(() => {})
    this.calls.push(method)
    const fault = this.onCall(method, sessionID)
    if (fault === "crash") this.kill()
    if (fault === "crash") return new Promise(() => {})
    const { slow, fail, after = false } = fault === "forget" ? {} : (fault ?? {})
    if (slow) await new Promise<void>((resolve) => void this.clock.after(slow, resolve))
    else await undefined
    if (this.isDead) return new Promise(() => {})
    if (fault === "forget") return undefined as Result
    if (fail && !after) throw fail
    const result = work()
    if (fail) throw new HostError(fail.message)
    return result
  }

  async #records(wanted: (session: StoredSession) => boolean): Promise<TaskRecord[]> {
    const recorded = [...this.database.sessions.values()].flatMap((row) => {
      const { id, parentID, metadata, messages } = row
      const record = decodeRecord(jsonCopy({ id, parentID, metadata }), SIGNER)
      return record ? [{ row, record: { ...record, cost: costOf(messages) } }] : []
    })
    const holdsPrompt = async ({ task }: TaskRecord) => this.#message(task.sessionID, task.run.promptID) !== undefined
    const own = await withoutCopies(recorded, holdsPrompt)
    return own.filter(({ row }) => wanted(row)).map(({ record }) => record)
  }

  #find(sessionID: string): StoredSession {
    const session = this.database.sessions.get(sessionID)
    if (session) return session
    throw new HostError(`Session not found: ${sessionID}`, { notFound: true })
  }

  #message(sessionID: string, messageID: string): StoredMessage | undefined {
    return this.database.sessions.get(sessionID)?.messages.find(({ id }) => id === messageID)
  }
}

const costOf = (messages: readonly StoredMessage[]): number =>
  messages.reduce((sum, { usage }) => sum + (usage?.cost ?? 0), 0)

function toMessage(message: StoredMessage): Message {
  const { id, role, createdAt, completedAt, parentID, finish, error, summary = false, usage, parts } = message
  return {
    id,
    role,
    createdAt,
    summary,
    ...(role === "assistant" && { completedAt, parentID, finish, error, usage }),
    parts: parts.map((part) => {
      if (part.type === "text") return { type: "text", text: part.text, synthetic: part.synthetic }
      const { callID, tool, state, refused } = part
      return { type: "tool", callID, tool, state, refused }
    }),
  }
}
