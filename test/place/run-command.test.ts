import { spawnSync } from "node:child_process"
import { mkdtempSync, realpathSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { lastLines, runCommand } from "../../src/place/run-command.ts"
import { eventually } from "../support/eventually.ts"

let cwd: string
beforeEach(() => {
  cwd = realpathSync(mkdtempSync(join(tmpdir(), "superagents-command-")))
})
afterEach(() => rmSync(cwd, { recursive: true, force: true }))

const run = (command: string, timeLimit = 0, signal?: AbortSignal) => runCommand(command, { cwd, timeLimit, signal })

/** Whether a process runs whose command line has this word. */
const runs = (word: string) => spawnSync("pgrep", ["-f", word]).status === 0
const sleepFor = () => `${1000 + Math.floor(Math.random() * 1e6)}.5`

test("a command is run by the shell in its folder, and what it wrote is told in its order", async () => {
  expect(await run("pwd; echo to err >&2; echo 'a  b' | tr a-z A-Z; exit 3")).toMatchObject({
    exitCode: 3,
    output: `${cwd}\nto err\nA  B\n`,
  })
  expect(await run("read line || echo nothing to read")).toMatchObject({ exitCode: 0, output: "nothing to read\n" })
})

test("only the end of a long output is kept", async () => {
  const { output, exitCode } = await run("seq 1 200000")
  expect(exitCode).toBe(0)
  expect(output.length).toBeLessThanOrEqual(64_000)
  expect(output.endsWith("199999\n200000\n")).toBe(true)
  expect(lastLines(output, 2)).toMatch(/^… \(\d+ lines before\)\n199999\n200000$/)
  expect(lastLines("a\nb\n", 2)).toBe("a\nb")
})

test("one that hangs is killed with all that it started", async () => {
  const long = sleepFor()
  const result = await run(`echo begun; (sleep ${long} & sleep ${long}) & trap '' TERM; sleep ${long}`, 300)
  expect(result).toMatchObject({ why: "time", output: "begun\n" })
  expect(result.exitCode).toBeUndefined()
  await eventually(() => !runs(`sleep ${long}`))
})

test("what one leaves in the background goes with it, and is not waited for", async () => {
  const long = sleepFor()
  const began = performance.now()
  expect(await run(`sleep ${long} & echo done`)).toMatchObject({ exitCode: 0, output: "done\n" })
  expect(performance.now() - began).toBeLessThan(10_000)
  await eventually(() => !runs(`sleep ${long}`))
})

test.skipIf(process.platform !== "linux")("nor does what has left its group outlive one that is stopped", async () => {
  const long = sleepFor()
  const start = `setsid sh -c 'setsid sleep ${long} & sleep ${long}' &`
  const result = await run(`${start} until pgrep -f '^sleep ${long}'; do sleep 0.05; done; sleep ${long}`, 1500)
  expect(result.why).toBe("time")
  await eventually(() => !runs(`sleep ${long}`))
})

test("a service that one has started, and that has left its group, stays when it has ended by itself", async () => {
  const long = sleepFor()
  const begun = `until pgrep -f '^sleep ${long}' > /dev/null; do :; done`
  expect(await run(`setsid sleep ${long} > /dev/null 2>&1 & ${begun}`)).toMatchObject({ exitCode: 0 })
  const found = spawnSync("pgrep", ["-f", `^sleep ${long}`], { encoding: "utf8" }).stdout.trim()
  expect(found).toMatch(/^\d+$/)
  process.kill(Number(found))
})

test("one is stopped by its caller, also before it begins", async () => {
  const stop = new AbortController()
  const long = sleepFor()
  const running = run(`sleep ${long}`, 0, stop.signal)
  await eventually(() => runs(`sleep ${long}`))
  stop.abort()
  expect(await running).toMatchObject({ why: "stopped" })
  expect(await run("echo x", 0, stop.signal)).toMatchObject({ why: "stopped", output: "" })
})

test("one that cannot be started, or dies of a signal, is told as such", async () => {
  expect(await runCommand("true", { cwd: join(cwd, "gone"), timeLimit: 0 })).toMatchObject({ why: "not started" })
  expect((await run("kill -9 $$")).exitCode).toBe(1)
})
