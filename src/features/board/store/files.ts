import { isUtf8 } from "node:buffer"
import { createHash } from "node:crypto"
import { renameSync, statSync } from "node:fs"
import { lstat, mkdir, readdir, readFile, readlink, realpath, stat, unlink } from "node:fs/promises"
import { basename, dirname, isAbsolute, join, relative, resolve } from "node:path"
import { z } from "zod"
import { flush, isDraftOf, writeDraft } from "../../../lib/atomic-file.ts"
import { sliced } from "../../../lib/clock.ts"
import { ifMissing } from "../../../lib/lock.ts"
import { SerialQueue } from "../../../lib/promises.ts"
import { keepOutOfGit } from "../../../lib/repository.ts"
import type { Signer } from "../../../runtime/record/identity.ts"
import { verifyBoard } from "../rules/verify.ts"
import { BoardError } from "../service.ts"
import { type BoardState, EMPTY } from "../state.ts"
import { type ArchivedTask, archivedTaskSchema, type BoardTask, MOST_ID, taskSchema } from "../task.ts"

export const BOARD_FILE = "tasks.json"
const FORMAT_VERSION = 1
/** Most reads in a row of a board that others are writing. */
const MOST_READS = 3

const FileSchema = z.looseObject({
  version: z.unknown().refine((version) => typeof version !== "number" || version <= FORMAT_VERSION, {
    error: ({ input }) => `a newer version wrote the file (its format is ${input}, this one knows ${FORMAT_VERSION})`,
  }),
  tasks: z.array(z.unknown()),
  nextId: z.int().max(MOST_ID).catch(1),
})

/** Content of `tasks.json`, with unknown fields beside it. */
export type BoardFile = Pick<BoardState, "tasks" | "nextId"> & { readonly others: Readonly<Record<string, unknown>> }

export type Unreadable = { readonly problem: string }

/**
 * Parses the text of `tasks.json`, in slices because OpenCode has one thread; a fault is returned as one line.
 * `writtenAt`: time of the file, used for tasks without times.
 */
export async function parseBoard(text: string, writtenAt: string, pause = sliced()): Promise<BoardFile | Unreadable> {
  // Some editors write a byte order mark.
  const json = parseJson(text.replace(/^\uFEFF/, ""))
  if (json === undefined) return { problem: text.trim() === "" ? "it is empty" : "it is not valid JSON" }
  const parsed = FileSchema.safeParse(json)
  if (!parsed.success) return { problem: problemOf(parsed.error) }
  // Earlier versions stored run states in the field `runtime`. The field is ignored, because anybody can write this
  // file.
  const { tasks: given, nextId, runtime: _remembered, ...others } = parsed.data
  if (isDeeper(others, MOST_DEPTH)) return { problem: TOO_DEEP }
  const tasks: BoardTask[] = []
  for (const [index, value] of given.entries()) {
    await pause()
    if (isDeeper(value, MOST_DEPTH)) return { problem: `tasks[${index}]: ${TOO_DEEP}` }
    const task = taskSchema.safeParse(value)
    if (!task.success) return { problem: problemOf(task.error, ["tasks", index]) }
    tasks.push(withTimes(task.data, writtenAt))
  }
  const ids = new Set<string>()
  for (const { id } of tasks) {
    if (ids.has(id)) return { problem: `two of its tasks have the id ${id}` }
    ids.add(id)
  }
  return { tasks, nextId: Math.max(nextId, highestId(tasks) + 1), others }
}

/**
 * Greatest depth of values within values. Writing JSON is recursive, so a file that is much deeper could be read and
 * never be written or sent to the page.
 */
const MOST_DEPTH = 100
const TOO_DEEP = `it has values nested more than ${MOST_DEPTH} deep`

const isDeeper = (value: unknown, most: number): boolean =>
  typeof value === "object" &&
  value !== null &&
  (most === 0 || Object.values(value).some((each) => isDeeper(each, most - 1)))

const withTimes = (task: BoardTask, writtenAt: string): BoardTask => ({
  ...task,
  createdAt: task.createdAt || writtenAt,
  updatedAt: task.updatedAt || writtenAt,
})

export const formatBoard = ({ tasks, nextId, others }: BoardFile): string =>
  `${JSON.stringify({ ...others, tasks, nextId }, null, 2)}\n`

/**
 * Parses a line of history; undefined for an unreadable line. A line without an object is not parsed, because errors
 * are slow: a file may have a million such lines.
 */
