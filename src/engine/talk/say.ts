import { partID } from "../../core/ids.ts"
import type { Prompt } from "../../core/ports.ts"
import type { Task } from "../../core/task.ts"
import type { Word } from "../run/active-run.ts"

/** A run's prompt, and what its agent is told of its place. Sent again it is the same message. */
export function promptOf({ id, sessionID, agent, model, run }: Task, text: string, preface: string): Prompt {
  const texts = preface === "" ? [{ text }] : [{ text }, { text: preface, synthetic: true }]
  const parts = texts.map((part, at) => ({ id: partID("prompt", id, run.generation, run.createdAt, at), ...part }))
  return { sessionID, messageID: run.promptID, agent, model, parts }
}

/** Anything else that is said to it. */
export function messageOf({ id, sessionID, agent, model, run }: Task, { id: messageID, kind, at, text }: Word): Prompt {
  const parts = [{ id: partID(kind, id, run.generation, at, 0), text }]
  return { sessionID, messageID, agent, model, parts }
}
