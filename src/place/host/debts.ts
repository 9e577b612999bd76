import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import type { Stub } from "./stub.ts"

/** What is written down of tasks that were cleared while their host did not answer: nothing else knows them. */
export type Debts = {
  write(stub: Stub): Promise<void>
  drop(stub: Stub): Promise<void>
  /** Those of tasks of this folder. */
  read(): Promise<readonly Stub[]>
}

/** A file for each in a folder, which is not there where nothing is owed. */
export const debtsIn = (folder: string, parentFolder: string): Debts => {
  const fileOf = ({ taskID }: Pick<Stub, "taskID">) => join(folder, `${taskID}.json`)
  return {
    async write({ taskID, sessionID, host, title, agent }) {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      await writeFile(fileOf({ taskID }), JSON.stringify({ taskID, sessionID, host, title, agent, parentFolder }))
    },
    drop: (stub) => rm(fileOf(stub), { force: true }),
    async read() {
      const names = await readdir(folder).catch(() => [])
      const found = await Promise.all(names.map((name) => readFile(join(folder, name), "utf8").catch(() => "")))
      return found.flatMap((text) => stubIn(text, parentFolder))
    },
  }
}

function stubIn(text: string, parentFolder: string): readonly Stub[] {
  try {
    const known = JSON.parse(text) as Pick<Stub, "taskID" | "sessionID" | "host" | "title" | "agent" | "parentFolder">
    if (known.parentFolder !== parentFolder) return []
    return [{ ...known, model: undefined, live: true, sent: true, asked: true, asks: [], owesAbort: true }]
  } catch {
    return []
  }
}
