import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Part, ToolPart } from "@opencode-ai/sdk/v2/types"
import type { Task } from "../../../core/task.ts"
import type { FileDiff } from "../../../lib/repository.ts"
import { head, oneLine } from "../../../lib/text.ts"
import { call, find } from "../../../opencode/client.ts"
import { figureOf } from "../../../opencode/convert.ts"
import { promptedBy, type StoredMessage, storedMessages } from "../../../opencode/messages.ts"
import type { Connection } from "../../../runtime/connection.ts"
import { THREAD_KEY } from "../../../runtime/record/codec.ts"

const MOST_STEPS = 300
const MOST_TEXT_CHARS = 100_000
const MOST_ERROR_CHARS = 300
/** Most messages read of a session; earlier ones are left out. */
const MOST_MESSAGES = 2000

/** A session that a user opened. */
export type Conversation = { readonly id: string; readonly title: string; readonly updatedAt: number }

/** A user's message to a session in `folder`. */
export type MessageToSession = {
  readonly sessionID: string
  readonly folder: string
  readonly text: string
  readonly agent: string
}

/** A tool call of a run. Times are milliseconds since the epoch. */
export type HistoryStep = {
  readonly tool: string
  /** Arguments on one line. */
  readonly what: string
  readonly state: "running" | "done" | "failed"
  readonly error?: string
  /** Start of the call; 0 while it has not begun. */
  readonly at: number
  readonly endedAt?: number
}

/** A run of a task, read from its session. */
export type HistoryRun = Readonly<ReturnType<typeof runOf>>

/** Splits messages into runs. A run consists of its prompt and the messages up to the next prompt. */
export function runsIn(messages: readonly StoredMessage[], taskID: string) {
  const begins = messages.flatMap(({ info }, index) => (promptedBy(info.id, taskID) === undefined ? [] : [index]))
  return begins.map((begin, index) => runOf(messages.slice(begin, begins[index + 1]), taskID))
}

function runOf([prompt, ...rest]: readonly StoredMessage[], taskID: string) {
  const { info, parts } = prompt as StoredMessage
  const answers = rest.flatMap((message) =>
    message.info.role === "assistant" ? [{ ...message, info: message.info }] : [],
  )
  const steps = answers.flatMap((answer) => answer.parts.flatMap((part) => (part.type === "tool" ? stepOf(part) : [])))
  const told = rest.flatMap((message) => {
    const text = message.info.role === "user" ? textOf(message.parts) : ""
    return text === "" ? [] : { at: message.info.time.created, text: head(text, MOST_TEXT_CHARS) }
  })
  return {
    /** 0 for the launch, n for resume #n. */
    generation: promptedBy(info.id, taskID) ?? 0,
    at: info.time.created,
    prompt: head(textOf(parts), MOST_TEXT_CHARS),
    /** Messages sent to the task during the run. */
    told,
    /** Models in the order of their first answer. */
    models: [...new Set(answers.map((answer) => `${answer.info.providerID}/${answer.info.modelID}`))],
    cost: answers.reduce((sum, answer) => sum + figureOf(answer.info.cost), 0),
    /** Last tool calls, and number of those before them. */
    steps: steps.slice(-MOST_STEPS),
    earlierSteps: Math.max(0, steps.length - MOST_STEPS),
    text: head(
      answers.map((answer) => textOf(answer.parts)).findLast((text) => text.trim() !== "") ?? "",
      MOST_TEXT_CHARS,
    ),
  }
}

/** Text for users, without parts added for the model only. */
const textOf = (parts: readonly Part[]): string =>
  parts.flatMap((part) => (part.type === "text" && !part.synthetic && !part.ignored ? part.text : [])).join("\n\n")

function stepOf({ tool, state }: ToolPart): HistoryStep {
  const shared = { tool: oneLine(tool), what: whatOf(state.input) }
  if (state.status === "pending") return { ...shared, state: "running", at: 0 }
  if (state.status === "running") return { ...shared, state: "running", at: state.time.start }
  const { start: at, end: endedAt } = state.time
  if (state.status === "completed") return { ...shared, state: "done", at, endedAt }
  return { ...shared, state: "failed", error: oneLine(state.error, MOST_ERROR_CHARS), at, endedAt }
}

/** Describes a call on one line by its first text argument. Without a text argument, by its first argument. */
function whatOf(input: Readonly<Record<string, unknown>>): string {
  const values = Object.values(input ?? {})
  const told = values.find((value) => typeof value === "string" && value.trim() !== "") ?? values[0]
  return oneLine(typeof told === "string" ? told : (JSON.stringify(told) ?? ""))
}

/** Files that the session has changed since a prompt. Empty where OpenCode has no snapshots of them. */
export async function diffSince(client: OpencodeClient, sessionID: string, messageID: string): Promise<FileDiff[]> {
  try {
    const found = await call("session.diff", client.session.diff({ sessionID, messageID }))
    return found.map(({ file, patch, additions, deletions }) => ({
      file: file ?? "",
      patch: patch ?? "",
      additions,
      deletions,
    }))
  } catch {
    return []
  }
}

const MOST_CONVERSATIONS = 100

/** Sessions as the page shows them and writes to them. Promises may reject with an `OpencodeError`. */
export function sessionsOf({ client: given, directory }: Pick<Connection, "client" | "directory">) {
  const client = given as OpencodeClient
  return {
    /** Newest conversations of this folder, without the board's threads. */
    async conversations(): Promise<readonly Conversation[]> {
      const listed = client.session.list({ directory, roots: true, limit: MOST_CONVERSATIONS })
      return (await call("list sessions", listed))
        .filter((each) => each.directory === directory && !(each.metadata && THREAD_KEY in each.metadata))
        .map(({ id, title, time }) => ({ id, title: oneLine(title), updatedAt: time.updated }))
    },
    /** Title and folder of a session; undefined where there is no such session. */
    async session(sessionID: string) {
      const session = await find("read a session", client.session.get({ sessionID }))
      return session && { title: oneLine(session.title), folder: session.directory }
    },
    open: async (title: string): Promise<string> =>
      (await call("create a session", client.session.create({ directory, title }))).id,
    /** Sends a user's message, which starts a turn of this agent. Resolves when OpenCode has accepted it. */
    async write({ sessionID, folder, text, agent }: MessageToSession): Promise<void> {
      const parts = [{ type: "text" as const, text }]
      await call("send a message", client.session.promptAsync({ sessionID, directory: folder, agent, parts }))
    },
    /** Runs of a task, oldest first. */
    async history({ sessionID, id }: Task) {
      let read = 0
      const stored = await storedMessages(client, sessionID, async (page) => {
        read += page.length
        return read >= MOST_MESSAGES || page.some(({ info }) => promptedBy(info.id, id) === 0)
      })
      return runsIn(stored, id)
    },
    changesOf: ({ sessionID, run }: Task) => diffSince(client, sessionID, run.promptID),
  }
}
