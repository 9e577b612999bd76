import { type FSWatcher, watch } from "node:fs"
import { mkdir } from "node:fs/promises"
import { dirname, join } from "node:path"
import { messageOf } from "../../../core/errors.ts"
import { sliced } from "../../../lib/clock.ts"
import { type Claim, Lock, type Processes } from "../../../lib/lock.ts"
import { SerialQueue, succeeds } from "../../../lib/promises.ts"
import { keepOutOfGit } from "../../../lib/repository.ts"
import type { BoardChange, BoardCommand, BoardFacts } from "../rules/command.ts"
import { decide } from "../rules/decide.ts"
import { renumbered } from "../rules/verify.ts"
import { BoardError } from "../service.ts"
import type { BoardState } from "../state.ts"
import { type ArchivedTask, type BoardStatus, MOST_ID } from "../task.ts"
import {
  BOARD_FILE,
  BoardFiles,
  type FilesPorts,
  highestId,
  type Loaded,
  refuseOutside,
  type WriteResult,
} from "./files.ts"
import { History } from "./history.ts"

const DEBOUNCE_MS = 100

/** A watch of folders. Changes are reported until the watch is closed. */
export type Watch = { readonly close: () => void }

/**
 * Watches two folders, of which the second may appear later; a missing first folder is replaced by its nearest existing
 * parent. Returns undefined where no folder can be watched.
 */
export function watchBoth(first: string, second: string, changed: () => void): Watch | undefined {
  let other: FSWatcher | undefined
  const hearOther = () => {
    try {
      other ??= watchFolder(second, changed)
    } catch {
      // The second folder does not exist yet. After the next change in the first one it is tried again.
    }
  }
  const nearest = watchNearest(first, () => {
    hearOther()
    changed()
  })
  hearOther()
  return (
    nearest && {
      close() {
        nearest.close()
        other?.close()
      },
    }
  )
}

/** Watches a folder, or its nearest existing parent. Undefined where none can be watched. */
export function watchNearest(folder: string, changed: () => void): FSWatcher | undefined {
  for (let nearest = folder; ; nearest = dirname(nearest))
    try {
      return watchFolder(nearest, changed)
    } catch {
      if (nearest === dirname(nearest)) return undefined
    }
}

/**
 * Calls `changed` shortly after a change in a folder; throws where the folder is missing. File names are ignored,
 * because Bun reports only the first of several events within a millisecond.
 */
function watchFolder(folder: string, changed: () => void): FSWatcher {
  let timer: ReturnType<typeof setTimeout> | undefined
  const watcher = watch(folder, { persistent: false }, () => {
    timer ??= setTimeout(() => {
      timer = undefined
      changed()
    }, DEBOUNCE_MS)
    timer.unref?.()
  })
  watcher.on("close", () => clearTimeout(timer))
  watcher.on("error", () => watcher.close())
  return watcher
}

const HISTORY_FILE = "history.jsonl"
/** Folder of locks; never in git, even without the folder's `.gitignore`. */
const LOCK_FOLDER = ".locks"
/** Folder of purse reports. */
export const REPORTS_FOLDER = "reports"
const LOCK_PATIENCE_MS = 10_000

/** Names of all files and folders that the plugin uses in the board's folder. */
const NAMES = [BOARD_FILE, HISTORY_FILE, LOCK_FOLDER, REPORTS_FOLDER]

export type StorePorts = FilesPorts & {
  /** Folder of the board's project. No link may lead the board's files out of this folder. */
  readonly project: string
  readonly processes: Processes
  readonly now: () => number
  /** Longest wait for another process's lock, in ms. */
  readonly patienceMs?: number
}

/** Result of a change: `archived` is written to history before the board. */
type Next = { readonly state: BoardState; readonly archived: readonly ArchivedTask[] }
type Work<Value> = (state: BoardState) => Promise<Next & { readonly value: Value }>

