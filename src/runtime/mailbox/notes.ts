import { listed } from "../../core/errors.ts"
import type { MessageKind } from "../../core/ids.ts"
import { nameOf } from "../../core/summary.ts"
import type { Ask, Task } from "../../core/task.ts"
import { moment } from "../../lib/format-time.ts"
import { oneLine } from "../../lib/text.ts"

/** The most files that are named. */
const MOST_NAMES = 10

/** What a parent's model is told without being started: of a task of its own, at its time. */
export type Note = {
  readonly task: Task
  readonly kind: MessageKind
  readonly at: number
  /** For its user. */
  readonly visible?: string
  readonly text: string
}

/** A task waits for somebody. `team`: the task that it is a part of; `until`: when the question is refused. */
export function hintOf(task: Task, ask: Ask, team: Task | undefined, until: number, now: number): Note {
  const who = team
    ? `${NAMES[task.part?.kind ?? "tries"]} ${(task.part?.nth ?? 0) + 1} of ${nameOf(team)}`
    : nameOf(task)
  const end = Number.isFinite(until)
    ? ` If nobody answers, it is refused at ${moment(until, now)}, and the agent goes on without it.`
    : ""
  return noteOf(
    task,
    "hint",
    `Background task ${who} waits for the user's answer to a ${ask.kind}: ${oneLine(ask.what)}.${end} Tell the user when you next speak to them. superagents_output(task_id="${(team ?? task).id}") shows whether it still waits.`,
  )
}

const NAMES = { tries: "try", each: "item" } as const

/** A merge of a task's work was cut off, and does not fit any more. */
export const cutOffOf = (task: Task, files: readonly string[]): Note => {
  const names = listed(
    files.map((file) => oneLine(file)),
    MOST_NAMES,
  )
  return noteOf(
    task,
    "merge",
    `OpenCode was stopped while the work of background task ${nameOf(task)} was merged into your files, and the rest of it no longer fits to what was changed since: ${names}. Each file is as it was, or as it was merged; nothing more was touched. superagents_task(resume="${task.id}", prompt) has its agent solve that; then merge it again. Tell the user when you next speak to them.`,
  )
}

const noteOf = (task: Task, kind: MessageKind, text: string): Note => ({
  task,
  kind,
  at: task.run.startedAt ?? 0,
  text,
})
