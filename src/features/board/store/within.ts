import { lstat, readlink, realpath } from "node:fs/promises"
import { basename, dirname, isAbsolute, join, relative, resolve } from "node:path"
import { BoardError } from "../service.ts"

/**
 * Rejects where a link leads a board file out of its project, since a cloned repository may contain links to anywhere.
 * A folder configured outside the project is the user's own choice.
 */
export async function refuseOutside(project: string, folder: string, names: readonly string[]): Promise<void> {
  if (!isWithin(project, folder)) return
  const root = await realOf(project)
  for (const path of [folder, ...names.map((name) => join(folder, name))]) {
    const real = await realOf(path)
    if (!isWithin(root, real))
      throw new BoardError(
        "unavailable",
        `The board's files may not leave the project, and a link leads ${path} to ${real}. Remove the link; or name a folder in the option "board.dir" of your own configuration.`,
      )
  }
}

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
  const way = relative(folder, path)
  return !isAbsolute(way) && way.split(/[/\\]/)[0] !== ".."
}
