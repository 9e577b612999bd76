import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Options } from "../../../options/options.ts"
import type { Actions } from "../actions.ts"
import type { BoardSource } from "./source.ts"

/** Services for the board's dialogs. */
export type BoardDialogPorts = {
  readonly api: TuiPluginApi
  readonly board: BoardSource
  readonly actions: Actions
  /** The server plugin's. */
  readonly options: Options
}

export type BoardMenuRow = {
  readonly title: string
  readonly description?: string
  readonly footer?: string
  readonly category?: string
  readonly run: () => unknown
}
