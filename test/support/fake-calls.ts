import type { Ask } from "../../src/core/task.ts"
import { callDigest } from "../../src/opencode/convert.ts"
import { permissionAsk } from "../../src/opencode/events.ts"
import type { StoredMessage, StoredPart, StoredSession } from "./fake-database.ts"
import type { TurnPorts } from "./fake-turn.ts"
import type { ToolReply } from "./model.ts"

export type Stopped = "aborted"
type StoredCall = Extract<StoredPart, { type: "tool" }>
type Answer = { readonly refused: boolean; readonly feedback: boolean }

const TOOL_MS = 5

/** A tool that a plugin has. */
export type FakeTool = (sessionID: string, args: unknown, abort: AbortSignal) => Promise<unknown>

/** What a turn waits for, until it is aborted. */
export class Waits {
  readonly #after: TurnPorts["after"]
  readonly #stops = new Set<() => void>()
  #aborted = false

  constructor(after: TurnPorts["after"]) {
    this.#after = after
  }

  get aborted(): boolean {
    return this.#aborted
  }

  abort(): void {
    this.#aborted = true
    for (const stop of [...this.#stops]) stop()
  }

  for(ms: number): Promise<Stopped | "waited"> {
    return this.until((resolve) => {
      if (Number.isFinite(ms)) this.#after(ms, () => resolve("waited"))
    })
  }

  async until<Value>(begin: (resolve: (value: Value) => void) => void): Promise<Value | Stopped> {
    if (this.#aborted) return "aborted"
    let stop = () => {}
    const value = await new Promise<Value | Stopped>((resolve) => {
      stop = () => resolve("aborted")
      this.#stops.add(stop)
      begin(resolve)
    })
    this.#stops.delete(stop)
    return this.#aborted ? "aborted" : value
  }
}

/** The tool calls of one turn, and the questions that they raise. */
export class Calls {
  readonly #session: StoredSession
  readonly #ports: TurnPorts
  readonly #waits: Waits
  readonly #open = new Map<string, (answer: Answer) => void>()

  constructor(session: StoredSession, ports: TurnPorts, waits: Waits) {
    this.#session = session
    this.#ports = ports
    this.#waits = waits
  }

  /**
   * Runs the calls of one step, all at once. `refused`: one of them was, without a word, which ends the turn; `failed`:
   * the turn was not let go on, which is an error.
   */
  async run(
    message: StoredMessage,
    tools: ToolReply["tools"],
    withoutTools: boolean,
  ): Promise<"done" | "refused" | "failed" | Stopped> {
    const calls = tools.map(({ name, args, id }) => this.#begin(message, name, args, id))
    for (const part of calls) {
      part.state = "running"
      this.#tell(message, part)
    }
    const looped = loopIn(tools)
    if (looped && this.#ports.asksFor("doom_loop")) {
      const answer = await this.#ask("doom_loop", looped)
      if (answer === "aborted") return answer
      if (answer.refused) return "failed"
    }
    const outcomes = await Promise.all(calls.map((part) => this.#run(message, part, withoutTools)))
    return (
      outcomes.find((outcome) => outcome === "aborted") ?? outcomes.find((outcome) => outcome === "refused") ?? "done"
    )
  }

  /** Its turn was stopped. */
  cutOff(message: StoredMessage): void {
    for (const part of message.parts) {
      if (part.type !== "tool" || (part.state !== "pending" && part.state !== "running")) continue
      Object.assign(part, { state: "error", interrupted: true } as const)
      this.#tell(message, part)
    }
  }

  /** A refused permission takes the session's other open ones along, without a word; a question stands for itself. */
  answer({ id, kind }: Ask, answer: Answer): void {
    this.#close(id, answer)
    if (!answer.refused || kind === "question") return
    for (const other of [...this.#ports.asks.values()])
      if (other.kind === kind && this.#open.has(other.id)) this.#close(other.id, { refused: true, feedback: false })
  }

  /** It is closed at once, even where its turn is stopped in the same moment. Of one of an earlier turn nobody hears. */
  #close(id: string, answer: Answer): void {
    const { asks, emit } = this.#ports
    asks.delete(id)
    const open = this.#open.get(id)
    if (!open) return
    this.#open.delete(id)
    emit({ type: "replied", sessionID: this.#session.id, askID: id })
    open(answer)
  }

  #begin(message: StoredMessage, tool: string, args: unknown, id?: string): StoredCall {
    const callID = id ?? this.#ports.database.nextID("call")
    const part: StoredCall = { type: "tool", callID, tool, args, state: "pending", refused: false }
    message.parts.push(part)
    this.#tell(message, part)
    return part
  }

  /** Its model writes the arguments of a call, and comes to no end with them. */
  hang(message: StoredMessage, tool: string): void {
    this.#begin(message, tool, {})
  }

  async #run(
    message: StoredMessage,
    part: StoredCall,
    withoutTools: boolean,
  ): Promise<"done" | "refused" | "advised" | Stopped> {
    const begunAt = this.#ports.now()
    const outcome = withoutTools ? "advised" : await this.#call(part)
    if (outcome === "aborted") return outcome
    part.state = outcome === "done" ? "completed" : "error"
    part.refused = outcome === "refused"
    this.#tell(message, part, this.#ports.now() - begunAt)
    return outcome
  }

  /** `advised`, a refusal that says something, does not end the turn. */
  async #call(part: StoredCall): Promise<"done" | "refused" | "advised" | Stopped> {
    const { tool, args } = part
    if (this.#ports.hooks.refusesTools(this.#session.id, tool)) return "advised"
    if (tool === "question" || this.#ports.asksFor(tool)) {
      const answer = await this.#ask(tool, args)
      if (answer === "aborted") return answer
      if (answer.refused) return answer.feedback ? "advised" : "refused"
    }
    const own = this.#ports.tools.get(tool)
    if (own) return this.#callOwn(own, part)
    const { ms = TOOL_MS, todos } = (args ?? {}) as { ms?: number; todos?: { content: string; status: string }[] }
    if ((await this.#waits.for(ms)) === "aborted") return "aborted"
    if (tool === "todowrite" && todos) this.#session.todos = todos
    return "done"
  }

  /** A tool of the plugin's: its failure is its result. */
  async #callOwn(own: FakeTool, part: StoredCall): Promise<"done" | "advised" | Stopped> {
    const stop = new AbortController()
    const outcome = await this.#waits.until<"done" | "advised">((resolve) => {
      own(this.#session.id, part.args, stop.signal).then(
        (result) => {
          part.result = String(result)
          resolve("done")
        },
        () => resolve("advised"),
      )
    })
    if (outcome === "aborted") stop.abort()
    return outcome
  }

  /** An abort leaves the question open. */
  async #ask(tool: string, args: unknown): Promise<Answer | Stopped> {
    const { database, asks, emit, now } = this.#ports
    const sessionID = this.#session.id
    const kind = tool === "question" ? "question" : "permission"
    const id = database.nextID(kind === "question" ? "que" : "per")
    const at = now()
    const ask: Ask =
      tool === "doom_loop"
        ? permissionAsk({ id, sessionID, permission: tool, patterns: [String(args)] }, at)
        : { id, sessionID, kind, what: describe(tool, args), askedAt: at }
    asks.set(id, ask)
    emit({ type: "asked", ask })
    const answer = await this.#waits.until<Answer>((resolve) => this.#open.set(id, resolve))
    this.#open.delete(id)
    return answer
  }

  /** OpenCode tells of each change more than once. What no test gave a result returns something new each time. */
  #tell({ id: messageID }: StoredMessage, part: StoredCall, ms = 0): void {
    const { callID, tool, args: input, result = callID } = part
    const state = part.state === "completed" || part.state === "error" ? "ended" : part.state
    const call = state === "ended" && { call: { digest: callDigest(tool, input, result), ms } }
    Object.assign(part, call)
    const edited = part.state === "completed" ? editedBy(part) : []
    const changed = edited.length > 0 && { changed: edited }
    const known = { type: "tool", sessionID: this.#session.id, callID, tool, state, messageID } as const
    const event = { ...known, ...call, ...changed }
    this.#ports.emit(event)
    this.#ports.emit(event)
  }
}

/** The file that a call of `edit` names. */
export const editedBy = ({ tool, args }: Pick<StoredCall, "tool" | "args">): readonly string[] => {
  const { filePath } = (args ?? {}) as { filePath?: string }
  return tool === "edit" && filePath ? [filePath] : []
}

const describe = (tool: string, args: unknown): string => {
  const { questions } = (args ?? {}) as { questions?: { question: string }[] }
  return questions?.[0]?.question ?? tool
}

/** The tool that a message calls three times in a row with the same arguments. */
const loopIn = (tools: ToolReply["tools"]): string | undefined => {
  const calls = tools.map(({ name, args }) => JSON.stringify([name, args]))
  const at = calls.findIndex((call, index) => calls[index + 1] === call && calls[index + 2] === call)
  return tools[at]?.name
}
