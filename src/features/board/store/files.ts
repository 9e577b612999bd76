import { renameSync, statSync } from "node:fs"
import { mkdir, readdir, readFile, realpath, stat, unlink, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { draft, isDraftOf } from "../../../lib/atomic-file.ts"
import { ifMissing } from "../../../lib/lock.ts"
import type { Signer } from "../../../runtime/record/signature.ts"
import { believe } from "../rules/verify.ts"
import { BoardError } from "../service.ts"
import { type BoardState, EMPTY } from "../state.ts"
import { BOARD_FILE, formatBoard, parseBoard, type Unreadable } from "./format.ts"
import { type Archive, digestOf, flushFolder, Keep, MISSING, NO_TEXT, signatureOf } from "./keep.ts"

const IGNORE_ALL = "# The board of this project. Remove this file to keep the board in git.\n*\n"

export type FilesPorts = {
  /** In the project: what people see and edit. */
  readonly folder: string
  /** In OpenCode's state folder: what is believed, and the copy of it all. */
  readonly state: string
  readonly signer: Signer
  readonly warn: (message: string) => void
}

/** The board as read, and the files that it was read from. `cut`: a write of ours was cut off and is to be finished. */
export type Loaded = Omit<Archive, "before"> & {
  readonly signature: string
  readonly kept: string
  readonly cut: boolean
}

/** `again`: a hand has changed the file meanwhile, and nothing was written. `half`: history was, by then. */
export type Outcome = "written" | "again" | "half"

/**
 * The two files that a board is stored in. `tasks.json` lies in the project, where anybody may write it; what this
 * installation believes is kept apart from it (`Keep`) and written first. A file that is older than that is written
 * again; one that somebody else has written is compared with it.
 */
export class BoardFiles {
  readonly #folder: string
  readonly #file: string
  readonly #keep: Keep
  #loaded?: Loaded

  constructor({ folder, state, signer, warn }: FilesPorts) {
    this.#folder = folder
    this.#file = join(folder, BOARD_FILE)
    this.#keep = new Keep(state, folder, signer, warn)
  }

  /** Where this installation keeps what is its own. */
  get keptIn(): string {
    return this.#keep.folder
  }

  /** The board as last read, without a look at the files. */
  get latest(): BoardState {
    return this.#loaded?.state ?? EMPTY
  }

  /** Whether there is a board to look after. */
  async exists(): Promise<boolean> {
    return (await stat(this.#file).catch(() => undefined)) !== undefined
  }

  async load(): Promise<Loaded> {
    const [signature, kept] = await Promise.all([signatureOf(this.#file), this.#keep.signature()])
    if (this.#loaded?.signature === signature && this.#loaded.kept === kept) return this.#loaded
    this.#loaded = { ...(await this.#read(signature)), signature, kept }
    return this.#loaded
  }

  /** Writes what is believed, and the project's file where a task has changed. `archive` is done before. */
  async write(loaded: Loaded, state: BoardState, archive: () => Promise<boolean>): Promise<Outcome> {
    const { others } = loaded
    const isShown = loaded.cut || state.tasks !== loaded.state.tasks
    const text = isShown ? formatBoard({ ...state, others }) : undefined
    if (text !== undefined) refuseIfFull(loaded, text)
    if ((await signatureOf(this.#file)) !== loaded.signature) return "again"
    const hasArchived = await archive()
    // A link that somebody has made of it stays.
    const target = await realpath(this.#file).catch(ifMissing(this.#file))
    const kept: Archive = {
      state,
      others,
      text: text === undefined ? loaded.text : digestOf(text),
      before: loaded.text,
    }
    const ours = await this.#keep.aside(kept)
    const theirs = text === undefined ? undefined : await this.#aside(target, text)
    const signature = theirs === undefined ? loaded.signature : await signatureOf(theirs)
    // From this look to the last rename nothing is awaited, so that next to nothing that a hand saves can be lost.
    if (signatureNow(this.#file) !== loaded.signature) {
      for (const file of [ours, theirs]) if (file !== undefined) await unlink(file)
      return hasArchived ? "half" : "again"
    }
    renameSync(ours, this.#keep.file)
    if (theirs !== undefined) renameSync(theirs, target)
    await Promise.all([flushFolder(this.#keep.folder), theirs !== undefined && flushFolder(dirname(target))])
    this.#loaded = { ...kept, signature, kept: await this.#keep.signature(), cut: false }
    return "written"
  }

  /** Makes the folder in the project, and clears it of what killed processes have left. */
  async prepare(): Promise<void> {
    await mkdir(this.#folder, { recursive: true })
    // Made with the board, and not again: who removes it wants the board in git.
    if (!(await this.exists()))
      await writeFile(join(this.#folder, ".gitignore"), IGNORE_ALL, { flag: "wx" }).catch(() => {})
    for (const name of await readdir(this.#folder))
      if (isDraftOf(BOARD_FILE, name)) await unlink(join(this.#folder, name)).catch(() => {})
  }

  async #read(signature: string): Promise<Pick<Loaded, "state" | "others" | "text" | "cut">> {
    const kept = await this.#keep.read()
    if (signature === MISSING)
      return { state: believe(undefined, kept?.state), others: kept?.others ?? {}, text: NO_TEXT, cut: false }
    const [given, { mtime }] = await Promise.all([boardText(this.#file), stat(this.#file)])
    const text = typeof given === "string" ? digestOf(given) : undefined
    if (kept && text !== undefined && [kept.text, kept.before].includes(text))
      return { state: kept.state, others: kept.others, text, cut: text !== kept.text }
    const parsed = typeof given === "string" ? await parseBoard(given, mtime.toISOString()) : given
    if (text === undefined || "problem" in parsed)
      throw new BoardError(
        "unavailable",
        `The board cannot be read: ${this.#file}: ${"problem" in parsed && parsed.problem}. It is left as it is; mend or move it, and call again.`,
      )
    return { state: believe(parsed, kept?.state), others: parsed.others, text, cut: false }
  }

  async #aside(target: string, text: string): Promise<string> {
    const { mode = 0o666 } = (await stat(target).catch(ifMissing(undefined))) ?? {}
    return draft(target, text, { mode, flush: true })
  }
}

/** `signatureOf` without a turn of the event loop. */
function signatureNow(path: string): string {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false })
  return found ? `${found.ino}:${found.size}:${found.mtimeNs}` : MISSING
}

/** What takes off is always allowed. */
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

/** To read a file takes the host's one thread: a longer one is left alone. */
const MOST_READ_BYTES = 16 * 1024 * 1024
/** A board grows no further by itself: what has to be remembered of its tasks has room until it cannot be read. */
const MOST_GROWN_BYTES = MOST_READ_BYTES / 2

/** The text of `tasks.json`. Rejects where there is none. */
async function boardText(path: string): Promise<string | Unreadable> {
  const found = await stat(path)
  // A device or a pipe may have no end.
  if (!found.isFile()) return { problem: "it is no file" }
  if (found.size > MOST_READ_BYTES)
    return { problem: `it has ${megabytes(found.size)} MB; at most ${megabytes(MOST_READ_BYTES)} are read` }
  return readFile(path, "utf8")
}

const megabytes = (bytes: number): number => Math.ceil(bytes / 1024 / 1024)
