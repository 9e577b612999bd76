import { realpath } from "node:fs/promises"
import { join, sep } from "node:path"
import { oneLine } from "../lib/text.ts"

/** A file of a folder that an argument names: its own path, and that within the folder. `refused`: what is thrown else. */
export async function fileIn(folder: string, name: string, refused: (why: string) => Error) {
  const shown = oneLine(name)
  const [root, file] = await Promise.all([realpath(folder), realpath(join(folder, name)).catch(() => undefined)])
  if (file === undefined) throw refused(`there is no file ${shown} in ${root}.`)
  if (!file.startsWith(root + sep)) throw refused(`${shown} lies outside of ${root}.`)
  return { file, within: file.slice(root.length + 1) }
}
