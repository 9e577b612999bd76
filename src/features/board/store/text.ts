import { readFile, stat } from "node:fs/promises"
import type { Unreadable } from "./format.ts"

/** To read a file takes the host's one thread: a longer one is left alone. */
export const MOST_READ_BYTES = 16 * 1024 * 1024
/** A board grows no further by itself: what has to be remembered of its tasks has room until it cannot be read. */
export const MOST_GROWN_BYTES = MOST_READ_BYTES / 2

/** The text of `tasks.json`. Rejects where there is none. */
export async function boardText(path: string): Promise<string | Unreadable> {
  const found = await stat(path)
  // A device or a pipe may have no end.
  if (!found.isFile()) return { problem: "it is no file" }
  if (found.size > MOST_READ_BYTES)
    return { problem: `it has ${megabytes(found.size)} MB; at most ${megabytes(MOST_READ_BYTES)} are read` }
  return readFile(path, "utf8")
}

export const megabytes = (bytes: number): number => Math.ceil(bytes / 1024 / 1024)