export function parseLine(line: string): ArchivedTask | undefined {
  const json = /^\s*\{/.test(line) ? parseJson(line) : undefined
  return json === undefined || isDeeper(json, MOST_DEPTH) ? undefined : archivedTaskSchema.safeParse(json).data
}

/** Writes a task as a line of history. The id comes first, so that the index needs only the beginning of the line. */
export const formatLine = ({ id, ...task }: ArchivedTask): string => `${JSON.stringify({ id, ...task })}\n`

/** Highest id in use, or named by a step. */
export function highestId(tasks: readonly BoardTask[]): number {
  let highest = 0
  for (const { id, steps } of tasks) {
    highest = Math.max(highest, Number(id))
    for (const { taskId = "0" } of steps) highest = Math.max(highest, Number(taskId))
  }
  return highest
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function problemOf({ issues: [issue] }: z.ZodError, above: readonly PropertyKey[] = []): string {
  const path = [...above, ...(issue?.path ?? [])]
  const where = path.map((key) => (typeof key === "number" ? `[${key}]` : `.${String(key)}`)).join("")
  return `${where.replace(/^\./, "") || "its content"}: ${issue?.message ?? "not valid"}`
}

/** Digest of a missing `tasks.json`. */
const NO_TEXT = ""

export const digestOf = (text: string): string => createHash("sha256").update(text).digest("base64url")

/** This installation's copy of a board. */
type TrustedCopy = {
  readonly state: BoardState
  /** Unknown fields of `tasks.json`. */
  readonly others: Readonly<Record<string, unknown>>
  /**
   * `text`: digest of the `tasks.json` that belongs to this copy. `before`: digest of the previous version, which is
   * still there if the write was interrupted.
   */
  readonly text: string
  readonly before: string
}

const FILE = "board.json"
const TRUSTED_VERSION = 1

/**
 * Trusted copy of the board in OpenCode's state folder, signed with the installation's key. A copy without a valid
 * signature, or for another folder, is ignored.
 */
export class TrustedFile {
  readonly folder: string
  readonly file: string
  readonly #board: string
  readonly #signer: Signer
  readonly #warn: (message: string) => void

  constructor(state: string, board: string, signer: Signer, warn: (message: string) => void) {
    this.#board = resolve(board)
    this.folder = join(state, `board-${createHash("sha256").update(this.#board).digest("hex").slice(0, 16)}`)
    this.file = join(this.folder, FILE)
    this.#signer = signer
    this.#warn = warn
  }

  async read(): Promise<TrustedCopy | undefined> {
    const text = await readFile(this.file, "utf8").catch(ifMissing(undefined))
    if (text === undefined) return undefined
    const pause = sliced()
    const end = text.indexOf("\n")
    const body = text.slice(end + 1)
    const isSigned = this.#signer.isSigned(body, text.slice(0, end))
    await pause()
    const known = isSigned ? parseJson(body) : undefined
    const { version, board, ...trusted } = (known ?? {}) as { version?: number; board?: string } & TrustedCopy
    if (version === TRUSTED_VERSION && board === this.#board) return trusted
    this.#warn(`${this.file} was not written by this installation: every task waits for a person.`)
    return undefined
  }

  /**
   * Writes a new copy to a temporary file and returns its path. The caller moves the file into place with `renameSync`.
   */
  async aside(copy: TrustedCopy): Promise<string> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 })
    const pause = sliced()
    const body = JSON.stringify({ version: TRUSTED_VERSION, board: this.#board, ...copy })
    await pause()
    return writeDraft(this.file, `${this.#signer.sign(body)}\n${body}`, { flush: true })
  }
}

const MISSING = "missing"

/** Text from a file's inode, size and time: it changes whenever the file changes. */
function signatureOf(path: string): string {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false })
  return found ? `${found.ino}:${found.size}:${found.mtimeNs}` : MISSING
}

const IGNORE_ALL = "# The board of this project. Remove this file to keep the board in git.\n*\n"

export type FilesPorts = {
  /** The board's folder in the project, whose files users can see and edit. */
  readonly folder: string
  /** OpenCode's state folder. The trusted copy of the board lies in a subfolder. */
  readonly state: string
  readonly signer: Signer
  readonly warn: (message: string) => void
}

/** Board as it was read, with the signatures of both files. `cut`: an interrupted write must be completed. */
export type Loaded = Omit<TrustedCopy, "before"> & {
  readonly signature: string
  readonly trustedSignature: string
  readonly cut: boolean
}

