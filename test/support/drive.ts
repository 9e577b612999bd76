import { randomBytes } from "node:crypto"
import type { AssistantMessage, Message, ToolPart } from "@opencode-ai/sdk/v2"
import { eventually, type News } from "./eventually.ts"
import type { ModelRequest, ScriptedModel } from "./model.ts"
import type { Opencode, OpencodeEventOf } from "./opencode.ts"

export { eventually } from "./eventually.ts"

export type SayOptions = {
  agent?: string
  /** "provider/model" */
  model?: string
  variant?: string
  timeout?: number
}

export type ToolCall = { name: string; args: unknown }

export type ToolOutcome = {
  status: "completed" | "error"
  input: Record<string, unknown>
  output?: string
  error?: string
  title?: string
  metadata?: Record<string, unknown>
  durationMs: number
}

const TURN_TIMEOUT_MS = 45_000
const CLOSING_TIMEOUT_MS = 500

/** SDK calls do not throw by themselves; this makes the error one. */
export const unwrap = async <Data>(call: Promise<{ data?: Data; error?: unknown }>): Promise<NonNullable<Data>> => {
  const { data, error } = await call
  if (error !== undefined || data === undefined || data === null) throw new Error(JSON.stringify(error ?? "no data"))
  return data
}

/** Like OpenCode's own: ids ascend in time. */
const newMessageID = () => {
  const time = (BigInt(Date.now()) * 4096n).toString(16).slice(-12).padStart(12, "0")
  return `msg_${time}${randomBytes(7).toString("hex")}`
}

const modelFrom = (name: string) => {
  const slash = name.indexOf("/")
  return { providerID: name.slice(0, slash), modelID: name.slice(slash + 1) }
}

/** News of these events alone: what else happens in OpenCode is no reason to ask it again. */
export const newsOf = ({ events }: Opencode, concerns: (event: OpencodeEventOf) => boolean): News => ({
  mark: events.mark,
  since: (mark, limit) => events.since(mark, limit, concerns),
})

/** News of when the session begins to work and rests. */
const statusNews = (opencode: Opencode, sessionID: string) =>
  newsOf(opencode, ({ type, properties }) => type === "session.status" && properties.sessionID === sessionID)

/** News of the session's messages: that one is there, or has ended. */
const messageNews = (opencode: Opencode, sessionID: string) =>
  newsOf(opencode, ({ type, properties }) => type === "message.updated" && properties.sessionID === sessionID)

export const openSession = async (opencode: Opencode, options: { title?: string; agent?: string } = {}) => {
  const session = await unwrap(opencode.client.session.create({ title: "test", ...options }))
  return session.id
}

export const messages = (opencode: Opencode, sessionID: string) =>
  unwrap(opencode.client.session.messages({ sessionID }))

/** "busy" or "retry" while it works; undefined when idle. */
const statusOf = async (opencode: Opencode, sessionID: string) =>
  (await unwrap(opencode.client.session.status()))[sessionID]?.type

const isBusy = async (opencode: Opencode, sessionID: string) =>
  ((await statusOf(opencode, sessionID)) ?? "idle") !== "idle"

/** Resolves when OpenCode has taken the message up: its turn has begun, or an error was told. Returns its id. */
export const say = async (opencode: Opencode, sessionID: string, text: string, options: SayOptions = {}) => {
  const messageID = newMessageID()
  const busy = await isBusy(opencode, sessionID)
  const since = opencode.events.mark()
  const { model, agent, variant, timeout = TURN_TIMEOUT_MS } = options
  const { error } = await opencode.client.session.promptAsync({
    sessionID,
    messageID,
    ...(agent && { agent }),
    ...(model && { model: modelFrom(model) }),
    ...(variant && { variant }),
    parts: [{ type: "text", text }],
  })
  if (error) throw new Error(JSON.stringify(error))
  const takenUp = await opencode.events.waitFor(
    (event) => {
      if (event.type === "session.error") return event.properties.sessionID === sessionID
      if (event.type === "session.status" && !busy) {
        return event.properties.sessionID === sessionID && event.properties.status.type !== "idle"
      }
      return event.type === "message.updated" && busy && event.properties.info.id === messageID
    },
    { since, timeout, what: `OpenCode takes up a message in ${sessionID}` },
  )
  return { messageID, error: takenUp.type === "session.error" ? takenUp.properties.error : undefined }
}

const lastAnswer = async (opencode: Opencode, sessionID: string): Promise<AssistantMessage | undefined> => {
  const infos = (await messages(opencode, sessionID)).map(({ info }) => info)
  return infos.findLast((info) => info.role === "assistant")
}

/**
 * Resolves when the session is idle. OpenCode says idle before it has written an error or an abort into the last
 * message, so that gets a moment to be closed; after a crash it never will be.
 */
export const idle = async (opencode: Opencode, sessionID: string, { timeout = TURN_TIMEOUT_MS } = {}) => {
  const message = () => `${sessionID} is idle\n${opencode.logs()}`
  await eventually(async () => !(await isBusy(opencode, sessionID)), {
    timeout,
    message,
    news: statusNews(opencode, sessionID),
  })
  const closed = async () => {
    const last = await lastAnswer(opencode, sessionID)
    return !last || last.time.completed !== undefined
  }
  await eventually(closed, { timeout: CLOSING_TIMEOUT_MS, news: messageNews(opencode, sessionID) }).catch(() => {})
}

