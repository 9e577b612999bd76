import { randomBytes } from "node:crypto"
import {
  closeSync,
  constants,
  fstatSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs"
import { type FileHandle, open, readdir, rename, rm, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { ifMissing } from "./lock.ts"

/**
 * Writes files whole: the text goes into a draft beside the file, with a name that nobody can guess, and the draft is
 * then renamed. Links at both paths are not followed, and a reader never sees half a file.
 */

/**
 * `mode`: without it, only the user can read the file. `flush`: the text is on the disk before the write counts as
 * done.
 */
type WriteOptions = { readonly mode?: number; readonly flush?: boolean }

const ENDING = ".tmp"
const asideOf = (path: string): string => `${path}.${randomBytes(6).toString("hex")}${ENDING}`
const settings = ({ mode = 0o600 }: WriteOptions) => ({ mode, flag: "wx" })

/** Whether `name` is a draft of this file in the same folder. A killed process leaves its draft behind. */
export const isDraftOf = (file: string, name: string): boolean => name.startsWith(`${file}.`) && name.endsWith(ENDING)

/** Writes a draft beside `path`, which the caller renames. Returns the draft's name. */
export async function writeDraft(
  path: string,
  content: string | AsyncIterable<Uint8Array>,
  options: WriteOptions = {},
): Promise<string> {
  const aside = asideOf(path)
  try {
    await writeFile(aside, content, settings(options))
    // Not every runtime knows the option `flush` of `writeFile`.
    if (options.flush) await flush(aside)
    return aside
  } catch (error) {
    await rm(aside, { force: true })
    throw error
  }
}

/** Writes a file or a folder through to the disk, so that it survives a power cut. Not all systems can do this. */
export async function flush(path: string): Promise<void> {
  const handle = await open(path, "r").catch(() => undefined)
  await handle?.sync().catch(() => {})
  await handle?.close()
}

/** Like `writeDraft`. Creates a missing folder, which only the user can read. */
function draftSync(path: string, text: string, options: WriteOptions = {}): string {
  const aside = asideOf(path)
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  try {
    writeFileSync(aside, text, { ...settings(options), flush: options.flush })
    return aside
  } catch (error) {
    rmSync(aside, { force: true })
    throw error
  }
}

export async function replaceFile(
  path: string,
  content: string | AsyncIterable<Uint8Array>,
  options?: WriteOptions,
): Promise<void> {
  const aside = await writeDraft(path, content, options)
  try {
    await rename(aside, path)
  } catch (error) {
    await rm(aside, { force: true })
    throw error
  }
}

export function replaceFileSync(path: string, text: string): void {
  const aside = draftSync(path, text)
  try {
    renameSync(aside, path)
  } catch (error) {
    rmSync(aside, { force: true })
    throw error
  }
}

/**
 * Creates the file; if several processes do this at once, the first wins. A file that is not `isUsable` is replaced.
 */
export function createOnce(path: string, text: string, isUsable: () => boolean): void {
  const aside = draftSync(path, text, { flush: true })
  try {
    linkSync(aside, path)
  } catch {
    if (!isUsable()) renameSync(aside, path)
  } finally {
    rmSync(aside, { force: true })
  }
}

/**
 * Reads and appends to files in folders where other users may write, too. A link may lead anywhere and opening a pipe
 * may wait for ever, so links are not followed and pipes not waited for.
 */

const { O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants

/** Opens a file. Rejects where the path is missing or is no plain file. */
async function openPlain(path: string, flags: number, mode?: number): Promise<FileHandle> {
  const file = await open(path, flags | O_NOFOLLOW | O_NONBLOCK, mode)
  const found = await file.stat()
  if (found.isFile()) return file
  await file.close()
  throw new NoFile()
}

/** Error for a path that leads to a folder, a pipe or a device instead of a file. */
export class NoFile extends Error {
  override readonly name = "NoFile"
  constructor() {
    super("it is no file")
  }
}

/** The file's content. A file of more than `most` bytes makes the promise reject with the error of `tooLong`. */
export async function readPlain(path: string, most: number, tooLong: (bytes: number) => Error): Promise<Buffer> {
  const file = await openPlain(path, O_RDONLY)
  try {
    const { size } = await file.stat()
    if (size > most) throw tooLong(size)
    return await file.readFile()
  } finally {
    await file.close()
  }
}

/** Appends to a file. A new file can be read only by the user. */
export async function appendPlain(path: string, text: string): Promise<void> {
  const file = await openPlain(path, O_WRONLY | O_APPEND | O_CREAT, 0o600)
  try {
    await file.appendFile(text)
  } finally {
    await file.close()
  }
}

/**
 * Folders of small JSON files, one about each thing that must not be forgotten after a crash. Only the user can read
 * them; a file that is broken, too large or a link is read as missing.
 */

const JSON_ENDING = ".json"
const MOST_BYTES = 1_000_000

/** Mark of the process and instance that wrote a file. */
export type OwnerMark = { readonly instance: string }

export type Ownership = {
  /** Returns the mark of this process and instance, for new files. */
  readonly ownerMark: () => OwnerMark
  /** Whether the mark belongs to another process that still exists. */
  readonly isOthers: (ownerMark: OwnerMark) => boolean
}

/** Path of a file in a folder of such files. */
export const jsonFile = (folder: string, name: string): string => join(folder, name + JSON_ENDING)

/** Writes the file, and its folder where missing. Synchronous, so that it is there before what it is about begins. */
export const writeJson = (path: string, value: unknown): void => replaceFileSync(path, JSON.stringify(value))

/** The value in a file; undefined where there is none that can be read. */
export function readJson(path: string): unknown {
  try {
    // Links are not followed, and a pipe without a writer is not waited for.
    const file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    try {
      return fstatSync(file).size > MOST_BYTES ? undefined : JSON.parse(readFileSync(file, "utf8"))
    } finally {
      closeSync(file)
    }
  } catch {
    return undefined
  }
}

/** The names of a folder's files, without their ending; none where the folder is missing. */
export async function jsonNames(folder: string): Promise<readonly string[]> {
  const files = await readdir(folder).catch(ifMissing<string[]>([]))
  return files.filter((file) => file.endsWith(JSON_ENDING)).map((file) => file.slice(0, -JSON_ENDING.length))
}
