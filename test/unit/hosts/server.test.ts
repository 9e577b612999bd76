import { spawnSync } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { Server } from "../../../src/features/hosts/relay/server.ts"
import { PROCESSES } from "../../support/far-files.ts"
import { killIfRunning, pidIn } from "../../support/process-id.ts"

/** OpenCode's server on a host, played by a script: it takes its time, and relays die while it starts. */

let root: string
let state: string
const before = { ...process.env }

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "superagents-serve-"))
  state = join(root, "opencode-superagents/serve")
  process.env.XDG_STATE_HOME = root
})
afterEach(() => {
  for (const name of ["XDG_STATE_HOME", "SUPERAGENTS_BINARY"])
    if (before[name] === undefined) delete process.env[name]
    else process.env[name] = before[name]
  killIfRunning(pidOf())
  rmSync(root, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
})

const pidOf = () => pidIn(join(state, "pid"))

const isAlive = (pid: number | undefined) => pid !== undefined && existsSync(`/proc/${pid}`)

/** An OpenCode that answers after so many ms. */
function opencode(after: number) {
  const binary = join(root, "opencode")
  const script = `
    const port = Number(process.argv[process.argv.indexOf("--port") + 1])
    const answer = (request, response) => response.end(JSON.stringify({ healthy: true, version: "1.18.33" }))
    setTimeout(() => require("node:http").createServer(answer).listen(port, "127.0.0.1"), ${after})
  `
  writeFileSync(join(root, "server.cjs"), script)
  writeFileSync(binary, `#!/bin/sh\nexec '${process.execPath}' '${join(root, "server.cjs")}' "$@"\n`)
  chmodSync(binary, 0o755)
  process.env.SUPERAGENTS_BINARY = binary
}

const server = () => new Server({ client: "me", unattended: 60_000, kept: 60_000, patience: 60_000 }, PROCESSES)

test("a server that is slow to start is not reported as silent", async () => {
  opencode(1500)
  const one = server()
  let isUp = false
  const started = one.start().finally(() => {
    isUp = true
  })
  const answers = new Set<boolean | undefined>()
  while (!isUp) {
    one.seen()
    answers.add(one.answers)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  expect((await started).version).toBe("1.18.33")
  expect([...answers]).toEqual([undefined])
})

test("a relay that died while it started the server leaves no lock that blocks", async () => {
  opencode(0)
  mkdirSync(state, { recursive: true })
  const { place } = PROCESSES.self
  writeFileSync(join(state, `starting.000000000.${place}.${spawnSync("true").pid}.1.aaaa`), "")
  expect((await server().start()).version).toBe("1.18.33")
})

test("a server whose relay died during its start is waited for, and no second one is started", async () => {
  opencode(2500)
  const first = server().start()
  while (!existsSync(join(state, "server.json"))) await new Promise((resolve) => setTimeout(resolve, 20))
  const pid = pidOf()
  // As where it is killed: its lock stays, and names a process that is gone.
  const { place } = PROCESSES.self
  writeFileSync(join(state, `starting.000000000.${place}.${spawnSync("true").pid}.1.aaaa`), "")
  const second = await server().start()
  expect(pidOf()).toBe(pid)
  expect(isAlive(pid)).toBe(true)
  expect((await first).id).toBe(second.id)
})

test("a server counts as gone only when its process has ended, not when it refuses a request", async () => {
  opencode(0)
  const one = server()
  expect(await one.isGone()).toBe(false)
  await one.start()
  expect(await one.isGone()).toBe(false)
  killIfRunning(pidOf())
  await vi.waitFor(async () => expect(await one.isGone()).toBe(true), { timeout: 10_000 })
  await expect(one.fetch("/x", {})).rejects.toThrow()
})
