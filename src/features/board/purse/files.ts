import { mkdir } from "node:fs/promises"
import { join } from "node:path"
import { replace } from "../../../lib/atomic-file.ts"
import { REPORTS_FOLDER } from "../store/store.ts"
import { type KeptReport, reportText } from "./report.ts"

/** Writes a report into the board's folder for people. It is never read back, because anybody may change it there. */
export async function writeReport(board: string, { name, ...report }: KeptReport): Promise<void> {
  const folder = join(board, REPORTS_FOLDER)
  await mkdir(folder, { recursive: true })
  for (const [ending, content] of [
    ["md", `${reportText(report)}\n`],
    ["json", `${JSON.stringify(report, null, 2)}\n`],
  ] as const) {
    await replace(join(folder, `${name}.${ending}`), content, { mode: 0o666, flush: true })
  }
}
