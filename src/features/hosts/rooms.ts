import { join } from "node:path"

/** Folders for a repository on a host: a store of git objects, and a folder for each task. */
export type HostRepositoryFolders = { readonly root: string; readonly store: string }

export const hostRepositoryFolders = (cache: string, key: string): HostRepositoryFolders => {
  const root = join(cache, "opencode-superagents", key)
  return { root, store: join(root, "store") }
}

/**
 * Path of the marker of a complete folder. In a folder without marker, missing files were never written, so that nobody
 * has deleted them; the marker's time tells when the run began.
 */
export const completeMarkerPath = ({ root }: HostRepositoryFolders, taskID: string): string =>
  join(root, "made", taskID)

export const folderIn = ({ root }: HostRepositoryFolders, taskID: string): string => join(root, "work", taskID)
