import { access, mkdir, rm } from "node:fs/promises"
import { jsonFile, jsonNames, readJson, replace } from "../../lib/atomic-file.ts"
import { succeeds } from "../../lib/succeeds.ts"
import type { RemoteSession } from "./remote-session.ts"

/**
 * What is written down of tasks that were cleared while their host did not answer, which nothing else knows, and of those
 * whose folder there could not be removed.
 */
export type CleanupQueue = {
  write(remote: RemoteSession): Promise<void>
  drop(remote: RemoteSession): Promise<void>
  /** False where another process has done it. */
  has(remote: RemoteSession): Promise<boolean>
  /** Those of tasks of this folder. */
  read(): Promise<readonly RemoteSession[]>
}

/** A file for each in a folder, which is not there where nothing is owed. */
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
  // Nothing is read there any more of one whose work is here.
  const live = known.home === undefined
  return [{ ...known, model: undefined, live, sent: true, asked: live, asks: [], owesAbort: live }]
}
