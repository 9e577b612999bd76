import { isUtf8 } from "node:buffer"
import { realpath } from "node:fs/promises"
import { resolve, sep } from "node:path"
import { CallError, messageOf } from "../../core/errors.ts"
import { NoFile, readPlain } from "../../lib/atomic-file.ts"
import { formatInteger, oneLine } from "../../lib/text.ts"

/** Most bytes read from a file that an argument names; larger than any allowed argument. */
const MOST_BYTES = 8_000_000

/** Rejects where the caller may not read `file`, a file of the caller's folder. */
export type MayRead = (file: string) => Promise<void>

type Refused = (why: string) => CallError

/**
 * Text of a file in `folder` that the caller may read. Throws what `refused` returns where no such file is there, or it
 * cannot be read.
 */
export async function textInFile(
  name: string,
  folder: string,
  mayRead: MayRead,
  refused: Refused,
  most = MOST_BYTES,
): Promise<string> {
  const shown = oneLine(name)
  const [root, file] = await Promise.all([realpath(folder), realpath(resolve(folder, name)).catch(() => undefined)])
  if (file === undefined) throw refused(`there is no file ${shown} in ${root}.`)
  if (!file.startsWith(root + sep)) throw refused(`${shown} lies outside of ${root}.`)
  await mayRead(file.slice(root.length + 1))
  const tooLong = (bytes: number) =>
    refused(`${shown} has ${formatInteger(bytes)} bytes; at most ${formatInteger(most)} are read.`)
  try {
    const bytes = await readPlain(file, most, tooLong)
    // Any other encoding, or a binary file, would be read as other names than it holds.
    if (!isUtf8(bytes) || bytes.includes(0)) throw refused(`${shown} is no text in UTF-8.`)
    return bytes.toString("utf8").replace(/^\uFEFF/, "")
  } catch (error) {
    if (error instanceof CallError) throw error
    if (error instanceof NoFile) throw refused(`${shown} is no file.`)
    throw refused(`${shown} cannot be read: ${oneLine(messageOf(error))}.`)
  }
}

/** Parses JSON. `what`: name of the text for the error that `refused` makes. */
export function jsonIn(text: string, what: string, refused: Refused): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw refused(`${what} is no JSON: ${oneLine(messageOf(error))}.`)
  }
}
