import { type FSWatcher, watch } from "node:fs"
import { dirname } from "node:path"

const MOMENT_MS = 100

/** Reports changes until it is closed. */
export type Watch = { readonly close: () => void }

/**
 * Watches two folders, of which the second appears with the first write into the first. Missing folders are replaced by
 * their nearest parent; undefined where none can be watched.
 */
export function watchBoth(first: string, second: string, changed: () => void): Watch | undefined {
  let other: FSWatcher | undefined
  const hearOther = () => {
    try {
      other ??= watchFolder(second, changed)
    } catch {
      // Does not exist yet.
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

/** Watches a folder, or its nearest existing parent. Undefined where none can be watched. */
export function watchNearest(folder: string, changed: () => void): FSWatcher | undefined {
  for (let nearest = folder; ; nearest = dirname(nearest))
    try {
      return watchFolder(nearest, changed)
    } catch {
      if (nearest === dirname(nearest)) return undefined
    }
}

/**
 * Calls back shortly after a change in a folder; throws without one. File names are ignored, because Bun reports only
 * the first of several events within a millisecond.
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
