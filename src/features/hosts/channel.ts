import { type ChildProcess, spawn } from "node:child_process"
import { LINE } from "./bootstrap.ts"
import { bytesOf, Credit, encode, type Frame, Frames, HEAD_BYTES, Intake, inFrames, textOf } from "./frames.ts"
import { type CallEnd, endIn, type Order, type PingReply, type RelayHello } from "./orders.ts"

/** Characters of the transport's stderr that are kept to explain its end. */
const MOST_COMPLAINT_CHARS = 4000

/** Callbacks for parts of a call's result. */
type Receiver = {
  readonly head?: (body: string) => void
  /** If it returns a promise, the chunk's credit is returned when that resolves. */
  readonly data?: (body: Uint8Array) => void | Promise<void>
  readonly errors?: (body: Uint8Array) => void
}

/** The connection was lost during the call. */
export class ConnectionLost extends Error {
  override readonly name = "ConnectionLost"
}

export type CallOptions = {
  /** Body of the request. */
  readonly input?: Uint8Array | AsyncIterable<Uint8Array>
  readonly receiver?: Receiver
  readonly signal?: AbortSignal
}

/** End of a channel: the transport's last output; `byItself` where it was not closed here. */
type Closed = { readonly complaint: string; readonly byItself: boolean; readonly started: boolean }

type Waiting = {
  readonly receiver: Receiver
  readonly intake: Intake
  readonly credit: Credit
  readonly settle: (end: CallEnd | ConnectionLost) => void
}

export type ChannelPorts = {
  /** Command of the transport, which gets one more argument. */
  readonly command: readonly string[]
  /** First lines sent to the host. */
  readonly opening: string
  /** Called at the host's first output of any kind: the connection works. */
  readonly heard: () => void
  /** Called when the relay has started. */
  readonly opened: (hello: RelayHello) => void
  readonly closed: (closed: Closed) => void
}

/** ssh must not ask for a password, on a terminal or in a window: nobody could answer. */
const unasked = () => ({ ...process.env, SSH_ASKPASS_REQUIRE: "never" })

/** One transport process and its calls. Never reused once closed. */
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
    // Own process group: signals from OpenCode's terminal must not reach it.
    this.#child = spawn(program, [...args, LINE], {
      stdio: ["pipe", "pipe", "pipe"],
      detached: true,
      env: unasked(),
    })
    const { stdin, stdout, stderr } = this.#child
    stdin?.on("error", () => {})
    stdout?.on("data", (chunk: Uint8Array) => this.#hear(chunk))
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
    const credit = new Credit()
    const intake = new Intake((body) => void this.#write(encode("more", number, body)))
    const ended = new Promise<CallEnd>((resolve, reject) => {
      const cancel = () => this.#write(encode("cancel", number))
      signal?.addEventListener("abort", cancel, { once: true })
      const settle = (end: CallEnd | ConnectionLost) => {
        this.#waiting.delete(number)
        credit.end()
        signal?.removeEventListener("abort", cancel)
        if (end instanceof ConnectionLost) reject(end)
        else resolve(end)
      }
      this.#waiting.set(number, { receiver, intake, credit, settle })
    })
    this.#write(encode("open", number, bytesOf(JSON.stringify(order))))
    void this.#send(number, credit, input)
    return ended
  }

  /** Asks for a sign of life. Never rejects; the caller closes the channel on a timeout. */
  ping(answered: (pong: PingReply) => void): void {
    this.#pong = answered
    this.#write(encode("ping", 0))
  }

  /** Closes the connection; pending calls are cut. */
  close(): void {
    this.#byItself = false
    this.#child.stdin?.destroy()
    this.#kill()
    this.#close("")
  }

  async #send(number: number, credit: Credit, input: CallOptions["input"]): Promise<void> {
    const bodies = input instanceof Uint8Array ? [input] : (input ?? [])
    for await (const body of bodies)
      for (const frame of inFrames("data", number, body)) {
        await credit.spend(frame.length - HEAD_BYTES)
        if (!this.#waiting.has(number)) return
        await this.#write(frame)
      }
    await this.#write(encode("end", number))
  }

  /** Resolves when the stream can take more; at once when it is closed. */
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

  #hear(chunk: Uint8Array): void {
    if (this.#isClosed) return
    if (!this.#isHeard) this.#ports.heard()
    this.#isHeard = true
    try {
      for (const frame of this.#frames.take(chunk)) this.#take(frame)
    } catch (error) {
      this.#kill()
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
    if (kind === "more") waiting?.credit.give(body)
    if (waiting && (kind === "data" || kind === "errors")) this.#receive(waiting, kind, body)
    if (kind === "end") waiting?.settle(endIn(textOf(body)))
  }

  #receive({ receiver, intake }: Waiting, kind: "data" | "errors", body: Uint8Array): void {
    intake.arrive(body.length)
    const taking = receiver[kind]?.(body)
    if (taking) void taking.then(() => intake.take(body.length))
    else intake.take(body.length)
  }

  #close(why: string): void {
    if (this.#isClosed) return
    this.#isClosed = true
    for (const { settle } of [...this.#waiting.values()]) settle(new ConnectionLost("the connection was cut"))
    const complaint = this.#complaint.trim() === "" ? why : this.#complaint
    this.#ports.closed({ complaint, byItself: this.#byItself, started: this.#isOpen })
  }

  /** Kills the whole group: children of a wrapper would keep the connection open. */
  #kill(): void {
    try {
      if (this.#child.pid !== undefined) process.kill(-this.#child.pid, "SIGKILL")
    } catch {
      // It has ended.
    }
  }
}
