import type { Board } from "../board/service.ts"
import type { TaskView } from "../engine/tasks/view.ts"
import type { FileDiff } from "../lib/patch.ts"

/**
 * What the web needs of the rest, whatever gives it: the background tasks, the board where there is one, and where the
 * sessions can be looked at.
 */

/** The background tasks of all sessions. */
export interface Agents {
  /** Oldest first, those of other processes included. */
  list(): readonly TaskView[]
  get(id: string): TaskView | undefined
  /** True where another OpenCode process runs the task: it can be looked at, and no more. */
  isForeign(id: string): boolean
  /** Finds what other processes have launched. Must not reject. */
  refresh(): Promise<void>
  /** The text of the task's last run; of a running one what it wrote last. Does not count as the parent's look. */
  answer(id: string): Promise<string>
  /** What its last run changed, file by file; empty where that is not known. */
  diff(id: string): Promise<readonly FileDiff[]>
  /** Stops a running task for the person at the page. False where it had ended by then. */
  cancel(id: string): Promise<boolean>
  /** Calls back with the id of a task that may look different now; returns the end of it. */
  subscribe(listener: (id: string) => void): () => void
}

/** How a person gets to a session: a page of OpenCode's own where its server listens, else a command. */
interface Threads {
  /** The address that a session's id completes, or undefined where nothing listens. */
  base(): Promise<string | undefined>
}

export type Log = (level: "info" | "warn" | "error", message: string, fields?: Record<string, string>) => void

/** What one instance of the plugin has to show. */
export type Source = {
  readonly agents: Agents
  readonly board?: Board
  readonly threads?: Threads
}
