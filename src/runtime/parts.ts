import type { Clock, OpencodeApi } from "../core/ports.ts"
import type { Background } from "../lib/background.ts"
import type { Options } from "../options/options.ts"
import type { Attendance } from "./attendance.ts"
import type { Journal } from "./journal.ts"
import type { Toaster } from "./mailbox/toaster.ts"
import type { CommandMarks } from "./places/command-marks.ts"
import type { TaskStore } from "./tasks/store.ts"

/** Services that every part of the engine uses. */
export type Parts = {
  readonly host: OpencodeApi
  readonly clock: Clock
  readonly options: Options
  readonly store: TaskStore
  readonly journal: Journal
  readonly toaster: Toaster
  readonly background: Background
  readonly attendance: Attendance
  /** Where running commands are recorded. */
  readonly commands?: CommandMarks
  /** Aborted when the plugin stops: nothing is started, ended, sent or written afterwards. */
  readonly stopped: AbortSignal
}
