import type { OpencodeEventOf } from "../test/support/opencode.ts"

/** An agent as a user sees it: read from its session and its events alone, as the terminal companion would. */
export type Agent = {
  readonly sessionID: string
  description: string
  /** As the task's record says: running, completed, error, cancelled. */
  status: string
  phase: string
  startedAt: number
  endedAt?: number
  readonly calls: Set<string>
  lastTool: string
  usage: Usage
}

/** What a session has used, as its row tells it. */
export type Usage = { readonly tokens: number; readonly cost: number }

const NOTHING: Usage = { tokens: 0, cost: 0 }

/** What is worth a word, in the order in which it happened. */
export type Happening =
  | { readonly type: "launched"; readonly description: string; readonly taskID: string }
  | { readonly type: "refused"; readonly tool: string; readonly error: string }
  | { readonly type: "agent"; readonly agent: Agent }
  | { readonly type: "notified"; readonly visible: string; readonly hidden: string }
  | { readonly type: "fetched"; readonly taskID: string; readonly output: string }
  | { readonly type: "said"; readonly text: string }
  | { readonly type: "failed"; readonly reason: string }

type Part = Extract<OpencodeEventOf, { type: "message.part.updated" }>["properties"]["part"]
type Session = Extract<OpencodeEventOf, { type: "session.updated" }>["properties"]["info"]

/** Follows one parent session and its agents through OpenCode's events. */
export class Watch {
  readonly agents = new Map<string, Agent>()
  readonly #parentID: string
  readonly #happenings: Happening[] = []
  readonly #userMessages = new Map<string, { visible?: string; hidden?: string }>()
  readonly #told = new Set<string>()
  /** The parent's model is at work. */
  busy = false
  /** It has been at work at all. */
  begun = false
  /** What the parent itself has used. */
  usage = NOTHING

  constructor(parentID: string) {
    this.#parentID = parentID
  }

  /** Takes in an event and returns what it means to a user. */
  take(event: OpencodeEventOf): Happening[] {
    switch (event.type) {
      case "session.created":
      case "session.updated":
        this.#session(event.properties.info)
        break
      case "session.status":
        this.#status(event.properties.sessionID, event.properties.status)
        break
      case "session.idle":
        if (event.properties.sessionID === this.#parentID) this.busy = false
        break
      case "permission.asked":
        this.#phase(event.properties.sessionID, "waiting for permission")
        break
      case "permission.replied":
        this.#phase(event.properties.sessionID, "working")
        break
      case "session.error":
        if (event.properties.sessionID === this.#parentID)
          this.#happenings.push({ type: "failed", reason: errorText(event.properties.error) })
        break
      case "message.updated": {
        const { info } = event.properties
        if (info.sessionID === this.#parentID && info.role === "user" && !this.#userMessages.has(info.id))
          this.#userMessages.set(info.id, {})
        break
      }
      case "message.part.updated":
        this.#part(event.properties.part)
        break
    }
    return this.#happenings.splice(0)
  }

  #session(session: Session): void {
    if (session.id === this.#parentID) this.usage = usageOf(session)
    if (session.parentID !== this.#parentID) return
    const { task } = (session.metadata?.superagents ?? {}) as { task?: Record<string, unknown> }
    const run = (task?.run ?? {}) as { startedAt?: number; endedAt?: number }
    const agent = this.agents.get(session.id) ?? {
      sessionID: session.id,
      description: String(task?.description ?? session.title),
      status: "",
      phase: "working",
      startedAt: Date.now(),
      calls: new Set<string>(),
      lastTool: "",
      usage: NOTHING,
    }
    const status = String(task?.status ?? "running")
    const changed = agent.status !== status
    agent.status = status
    agent.startedAt = run.startedAt ?? agent.startedAt
    agent.endedAt = run.endedAt
    agent.usage = usageOf(session)
    this.agents.set(session.id, agent)
    if (changed) this.#tell(agent)
  }

  #status(sessionID: string, status: { type: string; attempt?: number }): void {
    if (sessionID === this.#parentID) {
      this.busy = status.type !== "idle"
      this.begun ||= this.busy
      return
    }
    if (status.type === "retry") this.#phase(sessionID, `retrying (attempt ${status.attempt})`)
    if (status.type === "busy") this.#phase(sessionID, "working")
  }

  #phase(sessionID: string, phase: string): void {
    const agent = this.agents.get(sessionID)
    if (!agent || agent.phase === phase) return
    agent.phase = phase
    this.#tell(agent)
  }

  #part(part: Part): void {
    if (part.sessionID === this.#parentID) return this.#parentPart(part)
    const agent = this.agents.get(part.sessionID)
    if (!agent || part.type !== "tool" || agent.calls.has(part.callID)) return
    agent.calls.add(part.callID)
    agent.lastTool = part.tool
    this.#tell(agent)
  }

  #parentPart(part: Part): void {
    if (part.type === "tool") return this.#parentCall(part)
    if (part.type !== "text") return
    const message = this.#userMessages.get(part.messageID)
    if (!message) {
      if (part.time?.end && part.text.trim() !== "" && this.#first(part.id))
        this.#happenings.push({ type: "said", text: part.text.trim() })
      return
    }
    if (part.synthetic) message.hidden = part.text
    else message.visible = part.text
    const { visible, hidden } = message
    if (visible !== undefined && hidden !== undefined && this.#first(part.messageID))
      this.#happenings.push({ type: "notified", visible, hidden })
  }

  #parentCall({ tool, state, callID }: Extract<Part, { type: "tool" }>): void {
    if (state.status !== "completed" && state.status !== "error") return
    if (!tool.startsWith("superagents_") || !this.#first(callID)) return
    if (state.status === "error") {
      this.#happenings.push({ type: "refused", tool, error: state.error })
      return
    }
    const taskID = /bg_[a-z0-9]{8}/.exec(state.output)?.[0] ?? ""
    if (tool === "superagents_task")
      this.#happenings.push({ type: "launched", description: String(state.input.description ?? ""), taskID })
    if (tool === "superagents_output") this.#happenings.push({ type: "fetched", taskID, output: state.output })
  }

  #tell(agent: Agent): void {
    this.#happenings.push({ type: "agent", agent: { ...agent, calls: new Set(agent.calls) } })
  }

  /** True the first time that an id is seen: OpenCode tells of one thing several times. */
  #first(id: string): boolean {
    if (this.#told.has(id)) return false
    this.#told.add(id)
    return true
  }
}

function usageOf({ tokens, cost = 0 }: Session): Usage {
  if (!tokens) return NOTHING
  const { input, output, reasoning, cache } = tokens
  return { tokens: input + output + reasoning + cache.write, cost }
}

export function errorText(error: unknown): string {
  const { name, data } = (error ?? {}) as { name?: string; data?: { message?: string } }
  return data?.message ?? name ?? "an unknown error"
}
