import { listed } from "../../core/errors.ts"
import type { FeatureBody, Runtime } from "../../core/feature.ts"
import { nameOf, type Task } from "../../core/task.ts"
import { count } from "../../lib/text.ts"
import type { ForkApi, HistoryPart, ToolHistoryPart } from "./ports.ts"

/**
 * Tasks that appear in a conversation's history only because a user forked the conversation. Empty for a task's
 * session: a forked task's preamble covers such tasks.
 */
export async function copiedTasks(
  { store, opencode }: Pick<Runtime, "store" | "opencode">,
  forks: () => Promise<Pick<ForkApi, "history">>,
  { sessionID, messageID }: Parameters<NonNullable<FeatureBody["copied"]>>[0],
): Promise<readonly Task[]> {
  if (store.bySession(sessionID)) return []
  // If the history cannot be read, nothing is reported.
  const past = await forks()
    .then((api) => api.history(sessionID, messageID))
    .catch(() => [])
  const launched = new Set(past.flatMap(({ parts }) => parts.flatMap((part) => (isLaunch(part) && part.childID) || [])))
  const tasks = new Map<string, Task>()
  for (const childID of launched) {
    if (tasks.has(childID)) continue
    const known = store.bySession(childID)
    // Since a restart, nobody may have used the first conversation: its tasks are then known to their records alone.
    for (const task of known ? [known] : await siblingsOf(opencode, childID))
      if (launched.has(task.sessionID)) tasks.set(task.sessionID, task)
  }
  return [...tasks.values()].filter((task) => task.parentID !== sessionID && !task.member)
}

/** The task of this session and all others of its parent, from their records. Empty where they cannot be read. */
async function siblingsOf(opencode: Runtime["opencode"], childID: string): Promise<readonly Task[]> {
  try {
    const { record } = (await opencode.session(childID)) ?? {}
    return record ? (await opencode.recordsOf(record.task.parentID)).map(({ task }) => task) : []
  } catch {
    return []
  }
}

/** Whether the part is a successful launch, or another call about a task. */
const isLaunch = (part: HistoryPart): part is ToolHistoryPart =>
  part.type === "tool" && part.tool === "superagents_task" && part.state === "completed"

export function copiedText(tasks: readonly Task[]): string {
  const parents = [...new Set(tasks.map(({ parentID }) => parentID))]
  const [those, their] = tasks.length === 1 ? ["It belongs", "its answer goes"] : ["They belong", "their answers go"]
  return `This conversation is a fork, and what it was forked from launched ${count(tasks.length, "task")}: ${listed(tasks.map(nameOf))}. ${those} to that conversation, and ${their} there: do not wait here. To look there, the user opens it (${parents.map((id) => `opencode --session ${id}`).join(", ")}). Launch a new task for what you need here.`
}
