import { constraintsOf } from "../core/constraints.ts"
import { isByOpencode } from "../core/outcome.ts"
import { pausesOf } from "../core/pause.ts"
import type { OpencodeApi, Prompt } from "../core/ports.ts"
import type { SentMessage } from "../core/run/active-run.ts"
import { modelOf, type Task } from "../core/task.ts"

/** A run's prompt, and behind a blank line what its agent is told of its place and its terms. Sent again it is the same message. */
export function runPrompt(task: Task, text: string, preface: string): Prompt {
  const { sessionID, agent, run } = task
  const told = [preface, constraintsOf(task)].filter((each) => each !== "").join("\n\n")
  const parts = told === "" ? [{ text }] : [{ text }, { text: `\n\n${told}`, synthetic: true }]
  const again = pausesOf(run).length > 0
  return { sessionID, messageID: run.promptID, agent, model: modelOf(task), parts, ...(again && { again }) }
}

export const followUpPrompt = (task: Task, { id, text }: SentMessage): Prompt => ({
  sessionID: task.sessionID,
  messageID: id,
  agent: task.agent,
  model: modelOf(task),
  parts: [{ text }],
})

/**
 * The message by which the session's user has replaced the run's prompt; undefined while that may only be on its way. Other
 * messages may have come after it.
 */
export async function replacingPrompt(
  host: OpencodeApi,
  { sessionID, run: { startedAt = Number.POSITIVE_INFINITY } }: Task,
): Promise<string | undefined> {
  const last = await host.lastMessage(sessionID)
  const id = last?.role === "user" ? last.id : last?.parentID
  if (!last || last.createdAt < startedAt || id === undefined) return undefined
  if (host.taskOf(id) === undefined) return id
  const asked = await host.lastMessage(sessionID, (message) => {
    const { role, createdAt } = message
    return createdAt < startedAt || (role === "user" && !isByOpencode(message) && host.taskOf(message.id) === undefined)
  })
  return asked && asked.createdAt >= startedAt ? asked.id : undefined
}
