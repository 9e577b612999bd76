import { mayGoOn } from "../../src/core/outcome.ts"
import {
  type Activity,
  type AgentInfo,
  LEASE_MS,
  type LogFields,
  type LogLevel,
  type Message,
  type MessagePart,
  type NewSession,
  type OpencodeApi,
  OpencodeError,
  type Owner,
  type Persona,
  type Prompt,
  type SessionInfo,
  type TaskRecord,
  type Toast,
  type UnverifiedRecord,
} from "../../src/core/ports.ts"
import {
  type Ask,
  hasPendingNotification,
  isActive,
  parentSessionOf,
  type Task,
  type TaskDraft,
} from "../../src/core/task.ts"
import { callOf, errorOf, finishIn } from "../../src/opencode/convert.ts"
import { messageID, taskOfMessage } from "../../src/opencode/messages.ts"
import { costWithBelow, withoutCopies } from "../../src/opencode/records.ts"
import { decodeRequest, encodeRecord, isNewerVersion, RECORD_KEY, REQUEST_KEY } from "../../src/runtime/record/codec.ts"
import { editedBy } from "./fake-calls.ts"
import { jsonCopy, type StoredMessage, type StoredSession } from "./fake-database.ts"
import { FakeProcess } from "./fake-process.ts"
import { decodeRecord } from "./groups.ts"
import { ownerOf } from "./records.ts"

/**
 * What a call meets: time, a failure before or after its work, the end of the process; or it is accepted in vain. `held`
 * and `heldAfter`: it is under way until then, its work still to be done or done already.
 */
export type CallFault =
  | { slow?: number; fail?: OpencodeError; after?: boolean; held?: Promise<unknown>; heldAfter?: Promise<unknown> }
  | "crash"
  | "forget"
  | undefined

const FAKE_AGENTS: readonly AgentInfo[] = [
  { name: "build", description: "The default agent.", mode: "primary" },
  { name: "general", description: "For anything.", mode: "subagent" },
  { name: "plan", description: "", mode: "all", model: { provider: "scripted", id: "beta" } },
]

/** OpenCode in memory, with the manners of the real one that OPENCODE.md tells, as what the plugin sees of it. */
export class FakeApi extends FakeProcess implements OpencodeApi {
  readonly toasts: Toast[] = []
  readonly logs: { level: string; message: string; fields?: LogFields }[] = []
  /** The names of the methods that were called. */
  readonly calls: string[] = []
  agentList: readonly AgentInfo[] = FAKE_AGENTS
  modelList: readonly string[] = ["scripted/alpha", "scripted/beta"]
  override agentNames = () => this.agentList.map(({ name }) => name)
  /** Asked at each call; `about`: what is sent or written with it. */
  onCall: (method: string, sessionID: string | undefined, about: unknown) => CallFault = () => undefined

  /** How a record written now names this process. */
  get owner(): Owner {
    return ownerOf(this.instance, this.clock.now())
  }

  createSession(input: NewSession, draft: TaskDraft): Promise<string> {
    const create = () => {
      const metadata = jsonCopy({ [RECORD_KEY]: encodeRecord(draft, this.owner, this.database.signer) })
      const { parentID, title, agent, model, rules } = input
      const id = this.openSession({ parentID, title, agent, model, rules: [...rules], metadata })
      const folder = this.folders.get(parentID)
      if (folder !== undefined) this.folders.set(id, folder)
      return id
    }
    return this.carryOut("createSession", input.parentID, create, draft)
  }

  deleteSession(sessionID: string): Promise<void> {
    return this.carryOut("deleteSession", sessionID, () => {
      this.#find(sessionID)
      this.abortByUser(sessionID)
      this.deleteByUser(sessionID)
    })
  }

  deleteMessage(sessionID: string, messageID: string): Promise<void> {
    return this.carryOut("deleteMessage", sessionID, () => {
      const stored = this.#find(sessionID)
      const at = stored.messages.findIndex(({ id }) => id === messageID)
      if (at >= 0) stored.messages.splice(at, 1)
    })
  }

  session(sessionID: string): Promise<SessionInfo | undefined> {
    return this.carryOut("session", sessionID, () => {
      const session = this.database.sessions.get(sessionID)
      if (!session) return undefined
      const { id, parentID, rules, undoneFrom } = session
      return {
        id,
        parentID,
        rules,
        reverted: undoneFrom !== undefined,
        record: this.database.recordIn(session),
      }
    })
  }

  parent(sessionID: string): Promise<SessionInfo | undefined> {
    return this.session(sessionID)
  }

  readonly messageID = messageID
  readonly taskOf = taskOfMessage

  prompt(prompt: Prompt): Promise<void> {
    const accept = () => {
      this.#find(prompt.sessionID)
      this.accept(prompt)
    }
    return this.carryOut("prompt", prompt.sessionID, accept, prompt)
  }

  move(sessionID: string, folder: string): Promise<void> {
    return this.carryOut("move", sessionID, () => void this.folders.set(sessionID, folder))
  }

