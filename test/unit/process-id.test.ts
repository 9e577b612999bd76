import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { isRunning, killIfRunning, pidIn, pidsOf, rollIn } from "../support/process-id.ts"

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-pid-"))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

test("a pid file that is empty or half-written names no process", () => {
  const file = join(folder, "pid")
  expect(pidIn(file)).toBeUndefined()
  for (const text of ["", "\n", "0\n", "-1\n", "1x"]) {
    writeFileSync(file, text)
    expect(pidIn(file)).toBeUndefined()
  }
  writeFileSync(file, "4711\n")
  expect(pidIn(file)).toBe(4711)
  expect(pidsOf("12\n\n0\n13\n")).toEqual([12, 13])
})

test("no signal is ever sent to a missing pid, to 0 or to -1", async () => {
  expect([undefined, 0, -1].map(isRunning)).toEqual([false, false, false])
  for (const nobody of [undefined, 0, -1]) killIfRunning(nobody)
  const child = spawn("sleep", ["600"])
  expect(isRunning(child.pid)).toBe(true)
  killIfRunning(child.pid)
  await once(child, "exit")
  expect(isRunning(child.pid)).toBe(false)
  killIfRunning(child.pid)
})

test("a command that recorded its pid is found while it runs, and a reused pid is not", async () => {
  const { line, running } = rollIn(folder)
  const child = spawn("sh", ["-c", `${line}; echo; exec sleep 600`])
  await once(child.stdout, "data")
  expect(running()).toEqual([child.pid])
  // An earlier one had the number that this one has now, and one is half written.
  writeFileSync(join(folder, `${process.pid}`), "1\n")
  writeFileSync(join(folder, `${process.ppid}`), "")
  expect(running()).toEqual([child.pid])
  killIfRunning(child.pid)
  await once(child, "exit")
  expect(running()).toEqual([])
})
