import { classify } from "../../core/outcome.ts"
import type { Message, Prompt } from "../../core/ports.ts"
import { movedID } from "./remote-session.ts"

/** Converts prompts and messages between this machine and a host. Pure. */

/** Prompt with its id moved by the host's clock difference. */
export const movedPrompt = (prompt: Prompt, sessionID: string, skew: number): Prompt => ({
  ...prompt,
  sessionID,
  messageID: movedID(prompt.messageID, skew),
})

/** Adds the interruption by a server's death to messages that do not show an end. */
export function withServerDeath(messages: readonly Message[], host: string): readonly Message[] {
  const asked = messages.findLast(({ role }) => role === "user")
  const last = messages.at(-1)
  if (!asked || !last || classify(messages, "working")) return messages
  const error = { message: `OpenCode on ${host} stopped while it worked.`, interrupted: true } as const
  const { createdAt } = last
  const death = {
    id: `${last.id}~`,
    role: "assistant",
    createdAt,
    parentID: asked.id,
    error,
    summary: false,
    parts: [],
  }
  return [...messages, death as Message]
}

/** Stored answers are user messages in the local session; readers get them as answers. */
export function withStoredAnswers(messages: readonly Message[]): readonly Message[] {
  return messages.map((message, at) =>
    at > 0 && isAnswer(message.id)
      ? {
          ...message,
          role: "assistant" as const,
          finish: "done" as const,
          parentID: messages[0]?.id,
          completedAt: message.createdAt,
        }
      : message,
  )
}

const ANSWER = /^msg_[0-9a-f]{12}[a-z0-9]{8}A[0-9a-z]{5}$/
const isAnswer = (id: string): boolean => ANSWER.test(id)

/** Generation of the run whose prompt this is. */
export const generationOf = (promptID: string): number => Number.parseInt(promptID.slice(-5), 36) || 0
