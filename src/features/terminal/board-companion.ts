import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Address } from "../web/address.ts"
import type { Actions } from "./actions.ts"
import type { BoardSource } from "./board-source.ts"

/** Services for the board's dialogs. */
export type BoardCompanion = {
  readonly api: TuiPluginApi
  readonly board: BoardSource
  readonly actions: Actions
  /** Address of the page, if it is served. */
  readonly page: Address | undefined
}

export type Choice = {
  readonly title: string
  readonly description?: string
  readonly footer?: string
  readonly category?: string
  readonly run: () => unknown
}
