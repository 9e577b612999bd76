import { mkdir, realpath, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { CallError } from "../core/errors.ts"
import type { ItemRow } from "../core/members.ts"
import { appendPlain, NoFile, readPlain, replaceFile } from "../lib/atomic-file.ts"

/** Folder for results of tasks, in the main checkout. */
const resultsFolder = (project: string): string => join(project, ".opencode", "superagents")

/**
 * Creates the folder, which is not committed. Throws where the folder is a link, since a repository could make the link
 * point to a user's files.
 */
async function makeResultsFolder(project: string): Promise<string> {
  const folder = resultsFolder(project)
  await mkdir(folder, { recursive: true })
  const [real, expected] = await Promise.all([realpath(folder), realpath(project).then(resultsFolder)])
  if (real !== expected)
    throw new CallError(`Results lie in ${folder}, and that is a link to ${real}. Make it a folder of the project.`)
  await writeFile(join(folder, ".gitignore"), "*\n", { flag: "wx" }).catch(() => {})
  return folder
}

/** Values of tasks and ledgers of maps (one row for each item), in the main checkout, not committed. */
export class Ledgers {
  readonly #project: string

  constructor(project: string) {
    this.#project = project
  }

  fileOf(taskID: string): string {
    return join(resultsFolder(this.#project), `${taskID}.jsonl`)
  }

  /** Path of a task's value. */
  valueOf(taskID: string): string {
    return join(resultsFolder(this.#project), `${taskID}.json`)
  }

  /** Stores a task's value and returns its path. */
  async keep(taskID: string, json: string): Promise<string> {
    await makeResultsFolder(this.#project)
    const file = this.valueOf(taskID)
    await replaceFile(file, json)
    return file
  }

  /** Writes all rows, in order. */
  async write(file: string, rows: readonly ItemRow[]): Promise<void> {
    await makeResultsFolder(this.#project)
    await replaceFile(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(""))
  }

  /** Appends a row, after a line break in case a crash has cut off the row before. */
  append(file: string, row: ItemRow): Promise<void> {
    return appendPlain(file, `\n${JSON.stringify(row)}\n`)
  }

  /**
   * Last row of each item, in order, without rows that a crash cut off. Empty where the file is missing or unusable.
   */
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

/** Text without rows for a missing file, or for something else in its place. Throws any other error. */
function orNothing(error: NodeJS.ErrnoException): string {
  if (error instanceof NoFile || error.code === "ENOENT" || error.code === "ELOOP") return ""
  throw error
}