  abort(sessionID: string): Promise<void> {
    return this.carryOut("abort", sessionID, () => this.abortByUser(sessionID))
  }

  activity(): Promise<ReadonlyMap<string, Activity>> {
    return this.carryOut("activity", undefined, () => new Map(this.working))
  }

  messagesSince(sessionID: string, messageID: string): Promise<readonly Message[]> {
    return this.carryOut("messagesSince", sessionID, () => {
      const { messages } = this.database.sessions.get(sessionID) ?? { messages: [] }
      const start = messages.findIndex(({ id }) => id === messageID)
      return start < 0 ? [] : messages.slice(start).map(toMessage)
    })
  }

  lastMessage(sessionID: string, isWanted = (_message: Message) => true): Promise<Message | undefined> {
    return this.carryOut("lastMessage", sessionID, () =>
      this.database.sessions.get(sessionID)?.messages.map(toMessage).findLast(isWanted),
    )
  }

  isAnsweredElsewhere(sessionID: string): Promise<boolean> {
    return this.carryOut("isAnsweredElsewhere", sessionID, () => {
      const messages = this.database.sessions.get(sessionID)?.messages ?? []
      const newest = messages.at(-1)
      const isForeign = newest?.role === "user" && !this.storedHere.has(newest.id)
      const answer = messages.findLast(({ role }) => role === "assistant")
      const goesOn = (last: StoredMessage | undefined) =>
        last !== undefined && last.createdAt >= this.startedAt && mayGoOn(toMessage(last), this.clock.now())
      return !this.working.has(sessionID) && ((isForeign && goesOn(newest)) || goesOn(answer))
    })
  }

  hasMessage(sessionID: string, messageID: string, parts: number): Promise<boolean> {
    return this.carryOut("hasMessage", sessionID, () => {
      // OpenCode has no such route.
      if (sessionID === "") throw new OpencodeError("read a message: no session was named")
      const message = this.#message(sessionID, messageID)
      return message !== undefined && message.parts.length >= parts
    })
  }

  persona(sessionID: string): Promise<Persona | undefined> {
    return this.carryOut("persona", sessionID, () => {
      const { messages, agent, model } = this.#find(sessionID)
      const asked = messages.findLast(({ role }) => role === "user")
      if (asked) return { agent: asked.agent, model: asked.model }
      return model && { agent, model }
    })
  }

  caller(sessionID: string, messageID: string): Promise<Persona | undefined> {
    if (messageID === "") return this.persona(sessionID)
    return this.carryOut("caller", sessionID, () => {
      const message = this.#message(sessionID, messageID)
      return message?.role === "assistant" ? { agent: message.agent, model: message.model } : undefined
    })
  }

  openTodos(sessionID: string): Promise<number> {
    return this.carryOut("openTodos", sessionID, () => {
      const { todos } = this.database.sessions.get(sessionID) ?? { todos: [] }
      return todos.filter(({ status }) => status !== "completed" && status !== "cancelled").length
    })
  }

  agents(): Promise<readonly AgentInfo[]> {
    return this.carryOut("agents", undefined, () => this.agentList)
  }

  primaryTools = (): readonly string[] => []

  models(): Promise<readonly string[]> {
    return this.carryOut("models", undefined, () => this.modelList)
  }

  refuse(ask: Ask, message: string): Promise<void> {
    return this.carryOut("refuse", ask.sessionID, () => {
      this.answerAsk(ask, true, ask.kind === "permission" && message !== "")
    })
  }

  openAsks(): Promise<readonly Ask[]> {
    return this.carryOut("openAsks", undefined, () => {
      return [...this.asks.values()].map((ask) => ({ ...ask, askedAt: this.clock.now() }))
    })
  }

  saveRecord(sessionID: string, task: Task | undefined): Promise<void> {
    const save = () => {
      const session = this.#find(sessionID)
      if (isNewerVersion(session.metadata)) return
      this.#refuseTakenOver(session, task)
      const { [RECORD_KEY]: _ours, ...others } = session.metadata
      this.writeMetadata(sessionID, {
        ...others,
        ...(task && { [RECORD_KEY]: encodeRecord(task, this.owner, this.database.signer) }),
      })
    }
    return this.carryOut("saveRecord", sessionID, save, task)
  }

