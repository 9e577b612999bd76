import { type FSWatcher, watch } from "node:fs"

const MOMENT_MS = 100

/**
 * Calls back a moment after something in a folder has changed; throws where there is none. Which file it was is not
 * asked, nor whether that was all: of events within a millisecond Bun tells the first alone, so of a file that replaces
 * another only that the temporary one was made.
 */
export function watchFolder(folder: string, changed: () => void): FSWatcher {
  let timer: ReturnType<typeof setTimeout> | undefined
  const watcher = watch(folder, { persistent: false }, () => {
    timer ??= setTimeout(() => {
      timer = undefined
      changed()
    }, MOMENT_MS)
    timer.unref?.()
  })
  watcher.on("close", () => clearTimeout(timer))
  return watcher
}
