import { execFile } from "node:child_process"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, expect, test } from "vitest"
import { PACKAGE } from "../support/plugin.ts"
import { openTerminal, type Terminal } from "../support/terminal.ts"

const DEMO = ["--import", "tsx", join(PACKAGE, "demo", "demo.ts")]
const DEMO_MS = 110_000
const BILL = /It took ([\d,]+) tokens, \$(\d\.\d{4}): the agents [\d,]+ tokens, \$\d\.\d{4}; the parent [\d,]+ tokens/
const DONE = "All went as it should: 3 launched, 3 notifications, 3 answers."

let terminal: Terminal | undefined

afterAll(async () => {
  await terminal?.stop()
})

test.concurrent("the demo in a terminal shows the agents live and ends with the cost", async () => {
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, TERM: "xterm-256color" }
  terminal = openTerminal({ command: process.execPath, args: DEMO, cwd: PACKAGE, env, size: [110, 60] })
  const live = await terminal.waitFor(
    /[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] Map the source .*\n.*Collect the TODOs.*\n.*Run the tests.*\n.*\d\/3/,
    {
      timeout: DEMO_MS,
    },
  )
  expect(live).toMatch(/[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] Run the tests +working +\d[\d.]*m?s +\d tool calls? +\$\d\.\d{4}/)
  await terminal.waitFor(/█+░+ {2}[12]\/3/, { timeout: DEMO_MS })
  const end = await terminal.waitFor(BILL, { timeout: DEMO_MS })
  expect(end).toContain(DONE)
  expect(Number(BILL.exec(end)?.[2])).toBeGreaterThan(0)
  await terminal.gone
  expect(terminal.exitCode()).toBe(0)
}, 180_000)

test.concurrent("the demo prints plain lines when its output is piped", async () => {
  const { stdout } = await promisify(execFile)(process.execPath, DEMO, { cwd: PACKAGE, timeout: DEMO_MS })
  expect(stdout).toMatch(/^ {2}· Run the tests +working/m)
  expect(stdout).toMatch(/^ {2}✓ Run the tests +completed/m)
  expect(stdout).not.toContain("\u001B")
  expect(stdout).toContain(DONE)
  expect(stdout).toMatch(BILL)
}, 180_000)

test.concurrent("the third act of the demo is a ladder that its second rung wins", async () => {
  const act = ["--import", "tsx", join(PACKAGE, "demo", "tries.ts")]
  const { stdout } = await promisify(execFile)(process.execPath, act, { cwd: PACKAGE, timeout: DEMO_MS })
  expect(stdout).toContain("Try 1 (scripted/alpha): Its check `sh test/sum.test.sh` did not pass")
  expect(stdout).toContain("Tries: 2 of 2, won by scripted/beta")
  expect(stdout).toContain("All went as it should: the second rung won")
}, 180_000)
