import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Part, ToolPart } from "@opencode-ai/sdk/v2/types"
import type { Task } from "../../../core/task.ts"
import type { FileDiff } from "../../../lib/repository.ts"
import { head, oneLine } from "../../../lib/text.ts"
import { call, find } from "../../../opencode/client.ts"
import { promptedBy, type StoredMessage, storedMessages } from "../../../opencode/messages.ts"
import type { Connection } from "../../../runtime/connection.ts"
import { THREAD_KEY } from "../../../runtime/record/codec.ts"
import type { Conversation, HistoryRun, HistoryStep, MessageToSession } from "../ports.ts"

const MOST_STEPS = 300
const MOST_TEXT_CHARS = 100_000
const MOST_ERROR_CHARS = 300
/** Most messages read of a session; earlier ones are left out. */
const MOST_MESSAGES = 2000

/** Runs of a task, oldest first, read from its session. Rejects with an `OpencodeError`. */
async function historyOf(client: OpencodeClient, { sessionID, id }: Task): Promise<HistoryRun[]> {
  let read = 0
  const stored = await storedMessages(client, sessionID, async (page) => {
    read += page.length
    return read >= MOST_MESSAGES || page.some(({ info }) => promptedBy(info.id, id) === 0)
  })
  return runsIn(stored, id)
}

/** Splits messages into runs. A run consists of its prompt and the messages up to the next prompt. */
export function runsIn(messages: readonly StoredMessage[], taskID: string): HistoryRun[] {
  const begins = messages.flatMap(({ info }, index) => (promptedBy(info.id, taskID) === undefined ? [] : [index]))
  return begins.map((begin, index) => runOf(messages.slice(begin, begins[index + 1]), taskID))
}

function runOf([prompt, ...rest]: readonly StoredMessage[], taskID: string): HistoryRun {
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
    generation: promptedBy(info.id, taskID) ?? 0,
    at: info.time.created,
    prompt: head(textOf(parts), MOST_TEXT_CHARS),
    told,
    models: [...new Set(answers.map((answer) => `${answer.info.providerID}/${answer.info.modelID}`))],
    cost: answers.reduce((sum, answer) => sum + (answer.info.cost ?? 0), 0),
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
export class Sessions {
  readonly #client: OpencodeClient
  readonly #directory: string

  constructor({ client, directory }: Pick<Connection, "client" | "directory">) {
    this.#client = client as OpencodeClient
    this.#directory = directory
  }

  async conversations(): Promise<readonly Conversation[]> {
    const listed = this.#client.session.list({ directory: this.#directory, roots: true, limit: MOST_CONVERSATIONS })
    return (await call("list sessions", listed))
      .filter(({ directory, metadata }) => directory === this.#directory && !(metadata && THREAD_KEY in metadata))
      .map(({ id, title, time }) => ({ id, title: oneLine(title), updatedAt: time.updated }))
  }

  async session(sessionID: string): Promise<{ readonly title: string; readonly folder: string } | undefined> {
    const session = await find("read a session", this.#client.session.get({ sessionID }))
    return session && { title: oneLine(session.title), folder: session.directory }
  }

  async open(title: string): Promise<string> {
    return (await call("create a session", this.#client.session.create({ directory: this.#directory, title }))).id
  }

  async write({ sessionID, folder: directory, text, agent }: MessageToSession): Promise<void> {
    const parts = [{ type: "text" as const, text }]
    await call("send a message", this.#client.session.promptAsync({ sessionID, directory, agent, parts }))
  }

  history(task: Task): Promise<readonly HistoryRun[]> {
    return historyOf(this.#client, task)
  }

  changesOf({ sessionID, run }: Task): Promise<readonly FileDiff[]> {
    return diffSince(this.#client, sessionID, run.promptID)
  }
}
