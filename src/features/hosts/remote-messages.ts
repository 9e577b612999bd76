import { classify } from "../../core/outcome.ts"
import type { Message, Prompt } from "../../core/ports.ts"
import { movedID } from "./remote-session.ts"

/** What is made of prompts and messages on their way between here and a host: pure. */

/** A prompt as it is sent to a host whose clock is so far ahead. */
export const movedPrompt = (prompt: Prompt, sessionID: string, skew: number): Prompt => ({
  ...prompt,
  sessionID,
  messageID: movedID(prompt.messageID, skew),
})

/** A run that a server's death has cut off, as its messages would say it if they could; one that had ended has. */
export function withDeath(messages: readonly Message[], host: string): readonly Message[] {
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

/** What was kept of an answer is a user's message to the host here: to whoever reads it, it is the answer. */
export function asAnswered(messages: readonly Message[]): readonly Message[] {
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

/** Of which run of a task a prompt is. */
export const generationOf = (promptID: string): number => Number.parseInt(promptID.slice(-5), 36) || 0
