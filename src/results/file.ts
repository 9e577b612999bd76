import { constants } from "node:fs"
import { open, realpath } from "node:fs/promises"
import { resolve, sep } from "node:path"
import { grouped, oneLine } from "../lib/text.ts"

/** More than all that an argument may hold. */
const MOST_BYTES = 8_000_000

type Refused = (why: string) => Error

/** A file of a folder that an argument names: its own path, and that within the folder. `refused`: what is thrown else. */
export async function fileIn(folder: string, name: string, refused: Refused) {
  const shown = oneLine(name)
  const [root, file] = await Promise.all([realpath(folder), realpath(resolve(folder, name)).catch(() => undefined)])
  if (file === undefined) throw refused(`there is no file ${shown} in ${root}.`)
  if (!file.startsWith(root + sep)) throw refused(`${shown} lies outside of ${root}.`)
  return { file, within: file.slice(root.length + 1) }
}

/** Its text. Of a pipe nobody knows when it says something, if ever: what is no file is opened without waiting for it. */
export async function textIn(file: string, name: string, refused: Refused): Promise<string> {
  const shown = oneLine(name)
  const cannot = (error: NodeJS.ErrnoException): never => {
    throw refused(`${shown} cannot be read: ${oneLine(error.message)}.`)
  }
  const opened = await open(file, constants.O_RDONLY | constants.O_NONBLOCK).catch(cannot)
  try {
    const found = await opened.stat()
    if (!found.isFile()) throw refused(`${shown} is no file.`)
    if (found.size > MOST_BYTES)
      throw refused(`${shown} has ${grouped(found.size)} bytes; at most ${grouped(MOST_BYTES)} are read.`)
    const text = await opened.readFile("utf8").catch(cannot)
    return text.replace(/^\uFEFF/, "")
  } finally {
    await opened.close()
  }
}
