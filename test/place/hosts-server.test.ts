import { spawn } from "node:child_process"
import { once } from "node:events"
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { afterEach, beforeEach, expect, test } from "vitest"
import { Server } from "../../src/place/host/relay/server.ts"
import { eventually } from "../support/eventually.ts"
import { killIfRunning, pidsOf } from "../support/process-id.ts"

/** OpenCode's server on another machine, as the relay there starts it: its binary is a script that takes its time. */

const SETTINGS = { client: "me", unattended: 60_000, kept: 60_000, patience: 60_000 }
const SOURCE = pathToFileURL(new URL("../../src/place/host/relay/server.ts", import.meta.url).pathname).href

let folder: string
const before = { ...process.env }

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-server-"))
  const binary = join(folder, "opencode")
  writeFileSync(
    binary,
    `#!${process.execPath}
const { appendFileSync, existsSync } = require("node:fs")
appendFileSync(${JSON.stringify(join(folder, "starts"))}, process.pid + "\\n")
const port = Number(process.argv[process.argv.indexOf("--port") + 1])
const answer = (_, response) => response.end(JSON.stringify({ version: "1.18.33" }))
setInterval(function () {
  if (!existsSync(${JSON.stringify(join(folder, "ready"))})) return
  clearInterval(this)
  require("node:http").createServer(answer).listen(port, "127.0.0.1")
}, 20)
`,
  )
  chmodSync(binary, 0o755)
  Object.assign(process.env, { XDG_STATE_HOME: folder, HOME: folder, SUPERAGENTS_BINARY: binary })
})
afterEach(() => {
  Object.assign(process.env, before)
  for (const pid of starts()) killIfRunning(pid)
  rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
})

const starts = (): readonly number[] =>
  existsSync(join(folder, "starts")) ? pidsOf(readFileSync(join(folder, "starts"), "utf8")) : []
const ready = () => writeFileSync(join(folder, "ready"), "")

test("is taken by the next who comes where the one who began it is gone, and is not started twice", async () => {
  const script = `import(${JSON.stringify(SOURCE)}).then(({ Server }) => new Server(${JSON.stringify(SETTINGS)}).start())`
  const first = spawn(process.execPath, ["--import", "tsx", "-e", script], { stdio: "ignore" })
  await eventually(() => starts().length === 1, { timeout: 40_000 })
  first.kill("SIGKILL")
  await once(first, "exit")
  const next = [new Server(SETTINGS), new Server({ ...SETTINGS, client: "you" })].map((server) => server.start())
  // Both wait for the one that is there.
  await new Promise((resolve) => setTimeout(resolve, 500))
  ready()
  const [one, two] = await Promise.all(next)
  expect(one).toEqual(two)
  expect(starts()).toHaveLength(1)
})

test("is started anew where its number is another program's by now", async () => {
  const serve = join(folder, "opencode-superagents/serve")
  mkdirSync(serve, { recursive: true })
  writeFileSync(join(serve, "password"), "x")
  writeFileSync(join(serve, "server.json"), JSON.stringify({ id: "old", port: 65_537, pid: process.pid }))
  ready()
  const { id } = await new Server(SETTINGS).start()
  expect(id).not.toBe("old")
  expect(starts()).toHaveLength(1)
})
