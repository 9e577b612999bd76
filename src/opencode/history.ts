import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Part, ToolPart } from "@opencode-ai/sdk/v2/types"
import { head, oneLine } from "../lib/text.ts"
import type { HistoryRun, HistoryStep } from "../runtime/user-actions.ts"
import { promptedBy } from "./ids.ts"
import { type StoredMessage, storedMessages } from "./messages.ts"

const MOST_STEPS = 300
const MOST_TEXT_CHARS = 100_000
const MOST_ERROR_CHARS = 300
/** Most messages read of a session; earlier ones are left out. */
const MOST_MESSAGES = 2000

/** Runs of a task from its session, oldest first. Rejects with a `OpencodeError`. */
export async function historyOf(client: OpencodeClient, sessionID: string, taskID: string): Promise<HistoryRun[]> {
  let read = 0
  const stored = await storedMessages(client, sessionID, async (page) => {
    read += page.length
    return read >= MOST_MESSAGES || page.some(({ info }) => promptedBy(info.id, taskID) === 0)
  })
  return runsIn(stored, taskID)
}

/** A run is its prompt and the messages after it. */
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

/** First text argument, as the most telling. */
function whatOf(input: Readonly<Record<string, unknown>>): string {
  const values = Object.values(input ?? {})
  const told = values.find((value) => typeof value === "string" && value.trim() !== "") ?? values[0]
  return oneLine(typeof told === "string" ? told : (JSON.stringify(told) ?? ""))
}
