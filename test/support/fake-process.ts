import type { Activity, OpencodeEvent, Persona, Prompt, Undone } from "../../src/core/ports.ts"
import { type Ask, type Model, NO_USAGE } from "../../src/core/task.ts"
import { callDigest, errorOf } from "../../src/opencode/convert.ts"
import { partID } from "../../src/opencode/messages.ts"
import { decodeRequest } from "../../src/runtime/record/codec.ts"
import type { FakeTool } from "./fake-calls.ts"
import type { ClockView, FakeClock } from "./fake-clock.ts"
import { FakeDatabase, jsonCopy, type StoredMessage, type StoredSession } from "./fake-database.ts"
import { type FakeHooks, type FakeScript, Turn } from "./fake-turn.ts"
import type { Reply } from "./model.ts"

export type EventFault = "lose" | "double" | { late: number } | undefined
export type FakeApiOptions = { clock: FakeClock; database?: FakeDatabase; instance?: string }

const BEGIN_MS = 5
const SHELL_MS = 5

/** One OpenCode process on a database: its sessions' turns, its events, and what a user does in it. */
export class FakeProcess {
  readonly database: FakeDatabase
  readonly clock: ClockView
  readonly instance: string
  readonly scripts: FakeScript[] = []
  readonly events: OpencodeEvent[] = []
  /** The agents that a prompt may name. */
  agentNames: () => readonly string[] = () => ["build"]
  /** What the plugin has hooked into requests and calls of tools. */
  readonly hooks: FakeHooks = {
    compacting: () => {},
    inRequest: () => undefined,
    holdRequest: () => undefined,
    refusesTools: () => undefined,
  }
  /** Tools that need the user's permission. */
  readonly asking = new Set<string>()
  /** The plugin's own tools, by name. */
  readonly tools = new Map<string, FakeTool>()
  /** The context of its models, in tokens. */
  contextTokens = Number.POSITIVE_INFINITY
  /** How long the snapshot takes that ends a step of this session, in ms. */
  snapshotMs: (sessionID: string) => number = () => 0
  /** The agent that compacts sessions. */
  compaction: { readonly model?: Model; readonly reply?: () => Reply | undefined } = {}
  onEvent: (event: OpencodeEvent) => EventFault = () => undefined
  #listener: (event: OpencodeEvent) => void = () => {}
  protected readonly working = new Map<string, Activity>()
  protected readonly asks = new Map<string, Ask>()
  /** Prompts that were accepted a moment ago. */
  readonly #accepted = new Map<() => void, string>()
  /** Turns that are about to begin, with what takes that back. */
  readonly #beginning = new Map<string, () => void>()
  readonly #turns = new Map<string, Turn>()
  /** What ends the shell command that a user runs in a session. */
  readonly #shells = new Map<string, (stopped: boolean) => void>()
  protected readonly startedAt: number
  /** Messages whose events this process has heard. */
  protected readonly storedHere = new Set<string>()
  /** Where sessions were moved. */
  readonly folders = new Map<string, string>()
  /** Where each turn was begun: there it goes on and is stopped, wherever its session is moved. */
  readonly #begunIn = new WeakMap<Turn, string>()
  #diedAt: number | undefined

  constructor({ clock, database = new FakeDatabase(), instance = "first" }: FakeApiOptions) {
    this.clock = clock.view()
    this.startedAt = this.clock.now()
    this.database = database
    this.instance = instance
    database.living.add(instance)
  }

  listen(listener: (event: OpencodeEvent) => void): void {
    this.#listener = listener
  }

  /** SIGKILL: nothing of this process goes on, and what was being written stays as it is. */
  kill(): void {
    this.#diedAt ??= this.clock.now()
    this.database.living.delete(this.instance)
    this.clock.kill()
    this.#listener = () => {}
  }

  isWorking(sessionID: string): boolean {
    return this.working.has(sessionID)
  }

  get diedAt(): number | undefined {
    return this.#diedAt
  }

  get isDead(): boolean {
    return this.#diedAt !== undefined
  }

  openSession(session: Partial<StoredSession> = {}): string {
    const { id, parentID } = this.database.add({ updatedAt: this.clock.now(), ...session })
    this.emit({ type: "created", sessionID: id, parentID })
    return id
  }

  say(sessionID: string, text: string, persona: Partial<Persona> = {}): string {
    const messageID = this.database.nextID("msg")
    this.take({
      sessionID,
      messageID,
      agent: persona.agent ?? "build",
      model: persona.model,
      parts: [{ text }],
    })
    return messageID
  }

  /** Its user refuses a question without a word. */
  refuseByUser(ask: Ask): void {
    this.answerAsk(ask, true, false)
  }

  /** What its sessions do that are not idle. */
  get activityNow(): ReadonlyMap<string, Activity> {
    return this.working
  }

  /** The open questions. */
  get questions(): readonly Ask[] {
    return [...this.asks.values()]
  }