/** `again`: the file was edited meanwhile and nothing was written. `half`: only history was written. */
export type WriteResult = "written" | "again" | "half"

/**
 * Reads and writes a board's two files: `tasks.json` in the project, which anybody may write, and the trusted copy
 * (`TrustedFile`), which is written first. An older project file is rewritten, and an edited one is compared with the
 * copy.
 */
export class BoardFiles {
  readonly #folder: string
  readonly #file: string
  readonly #trusted: TrustedFile
  #loaded?: Loaded
  readonly #reads = new SerialQueue()

  constructor({ folder, state, signer, warn }: FilesPorts) {
    this.#folder = folder
    this.#file = join(folder, BOARD_FILE)
    this.#trusted = new TrustedFile(state, folder, signer, warn)
  }

  /** Folder in which this installation keeps its own files of the board. */
  get keptIn(): string {
    return this.#trusted.folder
  }

  /** Last read state, without reading the files. */
  get latest(): BoardState {
    return this.#loaded?.state ?? EMPTY
  }

  async exists(): Promise<boolean> {
    return (await stat(this.#file).catch(() => undefined)) !== undefined
  }

  /** Reads what has changed. Calls run in order, so that one read is enough for all who hear of a change. */
  load(): Promise<Loaded> {
    return this.#reads.take(() => this.#load())
  }

  /** Reads anew where another process has written meanwhile: the two files would not belong together. */
  async #load(attempt = 1): Promise<Loaded> {
    const [signature, trustedSignature] = [signatureOf(this.#file), signatureOf(this.#trusted.file)]
    const known = this.#loaded
    if (known?.signature === signature && known.trustedSignature === trustedSignature) return known
    this.#loaded = { ...(await this.#read(signature)), signature, trustedSignature }
    return attempt < MOST_READS ? this.#load(attempt + 1) : this.#loaded
  }

  /**
   * Writes the trusted copy, and the project's file where a task changed. `archive` is called first and returns whether
   * it has written to history.
   */
  async write(loaded: Loaded, state: BoardState, archive: () => Promise<boolean>): Promise<WriteResult> {
    const { others } = loaded
    const isShown = loaded.cut || state.tasks !== loaded.state.tasks
    const text = isShown ? formatBoard({ ...state, others }) : undefined
    if (text !== undefined) refuseIfFull(loaded, text)
    if (signatureOf(this.#file) !== loaded.signature) return "again"
    const hasArchived = await archive()
    // If a user has replaced the file by a link, the link stays and its target is written.
    const target = await realpath(this.#file).catch(ifMissing(this.#file))
    const copy: TrustedCopy = {
      state,
      others,
      text: text === undefined ? loaded.text : digestOf(text),
      before: loaded.text,
    }
    const ours = await this.#trusted.aside(copy)
    const theirs = text === undefined ? undefined : await this.#aside(target, text)
    const signature = theirs === undefined ? loaded.signature : signatureOf(theirs)
    // Nothing is awaited from this check to the last rename, so that almost no edit can be lost.
    if (signatureOf(this.#file) !== loaded.signature) {
      for (const file of [ours, theirs]) if (file !== undefined) await unlink(file)
      return hasArchived ? "half" : "again"
    }
    renameSync(ours, this.#trusted.file)
    if (theirs !== undefined) renameSync(theirs, target)
    await Promise.all([flush(this.#trusted.folder), theirs !== undefined && flush(dirname(target))])
    this.#loaded = { ...copy, signature, trustedSignature: signatureOf(this.#trusted.file), cut: false }
    return "written"
  }

  /** Creates the project folder and removes drafts that crashes and failed writes have left. */
  async prepare(): Promise<void> {
    await mkdir(this.#folder, { recursive: true })
    // The `.gitignore` is created only together with the board: a user who removes it wants the board in git.
    if (!(await this.exists())) await keepOutOfGit(this.#folder, IGNORE_ALL)
    for (const file of [this.#file, this.#trusted.file])
      for (const name of await readdir(dirname(file)).catch(ifMissing<string[]>([])))
        if (isDraftOf(basename(file), name)) await unlink(join(dirname(file), name)).catch(() => {})
  }

  async #read(signature: string): Promise<Pick<Loaded, "state" | "others" | "text" | "cut">> {
    const copy = await this.#trusted.read()
    if (signature === MISSING)
      return { state: await verifyBoard(undefined, copy?.state), others: copy?.others ?? {}, text: NO_TEXT, cut: false }
    const [given, { mtime }] = await Promise.all([boardText(this.#file), stat(this.#file)])
    // One for all steps, whose slices would otherwise add up.
    const pause = sliced()
    const text = typeof given === "string" ? digestOf(given) : undefined
    if (copy && text !== undefined && [copy.text, copy.before].includes(text))
      return { state: copy.state, others: copy.others, text, cut: text !== copy.text }
    const parsed = typeof given === "string" ? await parseBoard(given, mtime.toISOString(), pause) : given
    if (text === undefined || "problem" in parsed)
      throw new BoardError(
        "unavailable",
        `The board cannot be read: ${this.#file}: ${"problem" in parsed && parsed.problem}. It is left as it is. Correct the file or move it away, and call again.`,
      )
    return { state: await verifyBoard(parsed, copy?.state, pause), others: parsed.others, text, cut: false }
  }

  async #aside(target: string, text: string): Promise<string> {
    const { mode = 0o666 } = (await stat(target).catch(ifMissing(undefined))) ?? {}
    return writeDraft(target, text, { mode, flush: true })
  }
}

/**
 * Refuses a change that makes the file grow above `MOST_GROWN_BYTES`. A change that does not make the file grow is
 * allowed up to `MOST_READ_BYTES`.
 */
function refuseIfFull({ state, others }: Loaded, text: string): void {
  const bytes = Buffer.byteLength(text)
  if (bytes <= MOST_GROWN_BYTES) return
  const grows = bytes > Buffer.byteLength(formatBoard({ ...state, others }))
  if (!grows && bytes <= MOST_READ_BYTES) return
  throw new BoardError(
    "conflict",
    `The board is full: with this change its file would have ${megabytes(bytes)} MB, and at most ${megabytes(MOST_GROWN_BYTES)} are allowed. Complete or cancel tasks that are not needed any more, or shorten what stands in them.`,
  )
}

/** A larger file is not read, because reading takes OpenCode's only thread. */
const MOST_READ_BYTES = 16 * 1024 * 1024
/** A change that makes the file grow above this size is refused, so that the file stays small enough to be read. */
const MOST_GROWN_BYTES = MOST_READ_BYTES / 2

/** The text of `tasks.json`. Rejects where there is none. */
async function boardText(path: string): Promise<string | Unreadable> {
  const found = await stat(path)
  // Reading a device or a pipe may never end.
  if (!found.isFile()) return { problem: "it is no file" }
  if (found.size > MOST_READ_BYTES)
    return { problem: `it has ${megabytes(found.size)} MB; at most ${megabytes(MOST_READ_BYTES)} are read` }
  const bytes = await readFile(path)
  // The next write would destroy what is replaced while it is decoded.
  return isUtf8(bytes) ? bytes.toString() : { problem: "it is not valid UTF-8" }
}

const megabytes = (bytes: number): number => Math.ceil(bytes / 1024 / 1024)

/**
 * Rejects where a link leads the board out of its project or stands in a file's place, since a cloned repository may
 * contain links to any file of the user. A folder configured outside the project is the user's own choice.
 */
export async function refuseOutside(project: string, folder: string, names: readonly string[]): Promise<void> {
  if (!isWithin(project, folder)) return
  const home = await realOf(folder)
  if (!isWithin(await realOf(project), home)) throw refused("leave the project", folder, home)
  for (const name of names) {
    const real = await realOf(join(folder, name))
    if (real !== join(home, name)) throw refused("be links", join(folder, name), real)
  }
}

const refused = (what: string, path: string, real: string): BoardError =>
  new BoardError(
    "unavailable",
    `The board's files may not ${what}, and a link leads ${path} to ${real}. Remove the link; or name a folder in the option "board.dir" of your own configuration.`,
  )

/** Real path; for a missing entry, the path it would have. */
async function realOf(path: string): Promise<string> {
  try {
    return await realpath(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT" || dirname(path) === path) throw error
    const isLink = (await lstat(path).catch(() => undefined))?.isSymbolicLink()
    if (isLink) return realOf(resolve(dirname(path), await readlink(path)))
    return join(await realOf(dirname(path)), basename(path))
  }
}

function isWithin(folder: string, path: string): boolean {
  const relativePath = relative(folder, path)
  return !isAbsolute(relativePath) && relativePath.split(/[/\\]/)[0] !== ".."
}
