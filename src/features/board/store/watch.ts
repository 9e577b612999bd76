import { type FSWatcher, watch } from "node:fs"
import { dirname } from "node:path"

const MOMENT_MS = 100

/** Hears of changes until it is closed. */
export type Watch = { readonly close: () => void }

/**
 * Calls back when something may have changed in one of two folders, of which the second is there once something was
 * written into the first. While the first is not there, the nearest one above is heard. Undefined where none can be.
 */
export function watchBoth(first: string, second: string, changed: () => void): Watch | undefined {
  let other: FSWatcher | undefined
  const hearOther = () => {
    try {
      other ??= watchFolder(second, changed)
    } catch {
      // Not there yet.
    }
  }
  const nearest = watchNearest(first, () => {
    hearOther()
    changed()
  })
  hearOther()
  return (
    nearest && {
      close() {
        nearest.close()
        other?.close()
      },
    }
  )
}

/** As `watchFolder`; while there is no such folder, of the nearest one above. Undefined where none can be watched. */
export function watchNearest(folder: string, changed: () => void): FSWatcher | undefined {
  for (let nearest = folder; ; nearest = dirname(nearest))
    try {
      return watchFolder(nearest, changed)
    } catch {
      if (nearest === dirname(nearest)) return undefined
    }
}

/**
 * Calls back a moment after something in a folder has changed; throws where there is none. Which file it was is not
 * asked, nor whether that was all: of events within a millisecond Bun tells the first alone, so of a file that replaces
 * another only that the temporary one was made.
 */
function watchFolder(folder: string, changed: () => void): FSWatcher {
  let timer: ReturnType<typeof setTimeout> | undefined
  const watcher = watch(folder, { persistent: false }, () => {
    timer ??= setTimeout(() => {
      timer = undefined
      changed()
    }, MOMENT_MS)
    timer.unref?.()
  })
  watcher.on("close", () => clearTimeout(timer))
  watcher.on("error", () => watcher.close())
  return watcher
}
