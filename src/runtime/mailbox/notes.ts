import { listed } from "../../core/errors.ts"
import type { MessageKind } from "../../core/ids.ts"
import type { OpencodeApi } from "../../core/ports.ts"
import { AUTOMATIC, nameOf } from "../../core/summary.ts"
import { type Ask, slotSessionOf, type Task } from "../../core/task.ts"
import { retry, sleepFor } from "../../lib/clock.ts"
import { formatTime } from "../../lib/format.ts"
import { oneLine } from "../../lib/text.ts"
import type { Parts } from "../parts.ts"

const MOST_NAMES = 10

/** Message about a task for the parent's model, sent without starting the model. */
export type Note = {
  readonly task: Task
  readonly kind: MessageKind
  readonly at: number
  /** Text for the user. */
  readonly visible?: string
  readonly text: string
}

/** Note that a task waits for an answer. `group`: the group of a member; `until`: when the question is refused. */
export function askNote(task: Task, ask: Ask, group: Task | undefined, until: number, now: number): Note {
  const who = group
    ? `${NAMES[task.member?.kind ?? "tries"]} ${(task.member?.nth ?? 0) + 1} of ${nameOf(group)}`
    : nameOf(task)
  const end = Number.isFinite(until)
    ? ` If nobody answers, it is refused at ${formatTime(until, now)}, and the agent goes on without it.`
    : ""
  return noteOf(
    task,
    "hint",
    `Background task ${who} waits for the user's answer to a ${ask.kind}: ${oneLine(ask.what)}.${end} Tell the user when you next speak to them. superagents_output(task_id="${(group ?? task).id}") shows whether it still waits.`,
  )
}

const NAMES = { tries: "try", each: "item" } as const

/** Note that a merge was cut off by a crash and no longer applies. */
export const cutOffMergeNote = (task: Task, files: readonly string[]): Note => {
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

/** Delays between attempts, in ms: each is twice the one before, up to the longest. */
const FIRST_WAIT_MS = 5000
const LONGEST_WAIT_MS = 60_000

/**
 * Sends a parent's model a message about a task without starting it. Returns false where the message must wait: during
 * a turn it causes another step, and after an undo it deletes the undone messages for good.
 */
export async function notifyIdle(opencode: OpencodeApi, { task, kind, at, visible, text }: Note): Promise<boolean> {
  const { id, run } = task
  const parentID = slotSessionOf(task)
  const persona = await opencode.persona(parentID)
  const [parent, activity] = await Promise.all([opencode.parent(parentID), opencode.activity()])
  if (parent?.reverted || activity.has(parentID)) return false
  const hidden = { text: `${AUTOMATIC} ${text}`, synthetic: true }
  await opencode.prompt({
    sessionID: parentID,
    messageID: opencode.messageID(kind, id, run.generation, at),
    agent: persona?.agent,
    model: persona?.model,
    noReply: true,
    parts: visible === undefined ? [hidden] : [{ text: visible }, hidden],
  })
  return true
}

/** Sends the note as soon as the parent is idle. Rejects where the parent is deleted or does not answer. */
export async function tellOnceIdle({ opencode, clock, stopped }: Parts, note: Note): Promise<void> {
  for (let wait = FIRST_WAIT_MS; !stopped.aborted; wait = Math.min(2 * wait, LONGEST_WAIT_MS)) {
    if (await retry(clock, stopped, () => notifyIdle(opencode, note))) return
    await sleepFor(clock, wait)
  }
}
