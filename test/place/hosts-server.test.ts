import { spawn } from "node:child_process"
import { once } from "node:events"
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { afterEach, beforeEach, expect, test } from "vitest"
import { Server } from "../../src/features/hosts/relay/server.ts"
import { eventually } from "../support/eventually.ts"
import { PROCESSES } from "../support/far-files.ts"
import { killIfRunning, pidsOf } from "../support/process-id.ts"

/** OpenCode's server on another machine, as the relay there starts it: its binary is a script that takes its time. */

const SETTINGS = { client: "me", unattended: 60_000, kept: 60_000, patience: 60_000 }
const OWNER = pathToFileURL(new URL("../../src/runtime/record/identity.ts", import.meta.url).pathname).href
const SOURCE = pathToFileURL(new URL("../../src/features/hosts/relay/server.ts", import.meta.url).pathname).href

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

/** A process that starts the server, as the relay of another connection. */
const starting = () => {
  const script = `Promise.all([import(${JSON.stringify(SOURCE)}), import(${JSON.stringify(OWNER)})]).then(([{ Server }, { processMark, processLives }]) =>
    new Server(${JSON.stringify(SETTINGS)}, { self: processMark, isAlive: processLives }).start())`
  return spawn(process.execPath, ["--import", "tsx", "-e", script], { stdio: "ignore" })
}

test("the host's server starts once when several connections start it and an earlier starter has died", async () => {
  const serve = join(folder, "opencode-superagents/serve")
  mkdirSync(serve, { recursive: true })
  const { place } = PROCESSES.self
  writeFileSync(join(serve, `starting.000000000.${place}.99999999.1.aaaa`), "")
  const all = Array.from({ length: 4 }, starting)
  await eventually(() => starts().length > 0, { timeout: 60_000 })
  ready()
  const ended = await Promise.all(all.map(async (child) => (await once(child, "exit"))[0]))
  expect(ended).toEqual([0, 0, 0, 0])
  expect(starts()).toHaveLength(1)
})

test("when the host's server was started twice, only the later one keeps running", async () => {
  ready()
  const server = new Server(SETTINGS, PROCESSES)
  const first = await server.start()
  // Whoever began it left nothing behind by which it could be found.
  const serve = join(folder, "opencode-superagents/serve")
  rmSync(join(serve, "server.json"))
  const second = await new Server(SETTINGS, PROCESSES).start()
  expect(second.id).not.toBe(first.id)
  const [one = 0, two = 0] = starts()
  await eventually(() => !existsSync(`/proc/${one}`), { timeout: 20_000 })
  expect(existsSync(`/proc/${two}`)).toBe(true)
})

test("a server whose starter died is taken over by the next connections and not started twice", async () => {
  const first = starting()
  await eventually(() => starts().length === 1, { timeout: 40_000 })
  first.kill("SIGKILL")
  await once(first, "exit")
  const next = [new Server(SETTINGS, PROCESSES), new Server({ ...SETTINGS, client: "you" }, PROCESSES)].map((server) =>
    server.start(),
  )
  // Both wait for the one that is there.
  await new Promise((resolve) => setTimeout(resolve, 500))
  ready()
  const [one, two] = await Promise.all(next)
  expect(one).toEqual(two)
  expect(starts()).toHaveLength(1)
})

test("the host's server starts anew when its process number now belongs to another program", async () => {
  const serve = join(folder, "opencode-superagents/serve")
  mkdirSync(serve, { recursive: true })
  writeFileSync(join(serve, "password"), "x")
  writeFileSync(join(serve, "server.json"), JSON.stringify({ id: "old", port: 65_537, pid: process.pid }))
  ready()
  const { id } = await new Server(SETTINGS, PROCESSES).start()
  expect(id).not.toBe("old")
  expect(starts()).toHaveLength(1)
})
