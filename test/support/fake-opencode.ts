import type { Part } from "@opencode-ai/sdk/v2"
import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { StoredMessage } from "../../src/opencode/messages.ts"

type Rule = { permission: string; pattern: string; action: string }
type FakeSession = {
  id: string
  parentID?: string
  title: string
  permission: Rule[]
  metadata: Record<string, unknown>
  messages: Map<string, StoredMessage>
  /** From this message on, the user has undone them. */
  revert?: { messageID: string }
}
type Event = { aggregateID: string; seq: number; type: string; data: { info?: StoredMessage["info"]; part?: Part } }
type Answer = { data?: unknown; error?: unknown; response: Response }

const AGENTS = ["build", "general"]
const TOOLS = ["read", "bash"]
const ANSWERED = { input: 100, output: 20 }

const copy = <Value>(value: Value): Value => structuredClone(value)
const ok = async (data: unknown): Promise<Answer> => ({ data: copy(data), response: new Response() })
const refused = async (status: number, message: string): Promise<Answer> => ({
  error: { name: status === 404 ? "NotFoundError" : "UnknownError", data: { message } },
  response: new Response(null, { status }),
})

/**
 * What OpenCode's routes do with sessions that are forked, in memory. It copies, replays and rewrites as the real one,
 * shows a compacted history in its order, and counts what a session has cost by the steps stored in it.
 */
export class FakeOpencode {
  readonly sessions = new Map<string, FakeSession>()
  #made = 0

  /** With `replays` false it answers `/sync/replay` as it does what it does not know: with its web page. */
  client({ replays = true } = {}): OpencodeClient {
    const routes = {
      session: {
        create: (input: Partial<FakeSession>) => ok(this.#row(this.#create(input))),
        get: this.#of((session) => ok(this.#row(session))),
        update: this.#of(
          (session, { sessionID: _, permission = [], ...change }: Partial<FakeSession> & { sessionID?: string }) => {
            Object.assign(session, copy(change))
            session.permission.push(...permission)
            return ok(this.#row(session))
          },
        ),
        delete: this.#of(({ id }) => ok(this.sessions.delete(id))),
        abort: this.#of(() => ok(true)),
        revert: this.#of((session, { messageID }: { messageID: string }) => {
          session.revert = { messageID }
          return ok(this.#row(session))
        }),
        messages: this.#of((session) => ok(ordered(session))),
        fork: this.#of((session, { messageID }: { messageID?: string }) =>
          ok(this.#row(this.#fork(session, messageID))),
        ),
        deleteMessage: this.#of((session, { messageID }: { messageID: string }) =>
          ok(session.messages.delete(messageID)),
        ),
        prompt: this.#of((session, input: { messageID: string; agent: string; parts: Part[] }) => {
          if (!AGENTS.includes(input.agent)) return refused(400, `no agent ${input.agent}`)
          const info = { id: input.messageID, sessionID: session.id, role: "user", time: { created: Date.now() } }
          return ok(this.#put(session, { info, parts: input.parts } as never))
        }),
      },
      part: {
        update: this.#of(({ messages }, { part }: { part: Part }) => {
          const message = messages.get(part.messageID)
          if (!message?.parts.some(({ id }) => id === part.id)) return refused(404, "no such part")
          const parts = message.parts.map((each) => (each.id === part.id ? copy(part) : each))
          messages.set(part.messageID, { ...message, parts })
          return ok(part)
        }),
        delete: this.#of(({ messages }, { messageID, partID }: { messageID: string; partID: string }) => {
          const message = messages.get(messageID)
          if (!message) return refused(404, "no such message")
          messages.set(messageID, { ...message, parts: message.parts.filter(({ id }) => id !== partID) })
          return ok(true)
        }),
      },
      sync: {
        replay: ({ events }: { events: Event[] }) => (replays ? this.#replay(events) : ok("<html></html>")),
      },
      config: { providers: () => ok({ providers: [{ id: "scripted", models: { alpha: { limit: LIMIT } } }] }) },
      app: { log: () => ok(true) },
    }
    return routes as unknown as OpencodeClient
  }

  /** Puts a prompt into the session and has it answered: what the model was shown, and which tools it was offered. */
  ask(sessionID: string, prompt: string): { said: readonly string[]; tools: readonly string[] } {
    const session = this.sessions.get(sessionID)
    if (!session) throw new Error(`no session ${sessionID}`)
    const time = { created: Date.now() }
    const text = { type: "text", text: prompt }
    const asked = { info: { id: this.#id("msg"), role: "user", time }, parts: [text] }
    this.#put(session, asked as never)
    const said = shown(ordered(session)).flatMap(linesOf)
    const denied = session.permission.filter(({ action }) => action === "deny").map(({ permission }) => permission)
    const step = {
      type: "step-finish",
      cost: 0.001,
      tokens: { ...ANSWERED, reasoning: 0, cache: { read: 0, write: 0 } },
    }
    const info = {
      id: this.#id("msg"),
      role: "assistant",
      time,
      parentID: asked.info.id,
      finish: "stop",
      tokens: step.tokens,
    }
    this.#put(session, { info, parts: [{ type: "text", text: "ok" }, step] } as never)
    return { said, tools: TOOLS.filter((tool) => !denied.includes(tool)) }
  }

  #of<Input extends object>(work: (session: FakeSession, input: Input) => Promise<Answer>) {
    return (input: Input & { sessionID: string }): Promise<Answer> => {
      const session = this.sessions.get(input.sessionID)
      return session ? work(session, input) : refused(404, `no session ${input.sessionID}`)
    }
  }

  #create({ parentID, title = "untitled", permission = [], metadata = {} }: Partial<FakeSession>): FakeSession {
    const session = { id: this.#id("ses"), parentID, title, permission, metadata: copy(metadata), messages: new Map() }
    this.sessions.set(session.id, session)
    return session
  }

  #fork({ title, metadata, messages }: FakeSession, messageID: string | undefined): FakeSession {
    const fork = this.#create({ title: `${title} (fork #1)`, metadata })
    const all = [...messages.values()]
    const end = all.findIndex(({ info }) => info.id === messageID)
    const ids = new Map<string, string>()
    for (const { info, parts } of end < 0 ? all : all.slice(0, end)) {
      const id = this.#id("msg")
      ids.set(info.id, id)
      const parentID = info.role === "assistant" ? (ids.get(info.parentID) ?? info.parentID) : undefined
      const tail = (part: Part) =>
        part.type === "compaction" && part.tail_start_id ? { tail_start_id: ids.get(part.tail_start_id) } : {}
      const copies = parts.map((part) => ({ ...part, ...tail(part), id: this.#id("prt") }))
      this.#put(fork, { info: { ...info, id, ...(parentID && { parentID }) }, parts: copies } as never)
    }
    return fork
  }

  async #replay(events: readonly Event[]): Promise<Answer> {
    const session = this.sessions.get(events[0]?.aggregateID ?? "")
    if (!session) return refused(500, "no such session")
    for (const { type, data } of events)
      if (type === "message.updated.1" && data.info) this.#put(session, { info: data.info, parts: [] })
      else if (data.part)
        (session.messages.get(data.part.messageID)?.parts as Part[] | undefined)?.push(copy(data.part))
    return ok({ sessionID: session.id })
  }

  #put(session: FakeSession, { info, parts }: StoredMessage): StoredMessage {
    const own = parts.map((part) => ({
      ...part,
      id: part.id ?? this.#id("prt"),
      messageID: info.id,
      sessionID: session.id,
    }))
    const message = copy({ info: { ...info, sessionID: session.id }, parts: own }) as StoredMessage
    session.messages.set(info.id, message)
    return message
  }

  #row({ messages, ...session }: FakeSession) {
    const steps = [...messages.values()].flatMap(({ parts }) => parts.filter((part) => part.type === "step-finish"))
    const sum = (of: (step: (typeof steps)[number]) => number) => steps.reduce((total, step) => total + of(step), 0)
    const tokens = { input: sum(({ tokens }) => tokens.input), output: sum(({ tokens }) => tokens.output) }
    return { ...session, cost: sum(({ cost }) => cost), tokens }
  }

  #id(prefix: string): string {
    return `${prefix}_${String(++this.#made).padStart(8, "0")}`
  }
}

