import type { Processes } from "../lib/lock.ts"
import { type BoardOptions, DEFAULT_SCHEDULE } from "../options.ts"
import type { Tool } from "../tools/tool.ts"
import { TaskBoard } from "./board.ts"
import { type AgentConfig, gateTools } from "./gate.ts"
import type { Clock, Runs, Surroundings, Threads } from "./ports.ts"
import { boardFolder, isSameFolder, mainCheckout } from "./project.ts"
import { decide } from "./rules/decide.ts"
import { type Schedule, scheduleOf } from "./schedule.ts"
import type { Board } from "./service.ts"
import { Store } from "./store/store.ts"
import { boardTools } from "./tools/index.ts"

export { ManagerRuns } from "./manager-runs.ts"
export { type AgentConfig, mainCheckout }

export type BoardSetup = {
  readonly options: BoardOptions
  /** The project's main checkout, and the folder that this instance of the plugin serves. */
  readonly project: string
  readonly directory: string
  readonly threads: Threads
  readonly runs: Runs
  readonly surroundings: Surroundings
  readonly clock: Clock
  readonly processes: Processes
  readonly isBackground: (sessionID: string) => Promise<boolean>
}

/** The board as the plugin's entry uses it. No method throws or rejects but the tools, and the service itself. */
export type OpenBoard = {
  readonly service: Board
  readonly tools: Readonly<Record<string, Tool>>
  /** Begins to look after the tasks there are. */
  start(): Promise<void>
  stop(): Promise<void>
  /** One look at clock and board, as the timer brings it about by itself. */
  beat(): Promise<void>
  /** Before the host makes its agents: who is offered the tools. */
  configure(config: AgentConfig): void
  /** What a session's next request carries in its system prompt: the `<Task>` block where it is a thread. */
  system(sessionID: string): Promise<string | undefined>
  /** A request of this turn is about to be made: what has changed since the turn's `<Task>` block, if anything has. */
  changed(sessionID: string, turn: string): Promise<string | undefined>
  /** A user message was stored in a session. */
  written(sessionID: string, messageID: string): Promise<void>
}

/** Puts the board together. This module, and all below it, is loaded only where the option `board` is there. */
export function openBoard(setup: BoardSetup): OpenBoard {
  const { options, project, directory, threads, runs, surroundings, clock, processes } = setup
  const store = new Store({
    folder: boardFolder(project, options.dir),
    processes,
    now: () => clock.now(),
    warn: (message) => surroundings.log("warn", message),
    settle: (state, archived) => {
      const now = new Date(clock.now()).toISOString()
      const nobody = { now, agents: [], isRunning: () => false, ended: () => undefined }
      const settled = decide(state, { type: "settle", archived }, nobody)
      return settled.ok ? settled : { state, archived: [] }
    },
  })
  const board = new TaskBoard({
    store,
    threads,
    runs,
    surroundings,
    clock,
    schedule: scheduleFrom(options.schedule, surroundings),
    agents: options.agents ?? undefined,
    maxConcurrentRuns: options.maxConcurrentRuns,
    project,
    isHome: isSameFolder(project, directory),
  })
  const quietly = async <Value>(what: string, work: () => Promise<Value>): Promise<Value | undefined> => {
    try {
      return await work()
    } catch (error) {
      surroundings.log("warn", `the board: ${what} failed`, { error: String(error) })
      return undefined
    }
  }
  return {
    service: board,
    tools: boardTools({ board, isBackground: setup.isBackground }),
    start: () => board.start(),
    stop: () => board.stop(),
    beat: () => board.beat(),
    configure: (config) => gateTools(config, options.agents),
    system: (sessionID) => quietly("a task's block", () => board.blockFor(sessionID)),
    changed: (sessionID, turn) => quietly("what has changed in a task", () => board.changesFor(sessionID, turn)),
    written: async (sessionID, messageID) => {
      await quietly("hearing of a message", () => board.written(sessionID, messageID))
    },
  }
}

function scheduleFrom(pattern: string, surroundings: Surroundings): Schedule {
  return scheduleOf(pattern, (why) => {
    const message = `Option "board.schedule" is "${pattern}", which is no cron pattern (${why}). Using "${DEFAULT_SCHEDULE}".`
    surroundings.log("warn", message)
    surroundings.toast({ title: "superagents: check your options", message, variant: "warning" })
  })
}
