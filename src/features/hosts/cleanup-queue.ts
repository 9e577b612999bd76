import { access, mkdir, rm } from "node:fs/promises"
import { jsonFile, jsonNames, readJson, replace } from "../../lib/atomic-file.ts"
import { succeeds } from "../../lib/succeeds.ts"
import type { RemoteSession } from "./remote-session.ts"

/**
 * Stored entries for remote tasks that were cleared while their host was out of reach, and for folders that could not
 * be removed.
 */
export type CleanupQueue = {
  write(remote: RemoteSession): Promise<void>
  drop(remote: RemoteSession): Promise<void>
  /** False where another process has done the cleanup. */
  has(remote: RemoteSession): Promise<boolean>
  /** Entries of this folder's tasks. */
  read(): Promise<readonly RemoteSession[]>
}

/** One file for each entry; the folder exists only if there are entries. */
export const cleanupQueueIn = (folder: string, parentFolder: string): CleanupQueue => {
  const fileOf = ({ taskID }: Pick<RemoteSession, "taskID">) => jsonFile(folder, taskID)
  return {
    async write({ taskID, sessionID, host, title, agent, bare, home }) {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const text = JSON.stringify({ taskID, sessionID, host, title, agent, bare, home, parentFolder })
      await replace(fileOf({ taskID }), text)
    },
    has: (remote) => succeeds(access(fileOf(remote))),
    drop: (remote) => rm(fileOf(remote), { force: true }),
    async read() {
      const found = (await jsonNames(folder).catch(() => [])).map((name) => readJson(jsonFile(folder, name)))
      return found.flatMap((value) => remoteSessionIn(value as Written | undefined, parentFolder))
    },
  }
}

type Written = Pick<
  RemoteSession,
  "taskID" | "sessionID" | "host" | "title" | "agent" | "parentFolder" | "bare" | "home"
>

function remoteSessionIn(known: Written | undefined, parentFolder: string): readonly RemoteSession[] {
  if (known?.parentFolder !== parentFolder) return []
  // A fetched session is not read any more.
  const live = known.home === undefined
  return [{ ...known, model: undefined, live, sent: true, asked: live, asks: [], owesAbort: live }]
}
