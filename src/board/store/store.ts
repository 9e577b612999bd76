import type { FSWatcher } from "node:fs"
import { mkdir, open, readdir, realpath, rename, stat, unlink, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { messageOf } from "../../core/errors.ts"
import { type Claim, ifMissing, Lock, type Processes } from "../../lib/lock.ts"
import type { ArchivedTask } from "../rules/archive.ts"
import { BoardError } from "../service.ts"
import { type BoardState, EMPTY } from "../state.ts"
import { BOARD_FILE, type BoardFile, formatBoard, highestId, parseBoard } from "./format.ts"
import { History } from "./history.ts"
import { boardText, MOST_GROWN_BYTES, MOST_READ_BYTES, megabytes } from "./text.ts"
import { watchNearest } from "./watch.ts"

const HISTORY_FILE = "history.jsonl"
/** Locks lie here; never in git, whatever becomes of the folder's own `.gitignore`. */
const LOCK_FOLDER = ".locks"
const LOCK_PATIENCE_MS = 10_000
const IGNORE_ALL = "# The board of this project. Remove this file to keep the board in git.\n*\n"

/** What a change makes of the board: `archived` goes to history before the board is written. */
export type Written<Value> = {
  readonly state: BoardState
  readonly archived: readonly ArchivedTask[]
  readonly value: Value
}

export type StorePorts = {
  readonly folder: string
  readonly processes: Processes
  /** Finishes what is left of a move: these stand in history and on the board, and others have ended on the board. */
  readonly settle: (state: BoardState, archived: readonly ArchivedTask[]) => Omit<Written<unknown>, "value">
  readonly now: () => number
  readonly warn: (message: string) => void
  /** How long another process may hold the board, in ms. */
  readonly patienceMs?: number
}

type Loaded = BoardFile & { readonly signature: string }

const MISSING = "missing"

/**
 * The board's files. Knows nothing of tasks but how they are stored: read again when they have changed, written whole,
 * flushed and renamed, one process at a time. All that fails is a `BoardError` with the file and the reason.
 */
export class Store {
  readonly #ports: StorePorts
  readonly #file: string
  readonly #history: History
  readonly #lock: Lock
  readonly #lease: Lock
  #loaded?: Loaded
  /** More than any id that was ever read here: the file may be deleted, or its `nextId` lowered. */
  #nextId = 1
  #turn: Promise<unknown> = Promise.resolve()

  constructor(ports: StorePorts) {
    this.#ports = ports
    const { folder, processes, warn } = ports
    this.#file = join(folder, BOARD_FILE)
    const history = join(folder, HISTORY_FILE)
    this.#history = new History(history, (offset) =>
      warn(`${history}: the line at byte ${offset} cannot be read; skipped`),
    )
    this.#lock = new Lock(join(folder, LOCK_FOLDER), "board", processes)
    this.#lease = new Lock(join(folder, LOCK_FOLDER), "scheduler", processes)
  }

  /** The board as it stands in the file, whatever was left half done finished. */
  async read(): Promise<BoardState> {
    const { state } = await this.#guard(() => this.#load())
    return this.#leftovers(state) ? this.change(async (settled) => same(settled)) : state
  }

  /** The board as last read, without a look at the file. */
  get latest(): BoardState {
    return this.#loaded?.state ?? EMPTY
  }

  /** The archived task of this id. */
  find(id: string): Promise<ArchivedTask | undefined> {
    return this.#guard(async () => {
      await this.#history.refresh()
      return this.#history.find(id)
    })
  }

  newest(limit: number): Promise<readonly ArchivedTask[]> {
    return this.#guard(() => this.#history.newest(limit))
  }

  /**
   * Reads, changes and writes the board while nobody else does. Where `work` rejects, nothing is written but what was
   * left of an earlier move.
   */
  change<Value>(work: (state: BoardState) => Promise<Written<Value>>): Promise<Value> {
    const done = this.#turn.then(() => this.#guard(() => this.#locked(() => this.#change(work))))
    this.#turn = done.catch(() => {})
    return done
  }

  /** Whether there is a board to look after. */
  async exists(): Promise<boolean> {
    return (await stat(this.#file).catch(() => undefined)) !== undefined
  }

  /** The lease of the one process that runs tasks, where nobody living has it. */
  lease(): Promise<Claim | undefined> {
    return this.#guard(() => this.#lease.attempt())
  }

  isLeased(): Promise<boolean> {
    return this.#guard(() => this.#lease.isTaken())
  }

  /** Calls back when the files may have changed; while there is no folder, when it may have been made. */
  watch(changed: () => void): FSWatcher | undefined {
    return watchNearest(this.#ports.folder, changed)
  }

  async #change<Value>(work: (state: BoardState) => Promise<Written<Value>>): Promise<Value> {
    for (;;) {
      const loaded = await this.#load()
      const settled = await this.#settled(loaded.state)
      const numbered = this.#numbered(settled.state)
      let written: Written<Value>
      try {
        written = await work(numbered)
      } catch (error) {
        if (settled.state !== loaded.state) await this.#write(loaded, settled)
        throw error
      }
      const { state, archived, value } = written
      const next = { state, archived: [...settled.archived, ...archived] }
      if (state === numbered && settled.state === loaded.state) return value
      if (await this.#write(loaded, next)) return value
    }
  }

  /** History first. False, with nothing written, where somebody else's hand has changed the file meanwhile. */
  async #write(loaded: Loaded, next: { state: BoardState; archived: readonly ArchivedTask[] }): Promise<boolean> {
    await this.#prepareFolder()
    if ((await signatureOf(this.#file)) !== loaded.signature) return false
    const tick = next.state.tick ?? new Date(this.#ports.now()).toISOString()
    const file: BoardFile = { state: { ...next.state, tick }, others: loaded.others }
    const text = formatBoard(file)
    refuseIfFull(loaded, file, text)
    if (next.archived.length > 0) await this.#history.append(next.archived)
    // A link that somebody has made of it stays.
    const target = await realpath(this.#file).catch(ifMissing(this.#file))
    const temporary = `${target}.${process.pid}.tmp`
    await writeFlushed(temporary, text, (await stat(target).catch(ifMissing(undefined)))?.mode)
    // Of this very file: what a hand saves from now on is something else.
    const signature = await signatureOf(temporary)
    await rename(temporary, target)
    await flushFolder(dirname(target))
    await this.#history.refresh()
    this.#nextId = Math.max(this.#nextId, next.state.nextId)
    this.#loaded = { ...file, signature }
    return true
  }

  async #load(): Promise<Loaded> {
    const signature = await signatureOf(this.#file)
    await this.#history.refresh()
    if (this.#loaded?.signature === signature) return this.#loaded
    this.#loaded = signature === MISSING ? { state: EMPTY, others: {}, signature } : await this.#parse(signature)
    return this.#loaded
  }

  async #parse(signature: string): Promise<Loaded> {
    const [text, { mtime }] = await Promise.all([boardText(this.#file), stat(this.#file)])
    const parsed = typeof text === "string" ? parseBoard(text, mtime.toISOString()) : text
    if ("problem" in parsed)
      throw new BoardError(
        "unavailable",
        `The board cannot be read: ${this.#file}: ${parsed.problem}. It is left as it is; mend or move it, and call again.`,
      )
    this.#nextId = Math.max(this.#nextId, parsed.state.nextId)
    return { ...parsed, signature }
  }

  /** An id is never used twice, whatever became of the files. */
  #numbered(state: BoardState): BoardState {
    const least = Math.max(this.#nextId, this.#history.highestId + 1, highestId(state.tasks) + 1)
    return state.nextId >= least ? state : { ...state, nextId: least }
  }

  #leftovers(state: BoardState): boolean {
    return state.tasks.some(({ id, status }) => status === "done" || status === "canceled" || this.#history.has(id))
  }

  async #settled(state: BoardState): Promise<Omit<Written<unknown>, "value">> {
    if (!this.#leftovers(state)) return { state, archived: [] }
    const archived: ArchivedTask[] = []
    for (const { id } of state.tasks) {
      // A line that cannot be read is no archived task: the one on the board stays.
      const ended = this.#history.has(id) ? await this.#history.find(id) : undefined
      if (ended) archived.push(ended)
    }
    return this.#ports.settle(state, archived)
  }

  async #prepareFolder(): Promise<void> {
    const { folder } = this.#ports
    const ignore = join(folder, ".gitignore")
    // Made with the board, and not again: who removes it wants the board in git.
    if (!(await this.exists())) await writeFile(ignore, IGNORE_ALL, { flag: "wx" }).catch(() => {})
    for (const name of await readdir(folder))
      if (name.startsWith(`${BOARD_FILE}.`) && name.endsWith(".tmp")) await unlink(join(folder, name)).catch(() => {})
  }

  async #locked<Value>(work: () => Promise<Value>): Promise<Value> {
    await mkdir(join(this.#ports.folder, LOCK_FOLDER), { recursive: true })
    await writeFile(join(this.#ports.folder, LOCK_FOLDER, ".gitignore"), "*\n", { flag: "wx" }).catch(() => {})
    const { patienceMs = LOCK_PATIENCE_MS } = this.#ports
    const text = `The board is in use: another process held it for ${patienceMs / 1000} s. Call again.`
    return this.#lock.hold(patienceMs, () => new BoardError("unavailable", text), work)
  }

  async #guard<Value>(work: () => Promise<Value>): Promise<Value> {
    try {
      return await work()
    } catch (error) {
      if (error instanceof BoardError) throw error
      const text = messageOf(error)
      throw new BoardError("unavailable", `The board's files in ${this.#ports.folder} cannot be used: ${text}.`)
    }
  }
}

async function signatureOf(path: string): Promise<string> {
  const found = await stat(path, { bigint: true }).catch(ifMissing(undefined))
  return found ? `${found.ino}:${found.size}:${found.mtimeNs}` : MISSING
}

/** What takes off is always allowed, and so is what has to be remembered of tasks, as long as it can be read again. */
function refuseIfFull(before: BoardFile, after: BoardFile, text: string): void {
  const bytes = Buffer.byteLength(text)
  if (bytes <= MOST_GROWN_BYTES) return
  const grows = after.state.tasks !== before.state.tasks && bytes > Buffer.byteLength(formatBoard(before))
  if (!grows && bytes <= MOST_READ_BYTES) return
  throw new BoardError(
    "conflict",
    `The board is full: with this change its file would have ${megabytes(bytes)} MB, and at most ${megabytes(MOST_GROWN_BYTES)} are allowed. Complete or cancel tasks that are not needed any more, or shorten what stands in them.`,
  )
}

const same = (state: BoardState): Written<BoardState> => ({ state, archived: [], value: state })

/** `mode`: who may read it; absent, whoever the process lets. */
async function writeFlushed(path: string, text: string, mode?: number): Promise<void> {
  const file = await open(path, "w", mode)
  try {
    await file.writeFile(text)
    await file.sync()
  } finally {
    await file.close()
  }
}

/** So that the rename outlives a power cut; not all systems can. */
async function flushFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r").catch(() => undefined)
  await handle?.sync().catch(() => {})
  await handle?.close()
}
