import { type FSWatcher, watch } from "node:fs"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { createSignal } from "solid-js"
import { boardFolder, mainCheckout } from "../board/project.ts"
import { type BoardState, EMPTY } from "../board/state.ts"
import { stateOf } from "../board/status.ts"
import { parseBoard } from "../board/store/format.ts"
import type { BoardTask, TaskState } from "../board/task.ts"
import { isActive, isQueued } from "../core/task.ts"
import { decodeRecord } from "../host/record.ts"
import type { BoardOptions } from "../options.ts"

/** How often a look is taken at a board that is not there yet, in ms. */
const LOOK_MS = 15_000
const FILE = "tasks.json"

export type BoardSource = ReturnType<typeof createBoardSource>

/**
 * The board as the terminal shows it: read from its file, since the terminal runs on the machine where the work is, and
 * never written. What runs is read from the threads' records. Nothing is read where the option `board` is not there.
 */
export function createBoardSource(
  api: TuiPluginApi,
  options: () => BoardOptions | undefined,
  needed: (task: BoardTask, what: string) => void,
) {
  const [board, setBoard] = createSignal<BoardState>(EMPTY)
  const [nextTick, setNextTick] = createSignal("")
  /** Sessions change without the signals of this file: their events count here. */
  const [version, setVersion] = createSignal(0)
  let watcher: FSWatcher | undefined
  let told = new Map<string, string | undefined>()
  let first = true

  const folder = (dir: string) => boardFolder(mainCheckout(api.state.path.worktree, api.state.path.directory), dir)

  async function look(): Promise<void> {
    const given = options()
    if (!given) return
    const path = folder(given.dir)
    try {
      const parsed = parseBoard(await readFile(join(path, FILE), "utf8"), "")
      if ("state" in parsed) take(parsed.state)
      watcher ??= watchFolder(path)
      const { scheduleOf } = await import("../board/schedule.ts")
      const schedule = scheduleOf(given.schedule)
      const next = schedule.next(Date.now())
      setNextTick(next === undefined ? "" : schedule.text(next, Date.now()))
    } catch {
      // No board yet, or one that is being mended: there is another look.
    }
  }

  function watchFolder(path: string): FSWatcher {
    const made = watch(path, { persistent: false }, (_event, name) => {
      if (name === null || name === FILE) void look()
    })
    made.on("error", () => made.close())
    return made
  }

  function take(state: BoardState): void {
    const needs = new Map(state.tasks.map(({ id }) => [id, state.pulses[id]?.needs]))
    for (const task of state.tasks) {
      const what = needs.get(task.id)
      if (!first && what !== undefined && told.get(task.id) !== what) needed(task, what)
    }
    told = needs
    first = false
    setBoard(state)
  }

  const runOf = ({ threadId }: BoardTask) => {
    const session = threadId === undefined ? undefined : api.state.session.get(threadId)
    const task = session && decodeRecord(session)?.task
    if (!task || !isActive(task)) return undefined
    const state = isQueued(task) ? ("queued" as const) : ("running" as const)
    const asks = api.state.session.permission(task.sessionID).map(({ permission }) => permission)
    return { createdAt: task.run.createdAt, state, elsewhere: false, asks }
  }

  const stop = api.event.on("session.updated", () => void setVersion((count) => count + 1))
  const timer = setInterval(() => void look(), LOOK_MS)
  timer.unref?.()
  void look()

  return {
    /** The tasks that are not archived, oldest first. */
    tasks: () => board().tasks,
    state(task: BoardTask): TaskState {
      version()
      const agents = board().tasks.map(({ owner }) => owner)
      return stateOf(board(), task, { runOf, agents, now: new Date().toISOString(), nextTick: nextTick() })
    },
    look,
    dispose() {
      stop()
      clearInterval(timer)
      watcher?.close()
    },
  }
}
