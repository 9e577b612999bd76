import { constants } from "node:fs"
import { type FileHandle, open } from "node:fs/promises"

/**
 * Files that lie where others may write, too. A link there leads anywhere, and whoever opens a pipe may wait for ever:
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

/** What is there is a folder, a pipe or a device. */
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
