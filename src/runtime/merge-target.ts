import { CallError } from "../core/errors.ts"
import type { Activity } from "../core/ports.ts"
import type { CheckResult } from "../core/receipt.ts"
import { isActive, type Task } from "../core/task.ts"
import { sleepFor } from "../lib/clock.ts"
import type { Parts } from "./parts.ts"
import { stopSession } from "./stop-session.ts"

/** Time for a stopped session to become idle, and interval of the checks. */
const QUIET_LIMIT_MS = 10_000
const QUIET_LOOK_MS = 100
/** Interval for sessions with a turn of the user, which may take long. */
const USERS_LOOK_MS = 2000

/**
 * Folder where a task's parent works now, to which its work belongs. An ended parent has left its folder, so its own
 * parent's folder counts.
 */
export function parentFolderOf(parts: Pick<Parts, "store" | "host">, task: Task): string {
  const { store, host } = parts
  const parent = store.bySession(task.parentID)
  if (!parent) return task.place?.folder ?? host.folderOf(task.parentID)
  return isActive(parent) ? host.folderOf(parent.sessionID) : parentFolderOf(parts, parent)
}

/** Folder for an automatic merge. Throws where the parent has moved since the launch, or the run was stopped. */
export function autoMergeFolder(parts: Parts, task: Task, signal: AbortSignal): string {
  if (signal.aborted) throw new CallError("it was stopped before that")
  const folder = parentFolderOf(parts, task)
  if (folder === task.place?.folder) return folder
  throw new CallError("the agent that asked for it has ended, and the folder it worked in is put away")
}

/** Throws unless the check passed with the parent's current files. */
export function refuseFailedCheck(result: CheckResult | undefined): void {
  if (!result) throw new CallError("its second check was stopped")
  if (!result.passed)
    throw new CallError(`with what was changed in your folder meanwhile, its check does not pass (${result.how})`)
}

/**
 * Moves a run's session to its place, after pending turns of the user: a busy session stays in its folder and cannot be
 * aborted there. Throws where it was stopped meanwhile.
 */
export async function moveSessionToPlace(parts: Parts, sessionID: string, folder: string, signal: AbortSignal) {
  const { host, clock } = parts
  const home = host.folderOf(sessionID)
  const works = async () => mayWork((await host.activity()).get(sessionID))
  while (!signal.aborted) {
    await host.move(sessionID, folder)
    // Checked after the move: from then on no turn begins in the old folder.
    if (!(await works())) return
    await host.move(sessionID, home)
    // An abort sent before the move had no effect.
    if (signal.aborted) await stopSession(parts, sessionID).soon
    while (!signal.aborted && (await works())) await sleepFor(clock, USERS_LOOK_MS)
  }
  throw new CallError("It was stopped before its place was ready.")
}

/** A session that represents a remote one does nothing here. */
const mayWork = (doing: Activity | undefined): boolean => doing !== undefined && doing.type !== "unreachable"

/** Moves an idle session back to its parent's folder. */
export async function moveSessionBack(parts: Parts, task: Task): Promise<void> {
  const { host, clock } = parts
  const { sessionID } = task
  const folder = parentFolderOf(parts, task)
  if (host.folderOf(sessionID) === folder) return
  const deadline = clock.now() + QUIET_LIMIT_MS
  while (mayWork((await host.activity()).get(sessionID))) {
    if (clock.now() >= deadline) throw new Error(`session ${sessionID} does not stop, so its place stays as it is`)
    await stopSession(parts, sessionID).soon
    await sleepFor(clock, QUIET_LOOK_MS)
  }
  await host.move(sessionID, folder)
}
