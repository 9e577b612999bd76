import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { createEffect, createRoot, createSignal, onCleanup, untrack } from "solid-js"
import { processLives, processMark } from "../../runtime/record/owner.ts"
import { installationSigner } from "../../runtime/record/signature.ts"
import type { BoardOptions } from "../board/options.ts"
import { boardFolder, mainCheckout, stateFolder } from "../board/project.ts"
import { type BoardState, EMPTY, isUnverified } from "../board/state.ts"
import { stateOf } from "../board/status.ts"
import { Store } from "../board/store/store.ts"
import type { BoardTask, TaskState } from "../board/task.ts"
import { boardActs } from "./board-acts.ts"
import { BoardLook } from "./board-look.ts"
import { BoardThreads } from "./board-threads.ts"

export type BoardSource = ReturnType<typeof createBoardSource>

/**
 * The board as the terminal shows it: read from its files, since the terminal runs on the machine where the work is.
 * What runs is read from the threads' records. Nothing is read, heard or timed where the option `board`
 * is not there; the host may tell of it later.
 */
export function createBoardSource(
  api: TuiPluginApi,
  options: () => BoardOptions | undefined,
  needed: (task: BoardTask, what: string) => void,
) {
  const [board, setBoard] = createSignal<BoardState>(EMPTY)
  const [nextTick, setNextTick] = createSignal("")
  const threads = new BoardThreads(api)
  const tellNeeds = needsTold(needed)
  const files = filesOf(api, options)
  const look = new BoardLook({
    files,
    async found(state) {
      const given = options()
      if (!given) return
      tellNeeds(state)
      setBoard(state)
      const { scheduleOf } = await import("../board/schedule.ts")
      setNextTick(scheduleOf(given.schedule).round(Date.now()))
      await threads.read(board().tasks)
    },
  })
  /** Returns the end of it. */
  const begin = (): (() => void) => {
    const stop = threads.listen()
    look.begin()
    return () => {
      stop()
      look.end()
      setBoard(EMPTY)
    }
  }
  const dispose = createRoot((end) => {
    createEffect(() => {
      if (options()) onCleanup(untrack(begin))
    })
    return end
  })
  return {
    ...boardActs({ api, options, board, threads, files, look: () => look.look() }),
    /** The tasks that are not archived, oldest first. */
    tasks: () => board().tasks,
    state(task: BoardTask): TaskState {
      const runOf = (of: BoardTask) => threads.runOf(of)
      const agents = board().tasks.map(({ owner }) => owner)
      return stateOf(board(), task, { runOf, agents, now: new Date().toISOString(), nextTick: nextTick() })
    },
    asks: (task: BoardTask) => threads.asks(task),
    /** Whether another hand has written or changed a task, and no person has started it since. */
    isUnverified: ({ id }: BoardTask) => isUnverified(board(), id),
    /** The tasks of a board whose file has gone. */
    lost: () => board().lost,
    /** The purse that is open, and the reports of the last ones, oldest first. */
    purse: () => board().purse,
    reports: () => board().purseReports ?? [],
    isOn: () => options() !== undefined,
    look: () => look.look(),
    dispose,
  }
}

/** Tells what tasks have come to need; not what they needed when the board was first seen. */
function needsTold(needed: (task: BoardTask, what: string) => void) {
  let told: ReadonlyMap<string, string | undefined> | undefined
  return ({ tasks, pulses }: BoardState): void => {
    const before = told
    told = new Map(tasks.map(({ id }) => [id, pulses[id]?.needs]))
    for (const task of before ? tasks : []) {
      const what = pulses[task.id]?.needs
      if (what !== undefined && before?.get(task.id) !== what) needed(task, what)
    }
  }
}

/** The files of the project's board, wherever that is by now; undefined where the option is not there. */
function filesOf(api: TuiPluginApi, options: () => BoardOptions | undefined): () => Store | undefined {
  let last: { readonly files: Store; readonly folder: string } | undefined
  return () => {
    const given = options()
    if (!given) return undefined
    const project = mainCheckout(api.state.path.worktree, api.state.path.directory)
    const folder = boardFolder(project, given.dir)
    if (last?.folder !== folder) last = { files: openFiles(project, folder), folder }
    return last.files
  }
}

const openFiles = (project: string, folder: string): Store =>
  new Store({
    project,
    folder,
    state: stateFolder(),
    signer: installationSigner(),
    processes: { self: processMark, isAlive: processLives },
    now: Date.now,
    // The server half says so in the log.
    warn: () => {},
  })
