import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Options } from "../../options/options.ts"
import { pageRow } from "../web/terminal/page-link.tsx"
import type { BoardMenuRow } from "./board/companion.ts"

/** Rows of other features in `/board`, above its tasks; undefined where there is none now. */
export const BOARD_ROWS: readonly ((api: TuiPluginApi, options: Options) => BoardMenuRow | undefined)[] = [pageRow]
