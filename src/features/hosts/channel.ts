import { type ChildProcess, spawn } from "node:child_process"
import { messageOf } from "../../core/errors.ts"
import type { Clock } from "../../core/ports.ts"
import { killGroup } from "../../runtime/places/process.ts"
import { bytesOf, encode, Flow, type Frame, Frames, textOf } from "./frames.ts"
import { type CallEnd, endIn, type Hint, hintIn, type Order, type PingReply, type RelayHello } from "./orders.ts"

/**
 * This module starts the relay on a host where nothing of the plugin is installed: a shell line there reads the relay's
 * script from stdin.
 */

/**
 * Shell line that the transport runs on the host; all other text comes over stdin, unquoted. `LINE` contains no double
 * quotes, newlines or exclamation marks, so that a second shell does not change it.
 */
export const LINE = "exec sh -c 'IFS= read -r s; eval \"$s\"'"

/** The host's shell prints this text to stderr, and starts no relay, if it finds no OpenCode. */
export const NOT_FOUND = "superagents: no opencode"

/** Folders into which OpenCode's installers put the program. The host's shell searches them after PATH. */
const FOLDERS = [".opencode/bin", ".local/bin", ".bun/bin"]
const SYSTEM_FOLDERS = ["/usr/local/bin", "/opt/homebrew/bin"]

/** Quotes a text for the shell. */
export const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/** Quotes a path for the shell, except for a leading `~/`. */
const inHome = (path: string): string => (path.startsWith("~/") ? `"$HOME"/${quoted(path.slice(2))}` : quoted(path))

/**
 * Returns the first two lines for the host: a shell script that finds OpenCode and starts it as Bun, and the relay's
 * JavaScript. The relay reads all bytes after them.
 */
export function bootstrapLines(relay: string, settings: unknown, opencode: string): string {
  const path = [...FOLDERS.map((folder) => `$HOME/${folder}`), ...SYSTEM_FOLDERS].join(":")
  const wanted = opencode === "" ? "opencode" : opencode
  const shell = [
    // Print something first, to show that the connection works: the next steps may take long on a busy host.
    "echo",
    // Begin in a folder that exists: the login folder may be gone.
    'cd "$HOME" 2>/dev/null || cd /',
    `PATH="$PATH:${path}"`,
    "export PATH",
    "IFS= read -r j",
    `o=${inHome(wanted)}`,
    `command -v "$o" >/dev/null 2>&1 || { echo ${quoted(NOT_FOUND)} >&2; exit 127; }`,
    'o=$(command -v "$o")',
    "SUPERAGENTS_BINARY=$o; export SUPERAGENTS_BINARY",
    'BUN_BE_BUN=1 exec "$o" -e "$j"',
  ].join("; ")
  const run = `new Function("require", "module", "exports", ${JSON.stringify(relay)})`
  const script = `globalThis.SUPERAGENTS_RELAY=${JSON.stringify(settings)};${run}((n)=>process.getBuiltinModule(n),{},{})`
  return `${shell}\n${oneLineOf(script)}\n`
}

/** Escapes U+2028 and U+2029: JSON allows them unescaped, but old JavaScript parsers reject them. */
const oneLineOf = (script: string): string => script.replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029")

/** Characters of the transport's stderr that are kept to explain its end. */
const MOST_COMPLAINT_CHARS = 4000

/** Callbacks for parts of a call's result. */
type Receiver = {
  readonly head?: (body: string) => void
  /**
   * Takes a chunk. If `data` returns a promise, the chunk's credit goes back to the host once this promise resolves.
   */
  readonly data?: (body: Uint8Array) => void | Promise<void>
}

/** Error of a call without a connection, or of one whose connection was lost during the call. */
export class ConnectionLost extends Error {
  override readonly name = "ConnectionLost"
}

export type CallOptions = {
  /** Data sent after the order, such as a request's body. */
  readonly input?: Uint8Array | AsyncIterable<Uint8Array>
  readonly receiver?: Receiver
  readonly signal?: AbortSignal
}

/** How a channel ended. `complaint`: the transport's last output. `byItself`: false if this process called `close`. */
type Closed = { readonly complaint: string; readonly byItself: boolean }

type Waiting = {
  readonly receiver: Receiver
  readonly flow: Flow
  readonly settle: (end: CallEnd | ConnectionLost) => void
}

