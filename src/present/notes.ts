import type { GroupKind, Note } from "../core/feature.ts"
import { type Ask, type MessageKind, nameOf, type Task } from "../core/task.ts"
import { formatTime } from "../lib/format.ts"
import { oneLine } from "../lib/text.ts"
import { named } from "./summary.ts"

/** Notes to a parent's model about a task that has not ended. */

const MOST_NAMES = 10

/** Note that a task waits for an answer. `group`: that of a member; `until`: when the question is refused. */
export function askNote(
  task: Task,
  ask: Ask,
  { group, kind, until, now }: { group?: Task; kind?: GroupKind; until: number; now: number },
): Note {
  const who = group ? `${kind?.noun.one} ${(task.member?.nth ?? 0) + 1} of ${nameOf(group)}` : nameOf(task)
  const end = Number.isFinite(until)
    ? ` If nobody answers, it is refused at ${formatTime(until, now)}, and the agent goes on without it.`
    : ""
  return noteOf(
    task,
    "hint",
    `Background task ${who} waits for the user's answer to a ${ask.kind}: ${oneLine(ask.what)}.${end} Tell the user when you next speak to them. superagents_output(task_id="${(group ?? task).id}") shows whether it still waits.`,
  )
}

/** Note that a merge was cut off by a crash and no longer applies. */
export const cutOffMergeNote = (task: Task, files: readonly string[]): Note =>
  noteOf(
    task,
    "merge",
    `OpenCode was stopped while the work of background task ${nameOf(task)} was merged into your files, and the rest of it no longer fits to what was changed since: ${named(files, MOST_NAMES)}. Each file is as it was, or as it was merged; nothing more was touched. superagents_task(resume="${task.id}", prompt) has its agent solve that; then merge it again. Tell the user when you next speak to them.`,
  )

const noteOf = (task: Task, kind: MessageKind, text: string): Note => ({
  task,
  kind,
  at: task.run.startedAt ?? 0,
  text,
})