/** Says it, waits for the session to be idle and returns the last text since; "" when there is none. */
export const ask = async (opencode: Opencode, sessionID: string, text: string, options: SayOptions = {}) => {
  const { messageID } = await say(opencode, sessionID, text, options)
  await idle(opencode, sessionID, options)
  const since = (await messages(opencode, sessionID)).filter(
    ({ info }) => info.role === "assistant" && info.id > messageID,
  )
  const texts = since.map(({ parts }) =>
    parts.flatMap((part) => (part.type === "text" && part.text ? part.text : [])).join("\n"),
  )
  return texts.findLast((each) => each !== "") ?? ""
}

export const toolParts = async (opencode: Opencode, sessionID: string, toolName?: string): Promise<ToolPart[]> => {
  const parts = (await messages(opencode, sessionID)).flatMap((message) => message.parts)
  return parts.filter((part) => part.type === "tool").filter((part) => !toolName || part.tool === toolName)
}

/** The error of the session's last assistant message. */
export const lastError = async (opencode: Opencode, sessionID: string) => (await lastAnswer(opencode, sessionID))?.error

const outcomeOf = ({ state }: ToolPart): ToolOutcome | undefined => {
  if (state.status !== "completed" && state.status !== "error") return undefined
  const { time, ...rest } = state
  return { ...rest, durationMs: time.end - time.start }
}

/** The call that this event tells the end of. */
const endedCall = (event: OpencodeEventOf) => {
  if (event.type !== "message.part.updated" || event.properties.part.type !== "tool") return undefined
  const { callID, state } = event.properties.part
  return state.status === "completed" || state.status === "error" ? callID : undefined
}

const isLaterUser = ({ role, id, sessionID }: Message, session: string, messageID: string) =>
  role === "user" && sessionID === session && id > messageID

export type CallOptions = SayOptions & {
  /** What the user says, before the marker that ties the message to these calls. */
  text?: string
}

/**
 * Has the model make these calls in one message, as the answer to a user message of its own, and then end its turn
 * with "ok". Resolves when the turn has ended, or when another user message (a notification, say) has come after it.
 */
export const callTools = async (
  opencode: Opencode,
  model: ScriptedModel,
  sessionID: string,
  calls: ToolCall[],
  { text = "Please call the tools.", timeout = TURN_TIMEOUT_MS, ...options }: CallOptions = {},
): Promise<ToolOutcome[]> => {
  const marker = `[call ${randomBytes(6).toString("hex")}]`
  const tools = calls.map((call, index) => ({ ...call, id: `call_${marker.slice(6, -1)}_${index}` }))
  const remove = model.use((request: ModelRequest) => {
    // A notification may have come after the user's message: what counts is whether the calls were made.
    if (request.sessionID !== sessionID || !request.userTexts.some((each) => each.includes(marker))) return undefined
    const made = request.messages.some(({ tool_calls }) => tool_calls?.some(({ id }) => id === tools[0]?.id))
    if (!made) return { tools }
    return request.lastUser.includes(marker) ? { text: "ok" } : undefined
  })
  try {
    const { messageID } = await say(opencode, sessionID, `${text} ${marker}`, { ...options, timeout })
    const begun = opencode.events.mark()
    const ids = tools.map(({ id }) => id)
    const haveEnded = () => {
      const seen = new Set(opencode.events.all.slice(begun).map(endedCall))
      return ids.every((id) => seen.has(id))
    }
    const endNews = newsOf(opencode, (event) => endedCall(event) !== undefined && haveEnded())
    const ended = await eventually(
      async () => {
        const parts = await toolParts(opencode, sessionID)
        const outcomes = ids.flatMap((id) => parts.filter((part) => part.callID === id).map(outcomeOf))
        return outcomes.length === ids.length && outcomes.every(Boolean) && (outcomes as ToolOutcome[])
      },
      {
        timeout,
        news: endNews,
        since: begun,
        message: () => `${calls.map((call) => call.name)} end in ${sessionID}\n${opencode.logs()}`,
      },
    )
    const turnNews = newsOf(opencode, ({ type, properties }) => {
      if (type === "session.status") return properties.sessionID === sessionID && properties.status.type === "idle"
      return type === "message.updated" && isLaterUser(properties.info, sessionID, messageID)
    })
    await eventually(
      async () => {
        if (!(await isBusy(opencode, sessionID))) return true
        return (await messages(opencode, sessionID)).some(({ info }) => isLaterUser(info, sessionID, messageID))
      },
      { timeout, news: turnNews, since: begun, message: () => `the turn ends in ${sessionID}\n${opencode.logs()}` },
    )
    return ended
  } finally {
    remove()
  }
}

/** callTools with one call. */
export const callTool = async (
  opencode: Opencode,
  model: ScriptedModel,
  sessionID: string,
  name: string,
  args: unknown,
  options?: CallOptions,
): Promise<ToolOutcome> => {
  const [outcome] = await callTools(opencode, model, sessionID, [{ name, args }], options)
  if (!outcome) throw new Error(`no outcome of ${name}`)
  return outcome
}
