import type { Clock, Host } from "../core/ports.ts"
import type { Toaster } from "../delivery/toaster.ts"
import type { Options } from "../options.ts"
import type { Background } from "./background.ts"
import type { Journal } from "./journal.ts"
import type { TaskStore } from "./store.ts"
import type { Underway } from "./underway.ts"

/** What every part of the manager works with. */
export type Parts = {
  readonly host: Host
  readonly clock: Clock
  readonly options: Options
  readonly store: TaskStore
  readonly journal: Journal
  readonly toaster: Toaster
  readonly background: Background
  readonly underway: Underway
  /** Aborted at the plugin's own end: from then on nothing is begun, ended, sent or written any more. */
  readonly stopped: AbortSignal
}
