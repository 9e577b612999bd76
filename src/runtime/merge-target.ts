import { CallError } from "../core/errors.ts"
import type { Activity } from "../core/ports.ts"
import type { CheckResult } from "../core/receipt.ts"
import { isActive, type Task } from "../core/task.ts"
import { pause } from "../lib/clock.ts"
import type { Parts } from "./parts.ts"
import { stopSession } from "./stop-session.ts"

/** How long a session that was stopped may take to be idle, and how often it is looked at. */
const QUIET_LIMIT_MS = 10_000
const QUIET_LOOK_MS = 100
/** How often a session is looked at whose user has it work: that may take its time. */
const USERS_LOOK_MS = 2000

/**
 * The folder where a task's parent works now: the task's work belongs there, and its session while it rests. A parent
 * that has ended has left its own folder, so its work counts as done where its own parent works.
 */
export function homeOf(parts: Pick<Parts, "store" | "host">, task: Task): string {
  const { store, host } = parts
  const parent = store.bySession(task.parentID)
  if (!parent) return task.place?.folder ?? host.folderOf(task.parentID)
  return isActive(parent) ? host.folderOf(parent.sessionID) : homeOf(parts, parent)
}

/** The same for work that is merged by itself: throws where its parent is not where it asked for that, or it was stopped. */
export function homeAsAsked(parts: Parts, task: Task, signal: AbortSignal): string {
  if (signal.aborted) throw new CallError("it was stopped before that")
  const folder = homeOf(parts, task)
  if (folder === task.place?.folder) return folder
  throw new CallError("the agent that asked for it has ended, and the folder it worked in is put away")
}

/** Throws unless the check has passed that a task's work went through with what its parent's folder holds by now. */
export function refuseUnpassed(result: CheckResult | undefined): void {
  if (!result) throw new CallError("its second check was stopped")
  if (!result.passed)
    throw new CallError(`with what was changed in your folder meanwhile, its check does not pass (${result.how})`)
}

/**
 * Moves a run's session to its place. What its user has begun there before goes on first: moved while it works, a session
 * goes on where it was, and no stop reaches it. Throws where it was stopped meanwhile.
 */
export async function goThere(parts: Parts, sessionID: string, folder: string, signal: AbortSignal) {
  const { host, clock } = parts
  const home = host.folderOf(sessionID)
  const works = async () => mayWork((await host.activity()).get(sessionID))
  while (!signal.aborted) {
    await host.move(sessionID, folder)
    // Looked at once it is there: from then on it begins nothing where it was.
    if (!(await works())) return
    await host.move(sessionID, home)
    // A stop that came while it was there has stopped nothing.
    if (signal.aborted) await stopSession(parts, sessionID).soon
    while (!signal.aborted && (await works())) await pause(clock, USERS_LOOK_MS)
  }
  throw new CallError("It was stopped before its place was ready.")
}

/** One that stands for a session on a machine out of reach does nothing here, and is stopped there when that answers. */
const mayWork = (doing: Activity | undefined): boolean => doing !== undefined && doing.type !== "unreachable"

/** Moves a task's session back to where its parent works, once it does nothing any more. */
export async function goHome(parts: Parts, task: Task): Promise<void> {
  const { host, clock } = parts
  const { sessionID } = task
  const folder = homeOf(parts, task)
  if (host.folderOf(sessionID) === folder) return
  const deadline = clock.now() + QUIET_LIMIT_MS
  while (mayWork((await host.activity()).get(sessionID))) {
    if (clock.now() >= deadline) throw new Error(`session ${sessionID} does not stop, so its place stays as it is`)
    await stopSession(parts, sessionID).soon
    await pause(clock, QUIET_LOOK_MS)
  }
  await host.move(sessionID, folder)
}
