import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs"
import { readdir } from "node:fs/promises"
import { join } from "node:path"
import { replaceFileSync } from "./atomic-file.ts"
import { ifMissing } from "./lock.ts"

/**
 * Folders of small JSON files, one about each thing that must not be forgotten after a crash. Only the user can read
 * them; a file that is broken, too large or a link is read as missing.
 */

const ENDING = ".json"
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
export const jsonFile = (folder: string, name: string): string => join(folder, name + ENDING)

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
  return files.filter((file) => file.endsWith(ENDING)).map((file) => file.slice(0, -ENDING.length))
}
