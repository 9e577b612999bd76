import type { Setup } from "../../app.ts"
import { mainCheckout, stateFolder } from "../../lib/repository.ts"
import { processLives, processMark } from "../../runtime/record/identity.ts"
import { TaskBoard } from "./board.ts"
import type { BoardOptions } from "./options.ts"
import { ManagerRuns } from "./runs.ts"

type BoardSetup = Pick<Setup, "connection" | "options" | "clock" | "manager" | "recovered"> & {
  readonly board: BoardOptions
}

/** The project's board. Loaded only with the option `board`. */
export function openBoard({ connection, options, clock, manager, recovered, board: own }: BoardSetup): TaskBoard {
  const { directory, worktree, opencode, signer } = connection
  const project = mainCheckout(worktree, directory)
  const board = new TaskBoard({
    options: own,
    project,
    directory,
    state: stateFolder(),
    signer,
    opencode,
    threads: connection.threads(project),
    runs: new ManagerRuns(manager, recovered, clock),
    clock,
    lastWord: options.lastWord,
    processes: { self: processMark, isAlive: processLives },
    isBackground: async (sessionID) => connection.requestHandler(manager).isLaunched(sessionID),
  })
  clock.after(0, () => void board.start())
  return board
}