/** Facts for the rules that the caller provides. The store adds how tasks ended. */
export type StoreFacts = Omit<BoardFacts, "ended">

/**
 * Reads the board's files and changes them by the rules, one process at a time. Failures are `BoardError`s that name
 * the files and the reason.
 */
export class Store {
  readonly #ports: StorePorts
  readonly #files: BoardFiles
  /** `trusted`: the trusted history. `project`: its copy in the project. */
  readonly #history: { readonly trusted: History; readonly project: History }
  readonly #lock: Lock
  readonly #lease: Lock
  /** Greater than every id read so far. Needed where the file was deleted, or somebody lowered its `nextId`. */
  #nextId = 1
  readonly #queue = new SerialQueue()

  constructor(ports: StorePorts) {
    this.#ports = ports
    const { folder, processes, warn } = ports
    this.#files = new BoardFiles(ports)
    const historyIn = (where: string) => {
      const path = join(where, HISTORY_FILE)
      return new History(path, (offset) => warn(`${path}: the line at byte ${offset} cannot be read; skipped`))
    }
    this.#history = { trusted: historyIn(this.#files.keptIn), project: historyIn(folder) }
    this.#lock = new Lock(join(folder, LOCK_FOLDER), "board", processes)
    this.#lease = new Lock(join(folder, LOCK_FOLDER), "scheduler", processes)
  }

  /** Reads the board from the files, after completing interrupted moves of tasks to history. */
  async read(): Promise<BoardState> {
    const { state, cut } = await this.#wrapErrors(() => this.#load())
    return cut || this.#hasRemaining(state) ? this.change(async (settled) => same(settled, settled)) : state
  }

  /** Board from the files. Writes nothing. */
  look(): Promise<BoardState> {
    return this.#wrapErrors(async () => (await this.#files.load()).state)
  }

  /** Last read state, without reading the files. */
  get latest(): BoardState {
    return this.#files.latest
  }

