import { mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { git } from "../../../src/features/worktrees/git.ts"
import { runBounded } from "../../../src/features/worktrees/process.ts"
import { eventually } from "../../support/eventually.ts"

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-process-"))
})
afterEach(() => {
  vi.unstubAllEnvs()
  rmSync(folder, { recursive: true, force: true })
})

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

test("a git that a signal has ended is an error, whatever exit codes are answers", async () => {
  writeFileSync(join(folder, "git"), "#!/bin/sh\nkill -9 $$\n", { mode: 0o755 })
  vi.stubEnv("PATH", `${folder}:${process.env.PATH}`)
  const asked = git(["rev-parse", "--verify", "HEAD"], { cwd: folder, accept: [1, 128] })
  await expect(asked).rejects.toThrow("git rev-parse: exit code 137")
})
