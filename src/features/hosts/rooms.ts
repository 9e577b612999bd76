import { join } from "node:path"

/** Folders for a repository on a host: a store of git objects, and a folder for each task. */
export type Rooms = { readonly room: string; readonly store: string }

export const roomsIn = (cache: string, key: string): Rooms => {
  const room = join(cache, "opencode-superagents", key)
  return { room, store: join(room, "store") }
}

/** Marks a complete folder: files missing from an unmarked one were not deleted by anybody. Its time: when the run began. */
export const madeMark = ({ room }: Rooms, taskID: string): string => join(room, "made", taskID)

export const folderIn = ({ room }: Rooms, taskID: string): string => join(room, "work", taskID)
