import type { Terminal, TerminalPart } from "../menu.tsx"
import { boardRows } from "./dialog.tsx"
import { BoardTasks } from "./section.tsx"
import { createBoardSource } from "./source.ts"

const NO_TASK = "There is no open task on the board."
const IS_OFF = 'The board is off: in opencode.json, the option "board" turns it on, and "web" the page.'

/** The board in the terminal. */
export function boardPart({ api, actions, attention, settings }: Terminal): TerminalPart {
  const board = createBoardSource(api, () => settings().server, attention.onNeed)
  return {
    rows: () => boardRows({ api, board, actions }),
    none: () => (board.isOn() ? NO_TASK : IS_OFF),
    sidebar: () => <BoardTasks api={api} board={board} />,
    dispose: board.dispose,
  }
}
