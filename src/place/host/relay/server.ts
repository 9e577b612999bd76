import { spawn } from "node:child_process"
import { randomBytes, randomUUID } from "node:crypto"
import { mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { homedir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import type { RelaySettings, Served } from "../orders.ts"

/** What is written down of a server that runs. */
type Running = { readonly id: string; readonly port: number; readonly pid: number }

const HEALTH_MS = 5000
const START_MS = 90_000
const LOOK_MS = 100
/** A lock says at once whose it is. One that does not for so long is nobody's. */
const NAMELESS_MS = 5000
/** How often the server's watcher looks at the leases. */
const WATCH_S = 2

/**
 * The shell that starts the server and stays: it ends it when nobody renews a lease for too long. `$1` the folder, `$2`
 * the binary, `$3` the port, `$4` and `$5` how many seconds it may go on with leases and without any.
 */
const WATCHER = `
cd "$HOME"
umask 077
OPENCODE_SERVER_PASSWORD=$(cat "$1/password"); export OPENCODE_SERVER_PASSWORD
"$2" serve --hostname 127.0.0.1 --port "$3" </dev/null >"$1/log" 2>&1 &
p=$!
unset OPENCODE_SERVER_PASSWORD
echo "$p" >"$1/pid"
last=; idle=0
while kill -0 "$p" 2>/dev/null; do
  sleep ${WATCH_S}
  now=$(cat "$1"/leases/* 2>/dev/null)
  if [ "$now" = "$last" ]; then idle=$((idle + ${WATCH_S})); else idle=0; last=$now; fi
  if [ -n "$now" ]; then most=$4; else most=$5; fi
  if [ "$idle" -ge "$most" ]; then kill "$p"; sleep 3; kill -9 "$p" 2>/dev/null; break; fi
done
`

/** OpenCode's server on this machine: one for all who come here, on loopback, with a password that stays in its file. */
export class Server {
  readonly #settings: RelaySettings
  readonly #folder = join(
    process.env.XDG_STATE_HOME || join(homedir(), ".local", "state"),
    "opencode-superagents",
    "serve",
  )
  #running: Running | undefined
  #password = ""
  #hasTasks = false
  /** Whether it answered when it was last asked; undefined where it was not, since it still starts. */
  answers: boolean | undefined
  #hasAnswered = false
  #asking = false
  #askedAt = 0

  constructor(settings: RelaySettings) {
    this.#settings = settings
  }

  /** Has it run; one that runs already is taken. */
  async start(): Promise<Served> {
    this.#hasTasks = true
    mkdirSync(join(this.#folder, "leases"), { recursive: true, mode: 0o700 })
    this.seen()
    const deadline = Date.now() + START_MS
    while (Date.now() < deadline) {
      const found = await this.#find()
      if (found) return found
      // One that is alive and does not answer yet may have been begun by a relay that is gone.
      if (!this.#isAlive() && this.#lock()) {
        try {
          const other = await this.#find()
          if (other) return other
          if (!this.#isAlive()) return await this.#begin()
        } finally {
          rmSync(this.#path("lock"), { recursive: true, force: true })
        }
      }
      await sleep(LOOK_MS)
    }
    throw new Error(
      this.#isAlive() ? "OpenCode there is alive and does not answer" : "OpenCode there did not start in time",
    )
  }

  #isAlive(): boolean {
    const { pid } = this.#read() ?? {}
    return pid !== undefined && lives(pid)
  }

  /** The near end is there: the lease is renewed, and the server asked whether it answers. */
  seen(): void {
    if (!this.#hasTasks) return
    try {
      writeFileSync(this.#path("leases", this.#settings.client), `${Date.now()}\n`, { mode: 0o600 })
    } catch {
      // A full disk ends no run at once: the server goes on for a while.
    }
    if (this.#hasAnswered && !this.#asking && Date.now() - this.#askedAt > HEALTH_MS / 2) void this.#ask()
  }

  /** Nobody has a task here from this side. */
  rest(): void {
    this.#hasTasks = false
    rmSync(this.#path("leases", this.#settings.client), { force: true })
  }

  fetch(path: string, init: RequestInit): Promise<Response> {
    if (!this.#running) throw new Error("OpenCode does not run there")
    const headers = { ...(init.headers as Record<string, string>), authorization: this.#authorization() }
    return fetch(`http://127.0.0.1:${this.#running.port}${path}`, { ...init, headers })
  }

  async #ask(): Promise<void> {
    this.#asking = true
    this.#askedAt = Date.now()
    this.answers = (await this.#health()) !== undefined
    this.#asking = false
  }

  #path(...names: string[]): string {
    return join(this.#folder, ...names)
  }

  #authorization(): string {
    return `Basic ${Buffer.from(`opencode:${this.#password}`).toString("base64")}`
  }

  /** The one that runs, if it answers. One that is alive and does not is waited for. */
  async #find(): Promise<Served | undefined> {
    const running = this.#read()
    if (!running) return undefined
    this.#running = running
    const version = await this.#health()
    if (version !== undefined) return this.#answered(running, version)
    if (lives(running.pid)) return undefined
    this.#running = undefined
    return undefined
  }

  #read(): Running | undefined {
    try {
      this.#password = readFileSync(this.#path("password"), "utf8").trim()
      return JSON.parse(readFileSync(this.#path("server.json"), "utf8")) as Running
    } catch {
      return undefined
    }
  }

  async #health(): Promise<string | undefined> {
    try {
      const answer = await this.fetch("/global/health", { signal: AbortSignal.timeout(HEALTH_MS) })
      const { version } = (await answer.json()) as { version?: string }
      return answer.ok ? (version ?? "") : undefined
    } catch {
      return undefined
    }
  }

  #answered({ id }: Running, version: string): Served {
    this.#hasAnswered = true
    return { id, version }
  }

  /** One starts it at a time. A lock whose holder has died is taken away, for the next attempt. */
  #lock(): boolean {
    try {
      mkdirSync(this.#path("lock"))
      writeFileSync(this.#path("lock", "pid"), String(process.pid), { mode: 0o600 })
      return true
    } catch {
      const holder = this.#number("lock", "pid")
      const isStale = holder === undefined ? this.#isOld("lock") : !lives(holder)
      if (isStale) rmSync(this.#path("lock"), { recursive: true, force: true })
      return false
    }
  }

  async #begin(): Promise<Served> {
    this.#password = randomBytes(24).toString("base64url")
    writeFileSync(this.#path("password"), this.#password, { mode: 0o600 })
    rmSync(this.#path("pid"), { force: true })
    const port = await freePort()
    const seconds = (ms: number) => String(Math.max(WATCH_S, Math.ceil(ms / 1000)))
    const { unattended, kept } = this.#settings
    const binary = process.env.SUPERAGENTS_BINARY ?? "opencode"
    const args = ["-c", WATCHER, "superagents", this.#folder, binary, String(port), seconds(unattended), seconds(kept)]
    // Started as an OpenCode, and not as the Bun that this process is.
    const { BUN_BE_BUN: _not, SUPERAGENTS_BINARY: _nor, ...env } = process.env
    spawn("/bin/sh", args, { detached: true, stdio: "ignore", env }).unref()
    const deadline = Date.now() + START_MS
    const id = randomUUID()
    while (Date.now() < deadline) {
      await sleep(LOOK_MS)
      const pid = this.#number("pid")
      if (pid === undefined) continue
      if (!lives(pid)) throw new Error(`OpenCode there did not start: ${this.#complaint()}`)
      const running = { id, port, pid }
      if (this.#running?.pid !== pid) this.#write(running)
      this.#running = running
      const version = await this.#health()
      if (version !== undefined) return this.#answered(running, version)
    }
    throw new Error("OpenCode there did not start in time")
  }

  /** Written down before it answers: where this relay ends, the next one waits for it, and begins no second one. */
  #write(running: Running): void {
    const written = this.#path(`server.${process.pid}`)
    writeFileSync(written, JSON.stringify(running), { mode: 0o600 })
    renameSync(written, this.#path("server.json"))
  }

  #isOld(name: string): boolean {
    try {
      return Date.now() - statSync(this.#path(name)).mtimeMs > NAMELESS_MS
    } catch {
      return false
    }
  }

  #number(...names: string[]): number | undefined {
    try {
      return Number(readFileSync(this.#path(...names), "utf8")) || undefined
    } catch {
      return undefined
    }
  }

  #complaint(): string {
    try {
      const lines = readFileSync(this.#path("log"), "utf8").trim().split("\n")
      return lines.at(-1) ?? ""
    } catch {
      return ""
    }
  }
}

function lives(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.on("error", reject)
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number }
      server.close(() => resolve(port))
    })
  })
}
