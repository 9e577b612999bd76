import { type FileHandle, mkdir, open, realpath, stat } from "node:fs/promises"
import { dirname } from "node:path"
import { replaceFile } from "../../../lib/atomic-file.ts"
import { sliced } from "../../../lib/clock.ts"
import { ifMissing } from "../../../lib/lock.ts"
import { SerialQueue } from "../../../lib/promises.ts"
import { type ArchivedTask, IS_ID } from "../task.ts"
import { formatLine, parseLine } from "./files.ts"

const CHUNK_BYTES = 64 * 1024
const NEWLINE = 0x0a
/** Number of tasks that are copied at a time from one history to another. */
const LINES_AT_ONCE = 500
/** Number of unreadable lines that are reported. */
const MOST_REPORTED = 20
/** Start of a line in this plugin's format. */
const ID_FIRST = /^\{"id":"([1-9]\d{0,14})"/
/** Whether the text may be the beginning of such a line. Other text is somebody else's. */
const isBegun = (line: Buffer): boolean => {
  const begin = Buffer.from('{"id":"')
  return begin.subarray(0, line.length).equals(line.subarray(0, begin.length))
}
/** Number of bytes before the end of the last scan. If these bytes are unchanged, the file has only grown. */
const TAIL_BYTES = 64

/** Above this size the oldest tasks are dropped, down to half of it. */
const MOST_BYTES = 32 * 1024 * 1024
/** A longer line is not read, because reading takes OpenCode's only thread. Only somebody else can have written it. */
const MOST_LINE_BYTES = MOST_BYTES
/** Stands for the part of a too long line that was read. With it, the line cannot be parsed. */
const TOO_LONG = Buffer.from("-")

/** How far the file is indexed, and the state of the file at that time. */
type Scan = {
  readonly ino: number
  readonly size: number
  readonly mtimeMs: number
  readonly end: number
  readonly tail: string
}

/**
 * `history.jsonl`: one archived task per line, append-only except for its size limit. An index of ids in memory is
 * built by reading the whole file once; later only additions are read.
 */
export class History {
  readonly #path: string
  readonly #onBadLine: (offset: number) => void
  readonly #most: number
  /** Offset of each id's newest line, in the order of the lines. */
  #offsets = new Map<number, number>()
  readonly #badLines = new Set<number>()
  #scan?: Scan
  #highest = 0
  readonly #queue = new SerialQueue()

  /**
   * `onBadLine`: called once for each unreadable line, up to a number. Such a line is skipped and kept. `most`: size
   * limit in bytes.
   */
  constructor(path: string, onBadLine: (offset: number) => void, most = MOST_BYTES) {
    this.#path = path
    this.#most = most
    this.#onBadLine = onBadLine
  }

  /** Reads additions to the file; calls run in order. Must be called before `has`, `find` and `highestId`. */
  refresh(): Promise<void> {
    return this.#queue.take(() => this.#refresh())
  }

  async #refresh(): Promise<void> {
    const found = await stat(this.#path).catch(ifMissing(undefined))
    if (!found) {
      this.#offsets = new Map()
      this.#scan = undefined
      return
    }
    // Opening a pipe could block for ever.
    if (!found.isFile()) throw new Error(`${this.#path} is no file`)
    const { ino, size, mtimeMs } = found
    if (this.#scan?.ino === ino && this.#scan.size === size && this.#scan.mtimeMs === mtimeMs) return
    await this.#open(async (file) => {
      const known = (await this.#hasOnlyGrown(file, ino, size)) ? this.#scan : undefined
      const offsets = known ? this.#offsets : new Map<number, number>()
      const end = await this.#index(file, offsets, known?.end ?? 0, size)
      this.#offsets = offsets
      this.#scan = { ino, size, mtimeMs, end, tail: await tailBefore(file, end) }
    })
  }

  has(id: string): boolean {
    return this.#offsets.has(Number(id))
  }

  get highestId(): number {
    return this.#highest
  }

  /** The archived task, if its line is readable. */
  async find(id: string): Promise<ArchivedTask | undefined> {
    return (await this.findAll([id])).get(id)
  }

  /**
   * Archived tasks with these ids, by id. Ids without a readable archived task are left out, and the file is opened at
   * most once.
   */
  async findAll(ids: readonly string[]): Promise<ReadonlyMap<string, ArchivedTask>> {
    const found = new Map<string, ArchivedTask>()
    const known = ids.filter((id) => IS_ID.test(id) && this.#offsets.has(Number(id)))
    if (known.length === 0) return found
    await this.#open(async (file) => {
      const pause = sliced()
      for (const id of known) {
        await pause()
        const offset = this.#offsets.get(Number(id)) as number
        const task = parseLine(await lineAt(file, offset))
        if (task?.id === id) found.set(id, task)
        else {
          this.#bad(offset)
          this.#offsets.delete(Number(id))
        }
      }
    })
    return found
  }

  /** Appends the tasks of another history that are missing in this one. */
  async takeFrom(other: History): Promise<void> {
    const missing = [...other.#offsets.keys()].map(String).filter((id) => !this.has(id))
    for (let at = 0; at < missing.length; at += LINES_AT_ONCE) {
      const some = await other.findAll(missing.slice(at, at + LINES_AT_ONCE))
      if (some.size > 0) await this.append([...some.values()])
    }
    await this.refresh()
  }

  /** Archived tasks, newest first. Reads no more of the file than needed. */
  async newest(limit: number): Promise<readonly ArchivedTask[]> {
    const ids = [...this.#offsets.keys()].reverse().map(String)
    const tasks: ArchivedTask[] = []
    while (ids.length > 0 && tasks.length < limit)
      tasks.push(...(await this.findAll(ids.splice(0, limit - tasks.length))).values())
    return tasks
  }

  /** Appends tasks and flushes the file. The caller must hold the board's lock. */
  async append(tasks: readonly ArchivedTask[]): Promise<void> {
    await mkdir(dirname(this.#path), { recursive: true, mode: 0o700 })
    const file = await open(this.#path, "a+")
    try {
      const { size } = await file.stat()
      const { start, line } = await lastLine(file, size)
      // An interrupted write left an incomplete last line. The line is cut off, because its task is still on the board.
      const torn = start < size && isBegun(line) && parseLine(line.toString()) === undefined
      if (torn) await file.truncate(start)
      const text = tasks.map(formatLine).join("")
      await file.appendFile(start < size && !torn ? `\n${text}` : text)
      await file.sync()
      await this.#shorten(file)
    } finally {
      await file.close()
    }
  }

  /** Replaces a file that is too large by its newest lines. */
  async #shorten(file: FileHandle): Promise<void> {
    const { size, mode } = await file.stat()
    if (size <= this.#most) return
    const target = await realpath(this.#path)
    const start = await lineAfter(file, size - Math.floor(this.#most / 2))
    await replaceFile(target, chunksOf(file, start, size), { mode, flush: true })
  }

  /** Indexes complete lines from `start` on. Returns the offset at which the last of these lines ends. */
  async #index(file: FileHandle, offsets: Map<number, number>, start: number, size: number): Promise<number> {
    let begun: Buffer[] = []
    let lineStart = start
    const pause = sliced()
    // One buffer for all chunks: collecting as many as a file has would take OpenCode's thread.
    const buffer = Buffer.alloc(CHUNK_BYTES)
    for (let at = start; at < size; at += CHUNK_BYTES) {
      const chunk = await readAt(file, at, Math.min(CHUNK_BYTES, size - at), buffer)
      let from = 0
      for (let to = chunk.indexOf(NEWLINE); to >= 0; to = chunk.indexOf(NEWLINE, from)) {
        const end = chunk.subarray(from, to)
        if (this.#see(offsets, begun.length === 0 ? end : Buffer.concat([...begun, end]), lineStart)) await pause()
        lineStart = at + to + 1
        from = to + 1
        begun = []
      }
      if (from < chunk.length) begun = bounded([...begun, Buffer.from(chunk.subarray(from))])
    }
    // A last line without a newline is indexed if it can be parsed, because a user may have edited the file.
    const rest = joined(begun)
    if (rest.length > 0 && parseLine(rest.toString())) this.#see(offsets, rest, lineStart)
    return lineStart
  }

  /** Indexes a line. Returns whether the line had to be parsed, which takes time. */
  #see(offsets: Map<number, number>, line: Buffer, offset: number): boolean {
    if (line.length === 0) return false
    const quick = ID_FIRST.exec(line.toString("latin1", 0, 24))?.[1]
    const id = quick ?? parseLine(line.toString())?.id
    if (id === undefined) this.#bad(offset)
    else {
      offsets.delete(Number(id))
      offsets.set(Number(id), offset)
      this.#highest = Math.max(this.#highest, Number(id))
    }
    return quick === undefined
  }

  #bad(offset: number): void {
    if (this.#badLines.has(offset) || this.#badLines.size >= MOST_REPORTED) return
    this.#badLines.add(offset)
    this.#onBadLine(offset)
  }

  async #hasOnlyGrown(file: FileHandle, ino: number, size: number): Promise<boolean> {
    const scan = this.#scan
    if (!scan || scan.ino !== ino || size <= scan.size) return false
    return (await tailBefore(file, scan.end)) === scan.tail
  }

  async #open<Value>(work: (file: FileHandle) => Promise<Value>): Promise<Value | undefined> {
    const file = await open(this.#path, "r").catch(ifMissing(undefined))
    if (!file) return undefined
    try {
      return await work(file)
    } finally {
      await file.close()
    }
  }
}

/** Keeps the chunks of a line up to its greatest length. */
function bounded(pieces: Buffer[]): Buffer[] {
  return pieces.length * CHUNK_BYTES > MOST_LINE_BYTES ? [TOO_LONG] : pieces
}

/** Joins a line's chunks once, however long it is. */
const joined = (pieces: readonly Buffer[]): Buffer =>
  (pieces.length === 1 ? pieces[0] : undefined) ?? Buffer.concat(pieces)

async function readAt(
  file: FileHandle,
  position: number,
  length: number,
  buffer = Buffer.alloc(length),
): Promise<Buffer> {
  const { bytesRead } = await file.read(buffer, 0, length, position)
  return buffer.subarray(0, bytesRead)
}

async function tailBefore(file: FileHandle, end: number): Promise<string> {
  const start = Math.max(0, end - TAIL_BYTES)
  return (await readAt(file, start, end - start)).toString("latin1")
}

/** Start of the first line after an offset. */
async function lineAfter(file: FileHandle, from: number): Promise<number> {
  for (let at = from; ; at += CHUNK_BYTES) {
    const chunk = await readAt(file, at, CHUNK_BYTES)
    const end = chunk.indexOf(NEWLINE)
    if (end >= 0) return at + end + 1
    if (chunk.length < CHUNK_BYTES) return at + chunk.length
  }
}

async function lineAt(file: FileHandle, offset: number): Promise<string> {
  const pieces: Buffer[] = []
  for (let at = offset; at - offset <= MOST_LINE_BYTES; at += CHUNK_BYTES) {
    const chunk = await readAt(file, at, CHUNK_BYTES)
    const end = chunk.indexOf(NEWLINE)
    pieces.push(end < 0 ? chunk : chunk.subarray(0, end))
    if (end >= 0 || chunk.length < CHUNK_BYTES) return joined(pieces).toString()
  }
  return TOO_LONG.toString()
}

async function* chunksOf(file: FileHandle, start: number, end: number): AsyncGenerator<Buffer> {
  for (let at = start; at < end; at += CHUNK_BYTES) yield await readAt(file, at, CHUNK_BYTES)
}

/** Text after the last newline, and where it starts. */
async function lastLine(file: FileHandle, size: number): Promise<{ readonly start: number; readonly line: Buffer }> {
  let pieces: Buffer[] = []
  for (let end = size; end > 0; end -= CHUNK_BYTES) {
    const from = Math.max(0, end - CHUNK_BYTES)
    const chunk = await readAt(file, from, end - from)
    const newline = chunk.lastIndexOf(NEWLINE)
    pieces = bounded([chunk.subarray(newline + 1), ...pieces])
    if (newline >= 0) return { start: from + newline + 1, line: joined(pieces) }
  }
  return { start: 0, line: joined(pieces) }
}
