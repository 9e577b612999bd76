import type { Prompt } from "../../core/ports.ts"
import type { Task } from "../../core/task.ts"
import type { Word } from "../run/active-run.ts"

/** A run's prompt, and what its agent is told of its place. Sent again it is the same message. */
export function promptOf({ sessionID, agent, model, run }: Task, text: string, preface: string): Prompt {
  const parts = preface === "" ? [{ text }] : [{ text }, { text: preface, synthetic: true }]
  return { sessionID, messageID: run.promptID, agent, model, parts }
}

/** Anything else that is said to it. */
export const messageOf = ({ sessionID, agent, model }: Task, { id, text }: Word): Prompt => ({
  sessionID,
  messageID: id,
  agent,
  model,
  parts: [{ text }],
})
