import type { AppFeature } from "../../app.ts"
import { BOARD_TOOLS, options } from "./options.ts"

export const board: AppFeature = {
  name: "board",
  options,
  // The board counts its runs before it starts them. This limit also holds for runs that come back from a pause.
  slotLimits: ({ board: own }) => ({ maxUnattended: own?.maxConcurrentRuns }),
  deniedTools: ({ board: own }) => (own ? [BOARD_TOOLS] : []),
  async threads(setup) {
    const { board: own } = setup.options
    return own && (await import("./board.ts")).openBoard({ ...setup, board: own })
  },
}
