import { appendFile, readFile, rename, writeFile } from "node:fs/promises"
import { join } from "node:path"
import type { ItemRow } from "../core/items.ts"
import { makeResultsFolder, resultsFolder } from "./keep.ts"

/** The ledgers of maps: a row an item, in the project's main checkout; git ignores them. */
export class Ledgers {
  readonly #project: string

  constructor(project: string) {
    this.#project = project
  }

  fileOf(taskID: string): string {
    return join(resultsFolder(this.#project), `${taskID}.jsonl`)
  }

  /** Writes it whole, in order. */
  async write(file: string, rows: readonly ItemRow[]): Promise<void> {
    await makeResultsFolder(this.#project)
    await writeFile(`${file}.new`, rows.map((row) => `${JSON.stringify(row)}\n`).join(""), { mode: 0o600 })
    await rename(`${file}.new`, file)
  }

  /** Behind a line that a crash has torn, a row begins its own. */
  append(file: string, row: ItemRow): Promise<void> {
    return appendFile(file, `\n${JSON.stringify(row)}\n`, { mode: 0o600 })
  }

  /** The last row of each item, in order; a torn line does not count. None where the file is gone. */
  async read(file: string): Promise<readonly ItemRow[]> {
    const rows = new Map<number, ItemRow>()
    for (const line of (await readFile(file, "utf8").catch(orNothing)).split("\n")) {
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

function orNothing(error: NodeJS.ErrnoException): string {
  if (error.code === "ENOENT") return ""
  throw error
}
