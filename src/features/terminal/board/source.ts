import { resolve } from "node:path"
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { createEffect, createRoot, createSignal, onCleanup, untrack } from "solid-js"
import { mainCheckout, stateFolder } from "../../../lib/repository.ts"
import type { Options } from "../../../options/options.ts"
import { installationSigner, processLives, processMark } from "../../../runtime/record/identity.ts"
import type { BoardOptions } from "../../board/options.ts"
import { type BoardState, EMPTY, isUnverified } from "../../board/state.ts"
import { stateOf } from "../../board/status.ts"
import { Store } from "../../board/store/store.ts"
import { type BoardTask, headOf, type TaskState } from "../../board/task.ts"
import { boardActs } from "./acts.ts"
import { BoardReader } from "./look.ts"
import { BoardThreads } from "./threads.ts"

export type BoardSource = ReturnType<typeof createBoardSource>

/**
 * Board data for the terminal, read from its files and from threads' records. Does nothing while the option `board` or
 * the server plugin is off; OpenCode's configuration may arrive later.
 */
export function createBoardSource(
  api: TuiPluginApi,
  server: () => Pick<Options, "enabled" | "board">,
  needed: (title: string, what: string) => void,
) {
  const options = () => (server().enabled ? server().board : undefined)
  const [board, setBoard] = createSignal<BoardState>(EMPTY)
  const [nextTick, setNextTick] = createSignal("")
  const threads = new BoardThreads(api)
  const tellNeeds = needsTold(needed)
  const files = filesOf(api, options)
  const look = new BoardReader({
    files,
    async found(state) {
      const given = options()
      if (!given) return
      tellNeeds(state)
      setBoard(state)
      const { scheduleOf } = await import("../../board/schedule.ts")
      setNextTick(scheduleOf(given.schedule).round(Date.now()))
      await threads.read(board().tasks)
    },
  })
  /** Returns the stop function. */
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
    /** Open tasks, oldest first. */
    tasks: () => board().tasks,
    state(task: BoardTask): TaskState {
      const runOf = (of: BoardTask) => threads.runOf(of)
      const agents = board().tasks.map(({ owner }) => owner)
      return stateOf(board(), task, { runOf, agents, now: new Date().toISOString(), nextTick: nextTick() })
    },
    asks: (task: BoardTask) => threads.asks(task),
    /** Whether a task has an outside edit that no user has accepted. */
    isUnverified: ({ id }: BoardTask) => isUnverified(board(), id),
    /** Tasks of a missing file. */
    lost: () => board().lost,
    /** The open purse, and reports of the last ones, oldest first. */
    purse: () => board().purse,
    reports: () => board().purseReports ?? [],
    isOn: () => options() !== undefined,
    look: () => look.look(),
    dispose,
  }
}

/** Reports new needs of tasks, not those of the first read. */
function needsTold(needed: (title: string, what: string) => void) {
  let told: ReadonlyMap<string, string | undefined> | undefined
  return ({ tasks, pulses }: BoardState): void => {
    const before = told
    told = new Map(tasks.map(({ id }) => [id, pulses[id]?.needs]))
    for (const task of before ? tasks : []) {
      const what = pulses[task.id]?.needs
      if (what !== undefined && before?.get(task.id) !== what) needed(headOf(task), what)
    }
  }
}

/** Files of the current project's board; undefined without the option. */
function filesOf(api: TuiPluginApi, options: () => BoardOptions | undefined): () => Store | undefined {
  let last: { readonly files: Store; readonly folder: string } | undefined
  return () => {
    const given = options()
    if (!given) return undefined
    const project = mainCheckout(api.state.path.worktree, api.state.path.directory)
    const folder = resolve(project, given.dir)
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
    // The server plugin logs it.
    warn: () => {},
  })
