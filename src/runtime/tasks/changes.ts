import { messageOf } from "../../core/errors.ts"
import type { Merge, Work } from "../../core/task.ts"
import type { ArchiveResult, MergeResult } from "../places/place.ts"

/** Most paths that a record contains. More would make it too large, because it is written again and again. */
export const MOST_FILES = 100

export function mergeOf(result: MergeResult): Merge {
  const files = result.kind === "nothing" ? [] : result.files.slice(0, MOST_FILES)
  if (result.kind === "conflict") return { kind: "conflict", files, ...(result.advice && { text: result.advice }) }
  const { kind, submodules = [] } = result
  return { kind, files, ...(submodules.length > 0 && { leftOut: submodules }) }
}

export const refusedMerge = (text: string): Merge => ({ kind: "refused", files: [], text })

export const mergeFailure = (error: unknown): Merge => refusedMerge(messageOf(error))

export function toWork(
  { files, added, removed, submodules, held, unsaved, notes = [] }: ArchiveResult,
  merge?: Merge,
): Work {
  return {
    files: files.slice(0, MOST_FILES),
    moreFiles: Math.max(0, files.length - MOST_FILES),
    added,
    removed,
    submodules,
    ...(held !== undefined && { held: { folder: held, because: unsaved } }),
    ...(notes.length > 0 && { notes }),
    ...(merge && { merge }),
  }
}
