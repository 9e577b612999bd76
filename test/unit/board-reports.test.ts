import { execFileSync } from "node:child_process"
import { mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { Reports } from "../../src/board/purse/files.ts"
import type { Report } from "../../src/board/purse/report.ts"

/** Reports lie where anybody may write: what is no file of theirs is none. */

const NAME = "2026-11-24T05-00Z"
const REPORT: Report = { max: 5, until: "u", openedAt: "o", endedAt: "e", why: "closed", spent: 0, tasks: [] } as never
let board: string
let reports: Reports
beforeEach(() => {
  board = mkdtempSync(join(tmpdir(), "superagents-reports-"))
  reports = new Reports(board)
})
afterEach(() => rmSync(board, { recursive: true, force: true }))

const file = (name: string) => join(board, "reports", name)
const names = async () => (await reports.list()).map(({ name }) => name)

test("a report is read as it was written", async () => {
  await reports.write(NAME, REPORT, "TEXT")
  expect(await names()).toEqual([NAME])
  expect(await reports.get(NAME)).toMatchObject({ name: NAME, text: "TEXT\n", why: "closed" })
})

test("pipes, links and what is huge in a report's place are no reports, and nobody waits for them", async () => {
  await reports.write(NAME, REPORT, "TEXT")
  const secret = join(board, "secret")
  writeFileSync(secret, "SECRET")
  const pipe = "2026-11-25T05-00Z"
  const link = "2026-11-26T05-00Z"
  const huge = "2026-11-27T05-00Z"
  execFileSync("mkfifo", [file(`${pipe}.json`)])
  symlinkSync(file(`${NAME}.json`), file(`${link}.json`))
  writeFileSync(file(`${huge}.json`), "")
  truncateSync(file(`${huge}.json`), 2_000_000_000)
  expect(await names()).toEqual([NAME])
  for (const name of [pipe, link, huge]) await expect(reports.get(name)).rejects.toThrow("There is no report")
  rmSync(file(`${NAME}.md`))
  symlinkSync(secret, file(`${NAME}.md`))
  expect((await reports.get(NAME)).text).toBe("")
})
