import { mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { runBounded } from "../../../src/features/worktrees/process.ts"
import { eventually } from "../../support/eventually.ts"

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-process-"))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const isOpen = (file: string): boolean =>
  readdirSync("/proc/self/fd").some((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`) === file
    } catch {
      return false
    }
  })

test.runIf(process.platform === "linux")("a program that does not read its input leaves no file open", async () => {
  const file = join(folder, "input")
  writeFileSync(file, Buffer.alloc(5_000_000))
  const ended = await runBounded("true", [], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? "" },
    inputFrom: { file, start: 0 },
    timeLimit: 10_000,
  })
  expect(ended).toMatchObject({ kind: "exited", code: 0 })
  await eventually(() => !isOpen(file), { timeout: 2000 })
})