  find(id: string): Promise<ArchivedTask | undefined> {
    return this.#wrapErrors(async () => {
      await this.#refreshHistory()
      return this.#find(id)
    })
  }

  /** Archived tasks of the project's file, newest first, in their trusted version. */
  newest(limit: number): Promise<readonly ArchivedTask[]> {
    return this.#wrapErrors(async () => {
      await this.#refreshHistory()
      const project = await this.#history.project.newest(limit)
      const ours = await this.#history.trusted.findAll(project.map(({ id }) => id))
      return project.map((task) => ours.get(task.id) ?? foreign(task))
    })
  }

  /** Lets the rules apply a command to the present state, and writes the result. */
  carryOut(command: BoardCommand, facts: StoreFacts): Promise<BoardChange> {
    return this.change(async (state) => {
      const decided = decide(state, command, await this.#facts(state, command, facts))
      return { ...decided, value: decided }
    })
  }

  /** Returns the change that a command would make now. Writes nothing. */
  async preview(command: BoardCommand, facts: StoreFacts): Promise<BoardChange> {
    const state = this.#numbered(await this.read())
    return this.#wrapErrors(async () => decide(state, command, await this.#facts(state, command, facts)))
  }

  /** Reserves a unique id for a new task. */
  reserve(): Promise<string> {
    return this.change(async (state) => same({ ...state, nextId: state.nextId + 1 }, String(state.nextId)))
  }

  /**
   * Reads, changes and writes the board under the lock. If `work` rejects, nothing is written, except that interrupted
   * moves are completed.
   */
  change<Value>(work: Work<Value>): Promise<Value> {
    return this.#queue.take(() => this.#wrapErrors(() => this.#locked(() => this.#change(work))))
  }

  /** Copies archived tasks that the project's history lacks from the trusted history. */
  restoreHistory(): Promise<void> {
    return this.#wrapErrors(() =>
      this.#locked(async () => {
        await this.#files.prepare()
        await this.#refreshHistory()
        await this.#history.project.takeFrom(this.#history.trusted)
      }),
    )
  }

  async exists(): Promise<boolean> {
    // Files that cannot be used count as missing here. Callers of reads and writes get the error.
    return (await this.#files.exists()) && succeeds(this.#refuseUnusable())
  }

  /** Takes the lease to run the board's tasks. Undefined while another live process has the lease. */
  lease(): Promise<Claim | undefined> {
    return this.#wrapErrors(() => this.#lease.attempt())
  }

  isLeased(): Promise<boolean> {
    return this.#wrapErrors(() => this.#lease.isTaken())
  }

  /** The board's folder in the project. */
  get folder(): string {
    return this.#ports.folder
  }

  /** Calls `changed` when the board's files may have changed, or their folder may have been created. */
  watch(changed: () => void): Watch | undefined {
    return watchBoth(this.#ports.folder, this.#files.keptIn, changed)
  }

  async #change<Value>(work: Work<Value>): Promise<Value> {
    for (;;) {
      const loaded = await this.#load()
      const { left, ...settled } = await this.#settled(loaded.state)
      const numbered = this.#numbered(settled.state)
      const isUnfinished = loaded.cut || settled.state !== loaded.state
      let next: Awaited<ReturnType<Work<Value>>>
      try {
        next = await work(numbered)
      } catch (error) {
        if (isUnfinished) await this.#write(loaded, settled, left)
        throw error
      }
      const { state, archived, value } = next
      if (state === numbered && !isUnfinished) return value
      const outcome = await this.#write(loaded, { state, archived: [...settled.archived, ...archived] }, left)
      if (outcome === "written") return value
      // Only history was written, because the file was edited meanwhile. The move is completed on the edited file, as
      // after a crash.
      if (outcome === "half") return this.#change(async (state) => same(state, value))
    }
  }

  /** `left`: tasks that are in the trusted history already, and that the project's history may lack after a crash. */
  async #write(loaded: Loaded, { state, archived }: Next, left: readonly ArchivedTask[]): Promise<WriteResult> {
    await this.#files.prepare()
    const tick = state.tick ?? new Date(this.#ports.now()).toISOString()
    const { trusted, project } = this.#history
    const outcome = await this.#files.write(loaded, { ...state, tick }, async () => {
      const missing = left.filter(({ id }) => !project.has(id))
      if (archived.length > 0) await trusted.append(archived)
      if (archived.length + missing.length > 0) await project.append([...missing, ...archived])
      return archived.length > 0
    })
    await this.#refreshHistory()
    this.#nextId = Math.max(this.#nextId, state.nextId)
    return outcome
  }

  async #load(): Promise<Loaded> {
    await this.#refreshHistory()
    const loaded = await this.#files.load()
    this.#nextId = Math.max(this.#nextId, loaded.state.nextId)
    return loaded
  }

  /**
   * Raises `nextId` above every known id, so that no id is used twice, whatever happened to the files. If somebody has
   * used the highest ids, the next free one counts.
   */
  #numbered(state: BoardState): BoardState {
    const { trusted, project } = this.#history
    const least = Math.max(this.#nextId, trusted.highestId + 1, project.highestId + 1, highestId(state.tasks) + 1)
    if (least <= MOST_ID) return state.nextId >= least ? state : { ...state, nextId: least }
    const open = new Set(state.tasks.flatMap(({ id, steps }) => [id, ...steps.map(({ taskId }) => taskId)]))
    const isUsed = (id: string) => open.has(id) || trusted.has(id) || project.has(id)
    let nextId = state.nextId
    while (nextId > MOST_ID || isUsed(String(nextId))) nextId = nextId < MOST_ID ? nextId + 1 : 1
    return nextId === state.nextId ? state : { ...state, nextId }
  }

  #hasRemaining(state: BoardState): boolean {
    return state.tasks.some(
      ({ id, status }) => status === "done" || status === "canceled" || this.#history.trusted.has(id),
    )
  }

  /**
   * Completes interrupted moves: removes tasks that history contains already, and archives tasks that an edit has
   * ended. A task that is not the one of history, since somebody has used an ended task's id again, gets a free id.
   */
  async #settled(given: BoardState): Promise<Next & { readonly left: readonly ArchivedTask[] }> {
    if (!this.#hasRemaining(given)) return { state: given, archived: [], left: [] }
    // Tasks with an unreadable history line stay on the board.
    const found = await this.#history.trusted.findAll(given.tasks.map(({ id }) => id))
    const left = [...found.values()]
    const pause = sliced()
    let state = given
    for (const task of given.tasks) {
      await pause()
      const ended = found.get(task.id)
      if (ended && ended.createdAt !== task.createdAt) state = renumbered(this.#numbered(state), task)
    }
    const nobody = { now: new Date(this.#ports.now()).toISOString(), agents: [], isRunning: () => false }
    const facts = { ...nobody, ended: () => undefined }
    return { ...decide(state, { type: "settle", archived: left }, facts), left }
  }

  /** Adds to the facts how archived tasks of the command ended. */
  async #facts(state: BoardState, command: BoardCommand, facts: StoreFacts): Promise<BoardFacts> {
    const ended = new Map<string, BoardStatus>()
    const id = "id" in command ? command.id : undefined
    const steps = state.tasks.find((task) => task.id === id)?.steps ?? []
    const step = command.type === "create subtask" ? steps[command.index]?.taskId : undefined
    for (const each of [id, step]) {
      const found = each === undefined ? undefined : await this.#find(each)
      if (found) ended.set(found.id, found.status)
    }
    return { ...facts, ended: (wanted) => ended.get(wanted) }
  }

  async #find(id: string): Promise<ArchivedTask | undefined> {
    const ours = await this.#history.trusted.find(id)
    if (ours) return ours
    const theirs = await this.#history.project.find(id)
    return theirs && foreign(theirs)
  }

  async #refreshHistory(): Promise<void> {
    await Promise.all([this.#history.trusted.refresh(), this.#history.project.refresh()])
  }

  async #locked<Value>(work: () => Promise<Value>): Promise<Value> {
    await mkdir(join(this.#ports.folder, LOCK_FOLDER), { recursive: true })
    await keepOutOfGit(join(this.#ports.folder, LOCK_FOLDER))
    const { patienceMs = LOCK_PATIENCE_MS } = this.#ports
    const text = `The board is in use: another process held it for ${patienceMs / 1000} s. Call again.`
    return this.#lock.hold(patienceMs, () => new BoardError("unavailable", text), work)
  }

  /**
   * Rejects where the files must not be used. Without the key, the trusted state would look foreign, and the next write
   * would replace it.
   */
  async #refuseUnusable(): Promise<void> {
    const { signer, project, folder } = this.#ports
    if (signer.problem !== undefined)
      throw new BoardError(
        "unavailable",
        `The board is neither read nor written, because the key of this installation cannot be used: ${signer.problem}. Then restart OpenCode.`,
      )
    await refuseOutside(project, folder, NAMES)
  }

  async #wrapErrors<Value>(work: () => Promise<Value>): Promise<Value> {
    try {
      await this.#refuseUnusable()
      return await work()
    } catch (error) {
      if (error instanceof BoardError) throw error
      const text = messageOf(error)
      throw new BoardError("unavailable", `The board's files in ${this.#ports.folder} cannot be used: ${text}.`)
    }
  }
}

const same = <Value>(state: BoardState, value: Value) => ({ state, archived: [], value })

/**
 * Removes the thread and the archiving session from a task of the project's history, because anybody can edit that
 * file.
 */
const foreign = ({ threadId: _given, archivedIn: _in, ...task }: ArchivedTask): ArchivedTask => task
