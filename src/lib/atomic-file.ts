import { randomBytes } from "node:crypto"
import { constants, linkSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { type FileHandle, open, readdir, rename, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { ifMissing } from "./lock.ts"

/**
 * Files that are written whole: beside their path under a name that nobody can guess, then renamed. A link at either
 * place is not followed, and no reader meets half a file.
 */

/** `mode` is the user's alone by default; `flush` has the text outlive a power cut. */
type WriteOptions = { readonly mode?: number; readonly flush?: boolean }

const ENDING = ".tmp"
const asideOf = (path: string): string => `${path}.${randomBytes(6).toString("hex")}${ENDING}`
const settings = ({ mode = 0o600 }: WriteOptions) => ({ mode, flag: "wx" })

/** Whether a name in its folder is a draft of this file: a killed process leaves it behind. */
export const isDraftOf = (file: string, name: string): boolean => name.startsWith(`${file}.`) && name.endsWith(ENDING)

/** Writes a file beside `path`, for the caller to rename; returns its name. */
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

/** Has a file or a folder outlive a power cut; not all systems can. */
export async function flush(path: string): Promise<void> {
  const handle = await open(path, "r").catch(() => undefined)
  await handle?.sync().catch(() => {})
  await handle?.close()
}

function draftSync(path: string, text: string, options: WriteOptions = {}): string {
  const aside = asideOf(path)
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
  await rename(await writeDraft(path, content, options), path)
}

export const replaceFileSync = (path: string, text: string): void => renameSync(draftSync(path, text), path)

/** Of several processes that create a file at once, the first wins. A file that is not `isUsable` is replaced. */
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

const JSON_ENDING = ".json"

/** A small file of JSON in a folder of such files. */
export const jsonFile = (folder: string, name: string): string => join(folder, name + JSON_ENDING)

/** The value in a JSON file; undefined where there is none that can be read. */
export function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, "utf8"))
  } catch {
    return undefined
  }
}

/** The names of a folder's JSON files, without their ending; none where the folder is missing. */
export async function jsonNames(folder: string): Promise<readonly string[]> {
  const files = await readdir(folder).catch(ifMissing<string[]>([]))
  return files.filter((file) => file.endsWith(JSON_ENDING)).map((file) => file.slice(0, -JSON_ENDING.length))
}

/**
 * Reading where others may write, too. A link there leads anywhere, and whoever opens a pipe may wait for ever:
 * neither is followed or waited for.
 */

const { O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants

/** Rejects where something else than a file is there, or nothing. */
async function openPlain(path: string, flags: number, mode?: number): Promise<FileHandle> {
  const file = await open(path, flags | O_NOFOLLOW | O_NONBLOCK, mode)
  const found = await file.stat()
  if (found.isFile()) return file
  await file.close()
  throw new NoFile()
}

/** The path leads to a folder, a pipe or a device. */
export class NoFile extends Error {
  override readonly name = "NoFile"
  constructor() {
    super("it is no file")
  }
}

/** The file's text. Rejects where it has more than `most` bytes, by `tooLong`. */
export async function readPlain(
  path: string,
  most = Number.POSITIVE_INFINITY,
  tooLong = (bytes: number): Error => new Error(`it has ${bytes} bytes`),
): Promise<string> {
  const file = await openPlain(path, O_RDONLY)
  try {
    const { size } = await file.stat()
    if (size > most) throw tooLong(size)
    return await file.readFile("utf8")
  } finally {
    await file.close()
  }
}

/** Adds to a file, for its user alone where it is new. */
export async function appendPlain(path: string, text: string): Promise<void> {
  const file = await openPlain(path, O_WRONLY | O_APPEND | O_CREAT, 0o600)
  try {
    await file.appendFile(text)
  } finally {
    await file.close()
  }
}
