import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Address } from "../web/address.ts"
import type { Actions } from "./actions.ts"
import type { BoardSource } from "./board-source.ts"

/** What the dialogs of the board stand on. */
export type BoardCompanion = {
  readonly api: TuiPluginApi
  readonly board: BoardSource
  readonly actions: Actions
  /** Where the page is, if it is served. */
  readonly page: Address | undefined
}

export type Choice = {
  readonly title: string
  readonly description?: string
  readonly footer?: string
  readonly category?: string
  readonly run: () => unknown
}