  /** What another living process has is its own, but for a new run of what is over; and no later run is written over. */
  #refuseTakenOver(session: StoredSession, task: Task | undefined): void {
    // Whether it is to be believed need not be asked of what is our own.
    const stored = session.metadata[RECORD_KEY] as { owner?: Partial<Owner> } | undefined
    if (stored?.owner?.instance === this.instance) return
    const record = this.database.recordIn(session)
    const ownership = record && this.ownership(record.owner)
    if (!record || ownership === "ours") return
    const ahead = task ? task.run.generation - record.task.run.generation : 0
    if (ahead > 0 && !isActive(record.task) && !hasPendingNotification(record.task)) return
    if (ahead < 0 || ownership === "alive") throw new OpencodeError("another process has it", { takenOver: true })
  }

  clearRequest(sessionID: string, requestID: string): Promise<void> {
    return this.carryOut("clearRequest", sessionID, () => {
      const { metadata } = this.#find(sessionID)
      if (decodeRequest(metadata)?.id !== requestID) return
      const { [REQUEST_KEY]: _request, ...others } = metadata
      this.writeMetadata(sessionID, others)
    })
  }

  recordsSince(since: number): Promise<readonly TaskRecord[]> {
    return this.carryOut("recordsSince", undefined, () => this.#records(({ updatedAt }) => updatedAt >= since))
  }

  unverified(): readonly UnverifiedRecord[] {
    return [...this.database.sessions.values()].flatMap((row) => {
      const { id, parentID, metadata, messages, updatedAt } = row
      if (!(RECORD_KEY in metadata) || this.database.recordIn(row)) return []
      if (!decodeRecord(jsonCopy({ id, parentID, metadata }))) return []
      return [{ sessionID: id, cost: costOf(messages), changedAt: updatedAt }]
    })
  }

  recordsOf(parentID: string): Promise<readonly TaskRecord[]> {
    return this.carryOut("recordsOf", parentID, async () =>
      (await this.#records(() => true)).filter(({ task }) => parentSessionOf(task) === parentID),
    )
  }

  ownership({ instance, seenAt }: Owner): "ours" | "alive" | "dead" {
    if (instance === this.instance) return "ours"
    if (this.database.strangers) return this.clock.now() - seenAt < LEASE_MS ? "alive" : "dead"
    return this.database.living.has(instance) ? "alive" : "dead"
  }

  toast(toast: Toast): void {
    if (!this.isDead) this.toasts.push(toast)
  }

  log(level: LogLevel, message: string, fields?: LogFields): void {
    if (!this.isDead) this.logs.push({ level, message, fields })
  }

  /** Carries out what a call asks for, as far as what it meets lets it. */
  async carryOut<Result>(
    method: string,
    sessionID: string | undefined,
    work: () => Result | Promise<Result>,
    about?: unknown,
  ): Promise<Result> {
    if (this.isDead) return new Promise(() => {})
    this.calls.push(method)
    const fault = this.onCall(method, sessionID, about)
    if (fault === "crash") this.kill()
    if (fault === "crash") return new Promise(() => {})
    const { slow, fail, after = false, held, heldAfter } = fault === "forget" ? {} : (fault ?? {})
    if (slow) await new Promise<void>((resolve) => void this.clock.after(slow, resolve))
    else await held
    if (this.isDead) return new Promise(() => {})
    if (fault === "forget") return undefined as Result
    if (fail && !after) throw fail
    const result = await work()
    await heldAfter
    if (this.isDead) return new Promise(() => {})
    if (fail) throw new OpencodeError(fail.message)
    return result
  }

  async #records(wanted: (session: StoredSession) => boolean): Promise<TaskRecord[]> {
    const rows = [...this.database.sessions.values()]
    const cost = costWithBelow(rows, ({ messages }) => costOf(messages))
    const recorded = rows.flatMap((row) => {
      const record = this.database.recordIn(row)
      return record ? [{ row, record: { ...record, cost: cost(row) } }] : []
    })
    const holdsPrompt = async ({ task }: TaskRecord) => this.#message(task.sessionID, task.run.promptID) !== undefined
    const own = await withoutCopies(recorded, holdsPrompt)
    return own.filter(({ row }) => wanted(row)).map(({ record }) => record)
  }

  #find(sessionID: string): StoredSession {
    const session = this.database.sessions.get(sessionID)
    if (session) return session
    throw new OpencodeError(`Session not found: ${sessionID}`, { notFound: true })
  }

  #message(sessionID: string, messageID: string): StoredMessage | undefined {
    return this.database.sessions.get(sessionID)?.messages.find(({ id }) => id === messageID)
  }
}

const costOf = (messages: readonly StoredMessage[]): number =>
  messages.reduce((sum, { usage }) => sum + (usage?.cost ?? 0), 0)

function toMessage(message: StoredMessage): Message {
  const { id, role, createdAt, completedAt, parentID, finish, error, summary = false, usage, parts } = message
  const read = parts.flatMap((part): MessagePart[] => {
    if (part.type === "compaction") return [{ type: part.type, ...(!part.auto && { byUser: true as const }) }]
    if (part.type === "tool") {
      const { callID, tool, state, refused, args, interrupted = false, call: ended } = part
      const call = { ...callOf({ callID, tool, state, refused, final: interrupted }), ...(ended && { call: ended }) }
      const paths = state === "completed" ? editedBy({ tool, args }) : []
      return paths.length > 0 ? [call, { type: "files", own: true, paths }] : [call]
    }
    if (part.type === "reasoning") return [part]
    const { id: _id, ...text } = part
    return [text]
  })
  return {
    id,
    role,
    createdAt,
    summary,
    ...(role === "assistant" && {
      completedAt,
      parentID,
      finish: finish === undefined ? undefined : finishIn(finish, read),
      error: error && errorOf(error),
      usage,
    }),
    parts: read,
  }
}
