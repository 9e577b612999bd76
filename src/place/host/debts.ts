import { access, mkdir, readdir, readFile, rm } from "node:fs/promises"
import { join } from "node:path"
import { writePlain } from "../../lib/plain-file.ts"
import { succeeds } from "../../lib/succeeds.ts"
import type { Stub } from "./stub.ts"

/**
 * What is written down of tasks that were cleared while their host did not answer, which nothing else knows, and of those
 * whose folder there could not be removed.
 */
export type Debts = {
  write(stub: Stub): Promise<void>
  drop(stub: Stub): Promise<void>
  /** False where another process has done it. */
  has(stub: Stub): Promise<boolean>
  /** Those of tasks of this folder. */
  read(): Promise<readonly Stub[]>
}

/** A file for each in a folder, which is not there where nothing is owed. */
export const debtsIn = (folder: string, parentFolder: string): Debts => {
  const fileOf = ({ taskID }: Pick<Stub, "taskID">) => join(folder, `${taskID}.json`)
  return {
    async write({ taskID, sessionID, host, title, agent, bare, home }) {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const text = JSON.stringify({ taskID, sessionID, host, title, agent, bare, home, parentFolder })
      await writePlain(fileOf({ taskID }), text)
    },
    has: (stub) => succeeds(access(fileOf(stub))),
    drop: (stub) => rm(fileOf(stub), { force: true }),
    async read() {
      const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith(".json"))
      const found = await Promise.all(names.map((name) => readFile(join(folder, name), "utf8").catch(() => "")))
      return found.flatMap((text) => stubIn(text, parentFolder))
    },
  }
}

type Written = Pick<Stub, "taskID" | "sessionID" | "host" | "title" | "agent" | "parentFolder" | "bare" | "home">

function stubIn(text: string, parentFolder: string): readonly Stub[] {
  try {
    const known = JSON.parse(text) as Written
    if (known.parentFolder !== parentFolder) return []
    // Nothing is read there any more of one whose work is here.
    const live = known.home === undefined
    return [{ ...known, model: undefined, live, sent: true, asked: live, asks: [], owesAbort: live }]
  } catch {
    return []
  }
}
