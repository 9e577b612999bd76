import { classify } from "../../src/core/outcome.ts"
import type { Message, NewSession, OpencodeApi, OpencodeEvent, Prompt } from "../../src/core/ports.ts"
import { NO_FIGURES, type TaskDraft } from "../../src/core/task.ts"
import type { Reply } from "../support/model.ts"

/** An OpenCode to be tried, and what stands around it. `bash` and three equal calls in a row ask for permission. */
export type World = {
  readonly opencode: OpencodeApi
  /** The plugin instance that OpenCode writes into records. */
  readonly instance: string
  readonly events: readonly OpencodeEvent[]
  /** The model answers so, one reply a step, where the last user message contains `text`; the last one is repeated. */
  onPrompt(text: string, ...replies: Reply[]): void
  /** Two folders of its project; sessions are opened in the first. */
  readonly folders: readonly [string, string]
  openSession(): Promise<string>
  metadata(sessionID: string): Promise<Record<string, unknown>>
  setMetadata(sessionID: string, metadata: Record<string, unknown>): Promise<void>
  /** The session's user takes back what was said from this message on, or does so no more. */
  undo(sessionID: string, messageID: string): Promise<void>
  redo(sessionID: string): Promise<void>
  /** The session's user has it compacted. */
  compact(sessionID: string): Promise<void>
  /** The session's user archives it in OpenCode's own page. */
  archive(sessionID: string): Promise<void>
  /** The session's user runs a command of the shell in it that takes so long. */
  shell(sessionID: string, seconds: number): Promise<void>
  /** Lets time pass until `look` gives something truthy. */
  eventually<Value>(look: () => Value | Promise<Value>): Promise<NonNullable<Exclude<Value, false>>>
  /** Long enough for anything that was going to happen by itself. */
  pause(): Promise<void>
  close(): Promise<void>
}

export const ALPHA = { provider: "scripted", id: "alpha" }
/** The context of its models, in tokens. */
export const CONTEXT = 200_000
/** A session that never was. */
export const GONE = "ses_0000000000000000000000000"

export type Driver = ReturnType<typeof driverOf>

/** The steps that the contract's tests share. `world` is there once the tests run. */
export function driverOf(world: () => World) {
  let count = 0
  const newID = (prefix: string, at = Date.now()) => {
    const time = (BigInt(at) * 4096n + BigInt(++count)).toString(16).padStart(12, "0").slice(-12)
    return `${prefix}_${time}contract000000`
  }
  const driver = {
    get world() {
      return world()
    },
    get opencode() {
      return world().opencode
    },
    newID,
    /** As ids of hours ago are. */
    oldID: (prefix: string) => newID(prefix, Date.now() - 7_200_000),
    async child(more: Partial<NewSession> = {}, draft: Partial<TaskDraft> = {}): Promise<string> {
      const parentID = more.parentID ?? (await world().openSession())
      const input = { parentID, title: "a child", agent: "general", model: ALPHA, rules: [], ...more }
      return world().opencode.createSession(input, draftOf({ parentID, ...draft }))
    },
    prompt: (sessionID: string, text: string, more: Partial<Prompt> = {}): Prompt => ({
      sessionID,
      messageID: newID("msg"),
      agent: "general",
      model: ALPHA,
      parts: [{ text }],
      ...more,
    }),
    async send(sessionID: string, text: string, more: Partial<Prompt> = {}): Promise<Prompt> {
      const sent = driver.prompt(sessionID, text, more)
      await world().opencode.prompt(sent)
      return sent
    },
    /** What was heard of a session. */
    heardOf: (sessionID: string) =>
      world().events.filter((event) => "sessionID" in event && event.sessionID === sessionID),
    typesOf: (sessionID: string) => driver.heardOf(sessionID).map(({ type }) => type),
    heard: (sessionID: string, type: OpencodeEvent["type"], times = 1) =>
      world().eventually(() => driver.typesOf(sessionID).filter((each) => each === type).length >= times),
    isIdle: async (sessionID: string) => !(await world().opencode.activity()).has(sessionID),
    /** The messages from a prompt on, once it has an answer that ended and the session is idle. */
    answered: (sent: Prompt): Promise<readonly Message[]> =>
      world().eventually(async () => {
        const since = await world().opencode.messagesSince(sent.sessionID, sent.messageID)
        return classify(since, "working") !== undefined && (await driver.isIdle(sent.sessionID)) && since
      }),
  }
  return driver
}

export function draftOf(more: Partial<TaskDraft> = {}): TaskDraft {
  return {
    id: "bg_contract",
    parentID: "ses_parent",
    parentMessageID: "msg_call",
    description: "find it",
    agent: "general",
    batch: "auto:bg_contract",
    depth: 1,
    createdAt: 1,
    earlier: NO_FIGURES,
    fingerprint: "f",
    status: "running",
    run: { generation: 0, promptID: "msg_prompt", createdAt: 1, timeout: 0 },
    delivery: { state: "none" },
    ...more,
  }
}
