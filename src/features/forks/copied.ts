import { listed } from "../../core/errors.ts"
import type { FeatureBody, Runtime } from "../../core/feature.ts"
import { nameOf, type Task } from "../../core/task.ts"
import { count } from "../../lib/text.ts"
import type { ForkApi, HistoryPart, ToolHistoryPart } from "./ports.ts"

const TASK_ID = /\bbg_[a-z0-9]{8}\b/g

/**
 * Tasks that appear in a conversation's history only because a user forked the conversation. Empty for a task's
 * session: a forked task's preamble covers such tasks.
 */
export async function copiedTasks(
  store: Runtime["store"],
  forks: () => Promise<Pick<ForkApi, "history">>,
  { sessionID, messageID }: Parameters<NonNullable<FeatureBody["copied"]>>[0],
): Promise<readonly Task[]> {
  if (store.bySession(sessionID)) return []
  // If the history cannot be read, nothing is reported.
  const past = await forks()
    .then((api) => api.history(sessionID, messageID))
    .catch(() => [])
  const results = past.flatMap(({ parts }) => parts.flatMap((part) => (isLaunch(part) ? [part.result] : [])))
  const ids = new Set(results.flatMap((result) => result.match(TASK_ID) ?? []))
  return [...ids].flatMap((id) => {
    const task = store.get(id)
    return task && task.parentID !== sessionID && !task.member ? [task] : []
  })
}

/** Whether the part is a successful launch. The text of a failed call may name tasks that the call did not launch. */
const isLaunch = (part: HistoryPart): part is ToolHistoryPart =>
  part.type === "tool" && part.tool === "superagents_task" && part.state === "completed"

export function copiedText(tasks: readonly Task[]): string {
  const parents = [...new Set(tasks.map(({ parentID }) => parentID))]
  const [those, their] = tasks.length === 1 ? ["It belongs", "its answer goes"] : ["They belong", "their answers go"]
  return `This conversation is a fork, and what it was forked from launched ${count(tasks.length, "task")}: ${listed(tasks.map(nameOf))}. ${those} to that conversation, and ${their} there: do not wait here. To look there, the user opens it (${parents.map((id) => `opencode --session ${id}`).join(", ")}). Launch a new task for what you need here.`
}