const LIMIT = { context: 200_000, output: 8192 }

const ordered = ({ messages }: FakeSession): StoredMessage[] =>
  [...messages.values()].sort((one, other) => one.info.time.created - other.info.time.created)

/** A compaction and its summary stand before the tail that it kept; what was before the tail is not shown. */
function shown(messages: readonly StoredMessage[]): readonly StoredMessage[] {
  const summary = messages.findLastIndex(({ info }) => info.role === "assistant" && info.summary)
  const at = messages.findLastIndex(
    ({ parts }, index) => index < summary && parts.some(({ type }) => type === "compaction"),
  )
  if (at < 0) return messages
  const [part] = messages[at]?.parts ?? []
  const tail = messages.findIndex(({ info }) => part?.type === "compaction" && info.id === part.tail_start_id)
  if (tail < 0) return messages.slice(at)
  return [...messages.slice(at, summary + 1), ...messages.slice(tail, at), ...messages.slice(summary + 1)]
}

function linesOf({ info, parts }: StoredMessage): string[] {
  const texts = parts.flatMap((part) => {
    if (part.type === "text") return [part.text]
    if (part.type === "compaction") return ["What did we do so far?"]
    return part.type === "subtask" ? ["The following tool was executed by the user"] : []
  })
  const results = parts.flatMap((part) =>
    part.type === "tool" && part.state.status === "completed" ? [`tool: ${part.state.output}`] : [],
  )
  return [`${info.role}: ${texts.join("\n")}`, ...results]
}