  answer(askID: string): void {
    const ask = this.asks.get(askID)
    if (ask) this.answerAsk(ask, false, false)
  }

  folderOf(sessionID: string): string {
    return this.folders.get(sessionID) ?? "/project"
  }

  abortByUser(sessionID: string): void {
    // What was accepted comes before the stop: it is stored, and goes with the turn.
    for (const [take, session] of [...this.#accepted]) if (session === sessionID) take()
    const endShell = this.#shells.get(sessionID)
    if (endShell) return endShell(true)
    const turn = this.#turns.get(sessionID)
    const isLeftBehind = turn !== undefined && this.#begunIn.get(turn) !== this.folderOf(sessionID)
    if (isLeftBehind) return this.emit({ type: "idle", sessionID })
    this.#turns.delete(sessionID)
    if (turn) return turn.abort()
    const session = this.database.sessions.get(sessionID)
    this.#beginning.get(sessionID)?.()
    const begins = this.working.delete(sessionID)
    if (!session || !begins) return this.emit({ type: "idle", sessionID })
    this.#newTurn(session).abortBeforeItBegins()
  }

  /** True while this session's model is asked and has said nothing yet. */
  thinks(sessionID: string): boolean {
    return this.#turns.get(sessionID)?.thinks ?? false
  }

  /** What the model of this session says now, whatever it was about to say. */
  conclude(sessionID: string, reply: Reply): void {
    this.#turns.get(sessionID)?.conclude(reply)
  }

  deleteByUser(sessionID: string): void {
    for (const child of this.database.children(sessionID)) this.deleteByUser(child.id)
    this.database.sessions.delete(sessionID)
    this.emit({ type: "deleted", sessionID })
  }

  /** Writes a session's metadata as any client can. */
  writeMetadata(sessionID: string, metadata: Record<string, unknown>): void {
    const session = this.stored(sessionID)
    session.metadata = jsonCopy(metadata)
    session.updatedAt = this.clock.now()
    const { undone } = session
    this.emit({ type: "updated", sessionID, request: decodeRequest(session.metadata), ...(undone && { undone }) })
  }

  /** The user takes back what was said from this message on; a prompt of any kind then deletes it for good. */
  undo(sessionID: string, messageID: string, { reset = [], restores = true }: Partial<Undone> = {}): void {
    if (this.working.has(sessionID)) throw new Error(`session ${sessionID} is busy`)
    const undone = { from: messageID, reset, restores }
    Object.assign(this.stored(sessionID), { undoneFrom: messageID, undone })
    this.emit({ type: "updated", sessionID, undone })
  }

  /** The user has the conversation compacted: at once, or after the step that is under way. */
  compact(sessionID: string): void {
    const session = this.stored(sessionID)
    const { agent, model } = session.messages.findLast(({ role }) => role === "user") ?? session
    const part = { type: "compaction", auto: false } as const
    const id = this.database.nextID("msg")
    session.messages.push({ id, role: "user", createdAt: this.clock.now(), agent, model, parts: [part] })
    if (this.working.has(sessionID)) return
    this.working.set(sessionID, { type: "busy" })
    this.#begin(session)
  }

  /** The user runs a command of the shell, for which no model is asked. A stop ends it, and nobody reads what came meanwhile. */
  shell(sessionID: string, command: string, ms = SHELL_MS): void {
    if (this.working.has(sessionID)) throw new Error(`session ${sessionID} is busy`)
    const session = this.stored(sessionID)
    this.#deleteUndone(session)
    const { agent, model } = session.messages.findLast(({ role }) => role === "user") ?? session
    const [shared, text] = [
      { createdAt: this.clock.now(), agent, model },
      "The following tool was executed by the user",
    ]
    const part = { type: "text", id: this.database.nextID("prt"), text, synthetic: true, shell: true } as const
    const asked: StoredMessage = { ...shared, id: this.database.nextID("msg"), role: "user", parts: [part] }
    const [messageID, callID] = [this.database.nextID("msg"), this.database.nextID("call")]
    const [tool, args] = ["bash", { command }]
    const running = { type: "tool", callID, tool, args, state: "running", refused: false } as const
    const ran = { ...shared, id: messageID, role: "assistant", parentID: asked.id, usage: NO_USAGE } as const
    const stored: StoredMessage = { ...ran, parts: [running] }
    session.messages.push(asked, stored)
    this.working.set(sessionID, { type: "busy" })
    this.emit({ type: "active", sessionID, activity: { type: "busy" } })
    const end = (stopped: boolean) => {
      if (this.#shells.get(sessionID) !== end) return
      this.#shells.delete(sessionID)
      const call = { digest: callDigest(tool, args, ""), ms }
      Object.assign(stored, { completedAt: this.clock.now(), parts: [{ ...running, state: "completed", call }] })
      const isRead = session.messages.findLast(({ role }) => role === "user") === asked
      if (!stopped && !isRead) return this.#begin(session)
      this.working.delete(sessionID)
      this.emit({ type: "idle", sessionID })
    }
    this.#shells.set(sessionID, end)
    this.clock.after(ms, () => end(false))
  }

  redo(sessionID: string): void {
    Object.assign(this.stored(sessionID), { undoneFrom: undefined, undone: undefined })
    this.emit({ type: "updated", sessionID })
  }

  stored(sessionID: string): StoredSession {
    const session = this.database.sessions.get(sessionID)
    if (!session) throw new Error(`no session ${sessionID}`)
    return session
  }

  /** An event out of the blue. */
  tell(event: OpencodeEvent): void {
    this.#deliver(event)
  }

  /** Hands a prompt to a session that exists; it is taken up a moment later. */
  protected accept(prompt: Prompt): void {
    const take = () => {
      if (this.#accepted.delete(take)) this.take(prompt)
    }
    this.#accepted.set(take, prompt.sessionID)
    this.clock.after(1, take)
  }

  /** One whose turn was stopped stays open until it is answered, which nobody hears. */
  protected answerAsk(ask: Ask, refused: boolean, feedback: boolean): void {
    if (!this.asks.has(ask.id)) return
    this.#turns.get(ask.sessionID)?.answerAsk(ask, refused, feedback)
    if (!this.#turns.has(ask.sessionID)) this.asks.delete(ask.id)
  }

  /** The same message again changes nothing; but a session that has something unanswered takes it up. */
  protected take(prompt: Prompt): void {
    const session = this.database.sessions.get(prompt.sessionID)
    if (!session) return
    const agent = prompt.agent ?? "build"
    if (!this.agentNames().includes(agent)) {
      const error = { name: "UnknownError", message: `Agent not found: "${agent}".` }
      this.emit({ type: "error", sessionID: session.id, error: errorOf(error) })
      this.emit({ type: "error", sessionID: session.id, error: errorOf(error) })
      return
    }
    this.#deleteUndone(session)
    const stored = session.messages.find(({ id }) => id === prompt.messageID)
    const { parts, model } = this.#userMessage(prompt)
    // A message that is sent again keeps its place, and is the newest for the loop.
    this.storedHere.add(prompt.messageID)
    if (stored) Object.assign(stored, { parts, createdAt: this.clock.now(), ...(prompt.model && { model }) })
    else session.messages.push(this.#userMessage(prompt))
    if (prompt.noReply || this.working.has(session.id)) return
    this.working.set(session.id, { type: "busy" })
    this.#beginning.set(
      session.id,
      this.clock.after(BEGIN_MS, () => this.#begin(session)),
    )
  }

  #deleteUndone(session: StoredSession): void {
    const from = session.messages.findIndex(({ id }) => id === session.undoneFrom)
    if (from >= 0) session.messages.splice(from)
    Object.assign(session, { undoneFrom: undefined, undone: undefined })
  }

  #begin(session: StoredSession): void {
    // Aborted before it began.
    if (!this.working.has(session.id) || !this.database.sessions.has(session.id)) return
    const turn = this.#newTurn(session)
    this.#turns.set(session.id, turn)
    this.#begunIn.set(turn, this.folderOf(session.id))
    void turn.run().finally(() => {
      if (this.#turns.get(session.id) === turn) this.#turns.delete(session.id)
    })
  }

  #newTurn(session: StoredSession): Turn {
    return new Turn(session, {
      database: this.database,
      after: (ms, run) => void this.clock.after(ms, run),
      now: () => this.clock.now(),
      emit: (event) => this.emit(event),
      activity: this.working,
      asks: this.asks,
      asksFor: (tool) => this.asking.has(tool),
      hooks: this.hooks,
      tools: this.tools,
      contextTokens: () => this.contextTokens,
      snapshotMs: (sessionID) => this.snapshotMs(sessionID),
      compaction: () => this.compaction,
      answerTo: (request) => {
        for (const script of this.scripts.toReversed()) {
          const reply = script(request)
          if (reply) return reply
        }
        return { text: "ok" }
      },
    })
  }

  #userMessage({ messageID, agent = "build", model, parts }: Prompt): StoredMessage {
    return {
      id: messageID,
      role: "user",
      createdAt: this.clock.now(),
      agent,
      model,
      parts: parts.map((part, index) => ({
        type: "text",
        id: partID(messageID, index),
        text: part.text,
        synthetic: part.synthetic === true,
      })),
    }
  }

  protected emit(event: OpencodeEvent): void {
    if (this.isDead) return
    const fault = this.onEvent(event)
    if (fault === "lose") return
    if (typeof fault === "object") return void this.clock.after(fault.late, () => this.#deliver(event))
    this.#deliver(event)
    if (fault === "double") this.#deliver(event)
  }

  #deliver(event: OpencodeEvent): void {
    if (this.isDead) return
    this.events.push(event)
    this.#listener(event)
  }
}
