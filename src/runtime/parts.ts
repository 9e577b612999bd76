import type { Clock, Host } from "../core/ports.ts"
import type { Background } from "../lib/background.ts"
import type { Options } from "../options/options.ts"
import type { Attendance } from "./attendance.ts"
import type { Journal } from "./journal.ts"
import type { Toaster } from "./mailbox/toaster.ts"
import type { CommandMarks } from "./places/command-marks.ts"
import type { TaskStore } from "./tasks/store.ts"

/** What every part of the engine works with. */
export type Parts = {
  readonly host: Host
  readonly clock: Clock
  readonly options: Options
  readonly store: TaskStore
  readonly journal: Journal
  readonly toaster: Toaster
  readonly background: Background
  readonly attendance: Attendance
  /** Where the commands that run for tasks are written down. */
  readonly commands?: CommandMarks
  /** Aborted at the plugin's own end: from then on nothing is begun, ended, sent or written any more. */
  readonly stopped: AbortSignal
}
