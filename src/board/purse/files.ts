import { mkdir, readdir, rename } from "node:fs/promises"
import { join } from "node:path"
import { readPlain } from "../../lib/plain-file.ts"
import { BoardError } from "../service.ts"
import { writeAside } from "../store/disk.ts"
import { parseJson } from "../store/format.ts"
import { REPORTS_FOLDER } from "../store/store.ts"
import { type NamedReport, type Report, type ReportHead, reportSchema } from "./report.ts"

/** A report's name is the minute in which its purse ended. */
const NAME = /^\d{4}-\d\d-\d\dT\d\d-\d\dZ(-\d{1,3})?$/
const MOST_LISTED = 50
/** Far more than a night comes to. */
const MOST_BYTES = 1_000_000

/** The reports of a board's purses: two files each, in the board's folder, where anybody may read and write them. */
export class Reports {
  readonly #folder: string

  constructor(board: string) {
    this.#folder = join(board, REPORTS_FOLDER)
  }

  /** The same report written twice is one: its name and its text come from records. */
  async write(name: string, report: Report, text: string): Promise<void> {
    await mkdir(this.#folder, { recursive: true })
    for (const [ending, content] of [
      ["md", `${text}\n`],
      ["json", `${JSON.stringify(report, null, 2)}\n`],
    ] as const) {
      const file = join(this.#folder, `${name}.${ending}`)
      await rename(await writeAside(file, content), file)
    }
  }

  /** Newest first. What cannot be read is left out. */
  async list(): Promise<readonly ReportHead[]> {
    const files = await readdir(this.#folder).catch(() => [])
    const names = files.flatMap((file) => (file.endsWith(".json") ? [file.slice(0, -".json".length)] : []))
    const newest = names
      .filter((name) => NAME.test(name))
      .toSorted()
      .toReversed()
      .slice(0, MOST_LISTED)
    const found = await Promise.all(newest.map(async (name) => ({ name, report: await this.#read(name) })))
    return found.flatMap(({ name, report }) => (report ? [{ ...report, name, tasks: report.tasks.length }] : []))
  }

  /** Throws a `BoardError` where there is none of this name. */
  async get(name: string): Promise<NamedReport> {
    const report = NAME.test(name) ? await this.#read(name) : undefined
    if (!report) throw new BoardError("not found", `There is no report "${name.slice(0, 40)}".`)
    const text = await readPlain(join(this.#folder, `${name}.md`), MOST_BYTES).catch(() => "")
    return { ...report, name, text }
  }

  async #read(name: string): Promise<Report | undefined> {
    const text = await readPlain(join(this.#folder, `${name}.json`), MOST_BYTES).catch(() => "")
    return reportSchema.safeParse(parseJson(text)).data
  }
}
