import { join } from "node:path"

/** Folders for a repository on a host: a store of git objects, and a folder for each task. */
export type HostRepositoryFolders = { readonly room: string; readonly store: string }

export const hostRepositoryFolders = (cache: string, key: string): HostRepositoryFolders => {
  const room = join(cache, "opencode-superagents", key)
  return { room, store: join(room, "store") }
}

/**
 * Path of the marker of a complete folder. In a folder without marker, missing files were never written, so that nobody
 * has deleted them; the marker's time tells when the run began.
 */
export const completeMarkerPath = ({ room }: HostRepositoryFolders, taskID: string): string =>
  join(room, "made", taskID)

export const folderIn = ({ room }: HostRepositoryFolders, taskID: string): string => join(room, "work", taskID)