export type ChannelPorts = {
  /** Command of the transport. The channel adds `LINE` as the last argument. */
  readonly command: readonly string[]
  /** First lines sent to the host. */
  readonly opening: string
  /** Called at the host's first output of any kind, which shows that the connection works. */
  readonly onActivity: () => void
  /** Called when the relay has started. */
  readonly opened: (hello: RelayHello) => void
  readonly closed: (closed: Closed) => void
}

/** Environment in which ssh asks for no password, neither on a terminal nor in a window: nobody could answer. */
const unasked = () => ({ ...process.env, SSH_ASKPASS_REQUIRE: "never" })

/** One transport process and its calls. A closed channel is never used again. */
export class Channel {
  readonly #ports: ChannelPorts
  readonly #child: ChildProcess
  readonly #frames = new Frames(true)
  readonly #waiting = new Map<number, Waiting>()
  #calls = 0
  #complaint = ""
  #byItself = true
  #isHeard = false
  #isOpen = false
  #isClosed = false
  #pong: ((pong: PingReply) => void) | undefined

  constructor(ports: ChannelPorts) {
    this.#ports = ports
    const [program = "", ...args] = ports.command
    // The transport gets its own process group, so that signals from OpenCode's terminal do not reach it.
    this.#child = spawn(program, [...args, LINE], {
      stdio: ["pipe", "pipe", "pipe"],
      detached: true,
      env: unasked(),
    })
    const { stdin, stdout, stderr } = this.#child
    stdin?.on("error", () => {})
    stdout?.on("data", (chunk: Uint8Array) => this.#onOutput(chunk))
    stderr?.on("data", (chunk: Uint8Array) => {
      this.#complaint = (this.#complaint + textOf(chunk)).slice(-MOST_COMPLAINT_CHARS)
    })
    this.#child.on("error", (error) => this.#close(error.message))
    this.#child.on("close", (code, signal) => this.#close(`its command ended (${signal ?? `exit code ${code}`})`))
    stdin?.write(ports.opening)
  }

  get isOpen(): boolean {
    return this.#isOpen && !this.#isClosed
  }

  /** Runs an order on the host. Rejects with `ConnectionLost` where the connection is lost first. */
  call(order: Order, { input, receiver = {}, signal }: CallOptions = {}): Promise<CallEnd> {
    const number = ++this.#calls
    if (!this.isOpen) return Promise.reject(new ConnectionLost("there is no connection"))
    const flow = new Flow(number, (frame) => this.#write(frame))
    const ended = new Promise<CallEnd>((resolve, reject) => {
      const cancel = () => this.#write(encode("cancel", number))
      signal?.addEventListener("abort", cancel, { once: true })
      const settle = (end: CallEnd | ConnectionLost) => {
        this.#waiting.delete(number)
        flow.end()
        signal?.removeEventListener("abort", cancel)
        if (end instanceof ConnectionLost) reject(end)
        else resolve(end)
      }
      this.#waiting.set(number, { receiver, flow, settle })
    })
    this.#write(encode("open", number, bytesOf(JSON.stringify(order))))
    this.#send(number, flow, input).catch((error) => {
      // The host reads to the end of what was sent, and then finds it incomplete.
      void this.#write(encode("cancel", number))
      void this.#write(encode("end", number))
      this.#waiting.get(number)?.settle({ problem: messageOf(error) })
    })
    return ended
  }

  /** Asks the relay for an answer. Never rejects: the caller closes the channel if no answer comes in time. */
  ping(answered: (pong: PingReply) => void): void {
    this.#pong = answered
    this.#write(encode("ping", 0))
  }

  /** Closes the connection. Pending calls reject with `ConnectionLost`. */
  close(): void {
    this.#byItself = false
    this.#child.stdin?.destroy()
    killGroup(this.#child)
    this.#close("")
  }

  async #send(number: number, flow: Flow, input: CallOptions["input"]): Promise<void> {
    const bodies = input instanceof Uint8Array ? [input] : (input ?? [])
    for await (const body of bodies) {
      await flow.send(body)
      if (!this.#waiting.has(number)) return
    }
    await this.#write(encode("end", number))
  }

  /** Writes to the transport's stdin. Resolves when the stream can take more; at once when the stream is closed. */
  #write(bytes: Uint8Array): Promise<void> | undefined {
    const { stdin } = this.#child
    if (this.#isClosed || !stdin?.writable || stdin.write(bytes)) return undefined
    return new Promise((resolve) => {
      const go = () => {
        stdin.off("drain", go)
        stdin.off("close", go)
        resolve()
      }
      stdin.once("drain", go)
      stdin.once("close", go)
    })
  }

  #onOutput(chunk: Uint8Array): void {
    if (this.#isClosed) return
    if (!this.#isHeard) this.#ports.onActivity()
    this.#isHeard = true
    try {
      for (const frame of this.#frames.take(chunk)) this.#take(frame)
    } catch (error) {
      killGroup(this.#child)
      this.#close((error as Error).message)
    }
  }

  #take({ kind, call, body }: Frame): void {
    const waiting = this.#waiting.get(call)
    if (kind === "hello" && !this.#isOpen) {
      this.#isOpen = true
      this.#ports.opened(JSON.parse(textOf(body)) as RelayHello)
    }
    if (kind === "pong") this.#pong?.(JSON.parse(textOf(body)) as PingReply)
    if (kind === "head") waiting?.receiver.head?.(textOf(body))
    if (kind === "more") waiting?.flow.give(body)
    if (kind === "data" && waiting) this.#receive(waiting, body)
    if (kind === "end") waiting?.settle(endIn(textOf(body)))
  }

  #receive({ receiver, flow }: Waiting, body: Uint8Array): void {
    flow.arrive(body.length)
    const taking = receiver.data?.(body)
    if (taking) void taking.then(() => flow.take(body.length))
    else flow.take(body.length)
  }

  #close(why: string): void {
    if (this.#isClosed) return
    this.#isClosed = true
    for (const { settle } of [...this.#waiting.values()]) settle(new ConnectionLost("the connection was cut"))
    const complaint = this.#complaint.trim() === "" ? why : this.#complaint
    this.#ports.closed({ complaint, byItself: this.#byItself })
  }
}

/** Delay before the event stream is opened again, in ms. Each further failure doubles the delay. */
const FIRST_PAUSE_MS = 10_000
const LONGEST_PAUSE_MS = 300_000

export type RemoteEventStreamPorts = {
  readonly clock: Clock
  /** Sends an order to the host. Rejects if there is no contact. */
  readonly call: (order: Order, options: CallOptions) => Promise<CallEnd>
  /**
   * Called with a hint about a session's activity. `undefined`: events arrive from now on, and earlier ones may be
   * lost.
   */
  readonly onActivity: (hint: Hint | undefined) => void
}

/** Event stream of a remote server. Events are only hints: polling finds every change without them, but later. */
export class RemoteEventStream {
  readonly #ports: RemoteEventStreamPorts
  #stop: AbortController | undefined
  #cancelPause: () => void = () => {}
  #pause = FIRST_PAUSE_MS
  #hasEvents = false

  constructor(ports: RemoteEventStreamPorts) {
    this.#ports = ports
  }

  /** True while events arrive. */
  get hears(): boolean {
    return this.#hasEvents
  }

  /** Listens for events while there is contact, until `stopListening` is called. */
  listen(): void {
    this.stopListening()
    this.#pause = FIRST_PAUSE_MS
    void this.#listen()
  }

  stopListening(): void {
    this.#cancelPause()
    this.#hasEvents = false
    this.#stop?.abort()
    this.#stop = undefined
  }

  /** Reads events until the stream ends, then schedules the next attempt. Never rejects. */
  async #listen(): Promise<void> {
    const stop = new AbortController()
    this.#stop = stop
    const isOurs = () => this.#stop === stop
    const receiver = {
      head: () => {
        if (!isOurs()) return
        this.#hasEvents = true
        this.#pause = FIRST_PAUSE_MS
        this.#ports.onActivity(undefined)
      },
      data: (body: Uint8Array) => {
        const hint = isOurs() ? hintIn(textOf(body)) : undefined
        if (hint) this.#ports.onActivity(hint)
      },
    }
    try {
      await this.#ports.call({ do: "listen" }, { receiver, signal: stop.signal })
    } catch {
      // The next contact starts the event stream again.
      if (isOurs()) this.stopListening()
    }
    if (!isOurs()) return
    this.#hasEvents = false
    this.#cancelPause = this.#ports.clock.after(this.#pause, () => void this.#listen())
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS)
  }
}
