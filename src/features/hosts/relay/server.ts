import { spawn, spawnSync } from "node:child_process"
import { randomBytes, randomUUID } from "node:crypto"
import { readFileSync, rmSync } from "node:fs"
import { createServer } from "node:net"
import { homedir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { replaceFileSync } from "../../../lib/atomic-file.ts"
import { eventReader, fetchDirectly } from "../../../lib/http.ts"
import { Lock, type Processes } from "../../../lib/lock.ts"
import { bytesOf } from "../frames.ts"
import type { CallEnd, CallHead, Hint, RelaySettings, RemoteServerState } from "../orders.ts"

/** A call as the relay's handlers see it. */
export type Call = {
  /** Aborted when the caller has cancelled. */
  readonly signal: AbortSignal
  /** Data sent after the order, such as a request's body. */
  readonly input: AsyncIterable<Uint8Array>
  /** Sends data to the caller. Resolves when more may be sent. */
  send(kind: "head" | "data", body: Uint8Array): Promise<void>
}

/** Stored state of a running server. */
type Running = { readonly id: string; readonly port: number; readonly pid: number; readonly since?: number }

const HEALTH_MS = 5000
const START_MS = 90_000
const LOOK_MS = 100
/** Interval at which the server's watcher checks leases. */
const WATCH_S = 2

/**
 * Shell script that starts the server and ends it when leases expire. `$1`: folder, `$2`: binary, `$3`: port, `$4` and
 * `$5`: seconds with and without leases, `$6`: id, `$7`: start time. The script stores the server's state itself,
 * because the relay may be gone by then, and ends its server if another was started since.
 */
const WATCHER = `
cd "$HOME"
umask 077
OPENCODE_SERVER_PASSWORD=$(cat "$1/password"); export OPENCODE_SERVER_PASSWORD
"$2" serve --hostname 127.0.0.1 --port "$3" </dev/null >"$1/log" 2>&1 &
p=$!
unset OPENCODE_SERVER_PASSWORD
another() { c=$(cat "$1/current" 2>/dev/null) && [ -n "$c" ] && [ "$c" != "$2" ]; }
another "$1" "$6" && { kill "$p"; exit; }
echo "$p" >"$1/pid"
printf '{"id":"%s","port":%s,"pid":%s,"since":%s}' "$6" "$3" "$p" "$7" >"$1/server.new" && mv "$1/server.new" "$1/server.json"
last=; idle=0
while kill -0 "$p" 2>/dev/null; do
  sleep ${WATCH_S}
  now=$(cat "$1"/leases/* 2>/dev/null)
  if [ "$now" = "$last" ]; then idle=$((idle + ${WATCH_S})); else idle=0; last=$now; fi
  if [ -n "$now" ]; then most=$4; else most=$5; fi
  if [ "$idle" -ge "$most" ] || another "$1" "$6"; then kill "$p"; sleep 3; kill -9 "$p" 2>/dev/null; break; fi
done
`

/** OpenCode's server on this host, shared by all clients: on loopback, with a password in a file. */
export class Server {
  readonly #settings: RelaySettings
  readonly #processes: Processes
  readonly #folder = join(
    process.env.XDG_STATE_HOME || join(homedir(), ".local", "state"),
    "opencode-superagents",
    "serve",
  )
  #running: Running | undefined
  #password = ""
  /** True once the server has answered: if the server is silent later, it is not still starting. */
  #hasAnswered = false
  #hasTasks = false
  /** Whether the server answered the last health request; undefined before the first one. */
  answers: boolean | undefined
  #asking = false
  #askedAt = 0

  constructor(settings: RelaySettings, processes: Processes) {
    this.#settings = settings
    this.#processes = processes
  }

  /** Starts the server, or uses a running one. */
  async start(): Promise<RemoteServerState> {
    this.#hasTasks = true
    this.seen()
    const late = () => new Error("OpenCode there did not start: another connection has been starting it for too long")
    // Only one of several relays may start the server. The other relays find it running.
    const alone = new Lock(this.#folder, "starting", this.#processes)
    return (await this.#find()) ?? alone.hold(START_MS, late, () => this.#findOrBegin())
  }

  async #findOrBegin(): Promise<RemoteServerState> {
    const deadline = Date.now() + START_MS
    while (Date.now() < deadline) {
      const found = await this.#find()
      if (found) return found
      if (!this.#running) return this.#begin()
      await sleep(LOOK_MS)
    }
    throw new Error("OpenCode there is alive and does not answer")
  }

  /** Called at each ping of the client: renews the client's lease and checks that OpenCode's server answers. */
  seen(): void {
    if (!this.#hasTasks) return
    try {
      replaceFileSync(this.#path("leases", this.#settings.client), `${Date.now()}\n`)
    } catch {
      // Ignore a full disk: without new leases the server still runs for a while, so that no run ends at once.
    }
    if (this.#hasAnswered && !this.#asking && Date.now() - this.#askedAt > HEALTH_MS / 2) void this.#ask()
  }

  /** Called when this client has no tasks any more: removes the client's lease. */
  releaseLease(): void {
    this.#hasTasks = false
    rmSync(this.#path("leases", this.#settings.client), { force: true })
  }

  fetch(path: string, init: RequestInit): Promise<Response> {
    if (!this.#running) throw new Error("OpenCode does not run there")
    const headers = { ...(init.headers as Record<string, string>), authorization: this.#authorization() }
    return fetchDirectly(`http://127.0.0.1:${this.#running.port}${path}`, { ...init, headers })
  }

  /** True if the server has answered before and does not now. */
  async isGone(): Promise<boolean> {
    return this.#hasAnswered && (await this.#health()) === undefined
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

  /**
   * Finds the running server. If its process lives but is silent, the server is starting or suspended: `#running` stays
   * set, and the caller waits.
   */
  async #find(): Promise<RemoteServerState | undefined> {
    this.#running = this.#read()
    if (!this.#running) return undefined
    const version = await this.#health()
    if (version !== undefined) return this.#found(this.#running, version)
    if (!lives(this.#running)) this.#running = undefined
    return undefined
  }

  #found({ id, since }: Running, version: string): RemoteServerState {
    this.#hasAnswered = true
    return { id, version, since }
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

  async #begin(): Promise<RemoteServerState> {
    this.#hasAnswered = false
    this.#password = randomBytes(24).toString("base64url")
    replaceFileSync(this.#path("password"), this.#password)
    for (const name of ["pid", "server.json"]) rmSync(this.#path(name), { force: true })
    const port = await freePort()
    const id = randomUUID()
    replaceFileSync(this.#path("current"), id)
    const seconds = (ms: number) => String(Math.max(WATCH_S, Math.ceil(ms / 1000)))
    const { unattended, kept: serverKeptMs } = this.#settings
    const binary = process.env.SUPERAGENTS_BINARY ?? "opencode"
    const limits = [seconds(unattended), seconds(serverKeptMs)]
    const args = ["-c", WATCHER, "superagents", this.#folder, binary, String(port), ...limits, id, String(Date.now())]
    // Leave out these variables, so that OpenCode starts as itself, not as Bun.
    const { BUN_BE_BUN: _not, SUPERAGENTS_BINARY: _nor, ...env } = process.env
    spawn("/bin/sh", args, { detached: true, stdio: "ignore", env }).unref()
    const deadline = Date.now() + START_MS
    while (Date.now() < deadline) {
      await sleep(LOOK_MS)
      const running = this.#read()
      if (running?.id !== id) continue
      this.#running = running
      const version = await this.#health()
      if (version !== undefined) return this.#found(running, version)
      if (!lives(running)) throw new Error(`OpenCode there did not start: ${this.#complaint()}`)
    }
    throw new Error("OpenCode there did not start in time")
  }

  #complaint(): string {
    return textIn(this.#path("log")).trim().split("\n").at(-1) ?? ""
  }
}

/** A file's text; "" where it cannot be read. */
function textIn(file: string): string {
  try {
    return readFileSync(file, "utf8")
  } catch {
    return ""
  }
}

export function exists(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

const lives = ({ pid, port }: Running): boolean => isProcess(pid, String(port))

/**
 * Whether the process lives. Its command line must contain `mark`, because another process may have the number by now;
 * one that cannot be read counts as its own.
 */
export function isProcess(pid: number, mark: string): boolean {
  if (!exists(pid)) return false
  const shown = textIn(`/proc/${pid}/cmdline`) || psOf(pid)
  return shown === "" || shown.includes(mark)
}

const PS_LIMIT_MS = 10_000

const psOf = (pid: number): string =>
  String(spawnSync("ps", ["-o", "args=", "-p", String(pid)], { timeout: PS_LIMIT_MS }).stdout ?? "")

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

/** Time after which a silent event stream counts as dead, in ms. OpenCode sends a heartbeat every ten seconds. */
const SILENT_MS = 30_000
/** Longest event that is read. Longer events are parts with output, and never report an end. */
const MOST_EVENT_CHARS = 1_048_576
/** Part of the path of each task's folder. Events of other folders are ignored. */
const OURS = "/opencode-superagents/"

/** Events that may report an end or a question. */
const URGENT = new Set([
  "session.idle",
  "session.status",
  "session.error",
  "permission.asked",
  "permission.replied",
  "question.asked",
  "question.replied",
  "question.rejected",
])
/** Event about a message. Leads to a hint only when an answer has ended, not while it is written. */
const ANSWER = "message.updated"

type Told = {
  readonly directory?: string
  readonly payload?: {
    readonly type?: string
    readonly properties?: {
      readonly sessionID?: string
      readonly status?: { readonly type?: string }
      readonly info?: { readonly sessionID?: string; readonly finish?: string }
    }
  }
}

/**
 * Sends hints for events of tasks' sessions until the stream ends or is silent. The head is sent once events arrive.
 */
export async function listen(call: Call, server: Server, silentFor = SILENT_MS): Promise<CallEnd> {
  const stop = new AbortController()
  const signal = AbortSignal.any([call.signal, stop.signal])
  const answer = await server.fetch("/global/event", { method: "GET", headers: {}, signal })
  const head: CallHead = { status: answer.status, headers: {} }
  if (!answer.ok || !answer.body) return { problem: `OpenCode there tells no events (${answer.status})` }
  await call.send("head", bytesOf(JSON.stringify(head)))
  let lastMessageAt = Date.now()
  const watch = setInterval(() => {
    if (Date.now() - lastMessageAt >= silentFor) stop.abort()
  }, silentFor / 3)
  try {
    const decoder = new TextDecoder()
    const read = eventReader(MOST_EVENT_CHARS)
    for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
      lastMessageAt = Date.now()
      const hints = read(decoder.decode(chunk, { stream: true })).flatMap(({ data }) => hintOf(data) ?? [])
      for (const hint of hints) await call.send("data", bytesOf(JSON.stringify(hint)))
    }
    return {}
  } finally {
    clearInterval(watch)
    stop.abort()
  }
}

/** Hint for an event; undefined where it is irrelevant. */
export function hintOf(text: string): Hint | undefined {
  if (!text.includes(OURS)) return undefined
  const { directory, payload } = readTold(text)
  const { type = "", properties = {} } = payload ?? {}
  if (!directory?.includes(OURS)) return undefined
  const { sessionID, status, info } = properties
  if (type === ANSWER) return info?.finish && info.sessionID ? { session: info.sessionID, urgent: false } : undefined
  // A session that goes on working needs no hint.
  if (!URGENT.has(type) || !sessionID || status?.type === "busy") return undefined
  return { session: sessionID, urgent: true }
}

function readTold(text: string): Told {
  try {
    return (JSON.parse(text) ?? {}) as Told
  } catch {
    return {}
  }
}
