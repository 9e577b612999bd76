import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Part, ToolPart } from "@opencode-ai/sdk/v2/types"
import { OpencodeError } from "../core/ports.ts"
import type { Ask, Task } from "../core/task.ts"
import { head, oneLine } from "../lib/text.ts"
import type {
  AskOptions,
  Conversation,
  HistoryRun,
  HistoryStep,
  MessageToSession,
  Reply,
  UserActions,
} from "../runtime/user-actions.ts"
import { call, find } from "./client.ts"
import { promptedBy, type StoredMessage, storedMessages } from "./messages.ts"
import { THREAD_KEY } from "./threads.ts"

const MOST_STEPS = 300
const MOST_TEXT_CHARS = 100_000
const MOST_ERROR_CHARS = 300
/** Most messages read of a session; earlier ones are left out. */
const MOST_MESSAGES = 2000

/** Runs of a task, oldest first, read from its session. Rejects with an `OpencodeError`. */
async function historyOf(client: OpencodeClient, sessionID: string, taskID: string): Promise<HistoryRun[]> {
  let read = 0
  const stored = await storedMessages(client, sessionID, async (page) => {
    read += page.length
    return read >= MOST_MESSAGES || page.some(({ info }) => promptedBy(info.id, taskID) === 0)
  })
  return runsIn(stored, taskID)
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

const MOST_CONVERSATIONS = 100
const MOST_DIFF_CHARS = 100_000

/** A user's actions through the HTTP API of OpenCode 1.x. */
export class OpencodeUserActions implements UserActions {
  readonly #client: OpencodeClient
  readonly #directory: string

  /** `directory`: folder that this instance serves. */
  constructor(client: OpencodeClient, directory: string) {
    this.#client = client
    this.#directory = directory
  }

  async question(ask: Ask): Promise<AskOptions | undefined> {
    const where = await this.#whereOf(ask)
    if (ask.kind === "question") {
      const open = await call("read open questions", this.#client.question.list(where))
      const questions = open.find(({ id }) => id === ask.id)?.questions
      const offered = questions?.map(({ question, header, options, multiple = false, custom = true }) => ({
        question,
        header,
        options: options.map(({ label, description }) => ({ label, description })),
        multiple,
        custom,
      }))
      return offered && { kind: "question", questions: offered }
    }
    const open = await call("read open permission questions", this.#client.permission.list(where))
    const asked = open.find(({ id }) => id === ask.id)
    if (!asked) return undefined
    const { permission, patterns, always, metadata } = asked
    const diff = typeof metadata.diff === "string" ? metadata.diff.slice(0, MOST_DIFF_CHARS) : undefined
    return { kind: "permission", permission, patterns, always, diff }
  }

  async answer(ask: Ask, reply: Reply): Promise<boolean> {
    const requestID = ask.id
    const where = await this.#whereOf(ask)
    const { permission, question } = this.#client
    try {
      if ("reply" in reply) await call("answer", permission.reply({ ...where, requestID, ...reply }))
      else if ("answers" in reply) {
        const answers = reply.answers.map((labels) => [...labels])
        await call("answer", question.reply({ ...where, requestID, answers }))
      } else await call("dismiss a question", question.reject({ ...where, requestID }))
      return true
    } catch (error) {
      if (error instanceof OpencodeError && error.notFound) return false
      throw error
    }
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

  history({ sessionID, id }: Task): Promise<readonly HistoryRun[]> {
    return historyOf(this.#client, sessionID, id)
  }

  /** Folder of the question's session: OpenCode knows the question only in this folder. */
  async #whereOf({ sessionID }: Ask): Promise<{ directory?: string }> {
    const folder = (await this.session(sessionID))?.folder
    return folder === undefined ? {} : { directory: folder }
  }
}
