import { join } from "node:path"
import type { ItemRow } from "../../core/items.ts"
import { appendPlain, NoFile, readPlain, replace } from "../../lib/atomic-file.ts"
import { makeResultsFolder, resultsFolder } from "../schemas/keep.ts"

/** The values of tasks, and the ledgers of maps: a row an item. In the project's main checkout; git ignores them. */
export class Ledgers {
  readonly #project: string

  constructor(project: string) {
    this.#project = project
  }

  fileOf(taskID: string): string {
    return join(resultsFolder(this.#project), `${taskID}.jsonl`)
  }

  /** Where a task's value lies. */
  valueOf(taskID: string): string {
    return join(resultsFolder(this.#project), `${taskID}.json`)
  }

  /** Keeps a task's value; returns its file. */
  async keep(taskID: string, json: string): Promise<string> {
    await makeResultsFolder(this.#project)
    const file = this.valueOf(taskID)
    await replace(file, json)
    return file
  }

  /** Writes it whole, in order. */
  async write(file: string, rows: readonly ItemRow[]): Promise<void> {
    await makeResultsFolder(this.#project)
    await replace(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(""))
  }

  /** Behind a line that a crash has torn, a row begins its own. */
  append(file: string, row: ItemRow): Promise<void> {
    return appendPlain(file, `\n${JSON.stringify(row)}\n`)
  }

  /** The last row of each item, in order; a torn line does not count. None where the file is gone, or is none. */
  async read(file: string): Promise<readonly ItemRow[]> {
    const rows = new Map<number, ItemRow>()
    for (const line of (await readPlain(file).catch(orNothing)).split("\n")) {
      const row = rowIn(line)
      if (row) rows.set(row.index, row)
    }
    return [...rows.values()].sort((one, other) => one.index - other.index)
  }
}

function rowIn(line: string): ItemRow | undefined {
  if (line.trim() === "") return undefined
  try {
    const row: unknown = JSON.parse(line)
    return typeof row === "object" && row !== null && "index" in row ? (row as ItemRow) : undefined
  } catch {
    return undefined
  }
}

/** What is gone, and what somebody has put in its place, holds no rows. */
function orNothing(error: NodeJS.ErrnoException): string {
  if (error instanceof NoFile || error.code === "ENOENT" || error.code === "ELOOP") return ""
  throw error
}
