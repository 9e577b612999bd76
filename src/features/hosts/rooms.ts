import { join } from "node:path"

/** Folders for a repository on a host: a store of git objects, and a folder for each task. */
export type Rooms = { readonly room: string; readonly store: string }

export const roomsIn = (cache: string, key: string): Rooms => {
  const room = join(cache, "opencode-superagents", key)
  return { room, store: join(room, "store") }
}

export const folderIn = ({ room }: Rooms, taskID: string): string => join(room, "work", taskID)
