import { messageOf } from "../../core/errors.ts"
import type { Clock } from "../../core/ports.ts"
import { oneLine } from "../../lib/text.ts"
import { opening } from "./bootstrap.ts"
import { type CallOptions, Channel, type ChannelPorts, Cut } from "./channel.ts"
import { IDLE, lastLine, pauseBefore, type Reach, type ReachInput, reasonOf, step } from "./connection-state.ts"
import { RemoteEventStream } from "./event-stream.ts"
import { textOf } from "./frames.ts"
import { Pulse, SILENT } from "./heartbeat.ts"
import {
  type CallEnd,
  type Hello,
  type Hint,
  isHello,
  type Order,
  type RelaySettings,
  type Served,
  servedIn,
} from "./orders.ts"

/** How long the relay may take to start once the host has said anything: a busy machine is slow, and there, in ms. */
const RELAY_START_MS = 30_000
/** How long the connection is kept when nobody has a task there any more. */
const KEPT_MS = 600_000

export type LinkSettings = {
  readonly name: string
  readonly command: readonly string[]
  readonly opencode: string
  /** Of one attempt, in ms. */
  readonly connectTimeout: number
  readonly relay: RelaySettings
}

export type LinkPorts = {
  readonly clock: Clock
  /** The relay's script. */
  readonly script: () => Promise<string>
  /** What is known of the way to the host has changed. */
  readonly changed: (reach: Reach, before: Reach) => void
  /** Something happened there; undefined: from now on that is told. */
  readonly heard: (hint: Hint | undefined) => void
  readonly log: (text: string) => void
  readonly open?: (ports: ChannelPorts) => Line
}

const NOT_OURS =
  "what answers there is not the script that was sent. Its command has to run a line of shell there, and to pass what that prints through unchanged."

/** A connection, as the link uses it. */
export type Line = Pick<Channel, "call" | "ping" | "close">

/** That the host cannot be reached now, or not at all. */
export class NoContact extends Error {
  override readonly name = "NoContact"
}

/** What a host said of itself at the present contact. */
export type Contact = {
  /** Its clock less this one's, in ms. */
  readonly skew: number
  /** Where its caches lie. */
  readonly cache: string
  readonly server: Served
}

/**
 * The way to one host: at most one connection, made when somebody needs it, made again when it is lost, and let go when
 * nobody has needed it for a while. Nothing runs while nobody does.
 */
export class Link {
  readonly #settings: LinkSettings
  readonly #ports: LinkPorts
  #reach: Reach = IDLE
  #channel: Line | undefined
  #contact: Contact | undefined
  #far = { skew: 0, cache: "" }
  #opening = false
  readonly #users = new Set<string>()
  readonly #waiting = new Set<() => void>()
  #cancelPause: () => void = () => {}
  #pulse: Pulse | undefined
  readonly #eventStream: RemoteEventStream
  #cancelRest: () => void = () => {}
  /** The connection is kept though nobody needs it: OpenCode there may have ended meanwhile. */
  #rests = false

  constructor(settings: LinkSettings, ports: LinkPorts) {
    this.#settings = settings
    this.#ports = ports
    const { clock, heard } = ports
    this.#eventStream = new RemoteEventStream({ clock, heard, call: (order, options) => this.call(order, options) })
  }

  /** True while what happens there is told, so that nobody has to look often. */
  get hears(): boolean {
    return this.#eventStream.hears
  }

  get reach(): Reach {
    return this.#reach
  }

  /** What is known of the host while it is in contact. */
  get contact(): Contact | undefined {
    return this.#reach.phase === "contact" && !this.#rests ? this.#contact : undefined
  }

  /** Somebody has a task there from now on. `known`: it was reached before, so that it is tried until it is reached. */
  use(user: string, known = false): void {
    this.#users.add(user)
    this.#cancelRest()
    if (this.#rests && this.#channel) void this.#served(this.#channel)
    this.#rests = false
    this.#put({ type: "wanted", known })
  }

  /** Nobody of this name needs it any more. */
  release(user: string): void {
    if (!this.#users.delete(user) || this.#users.size > 0) return
    this.#eventStream.rest()
    if (this.contact) void this.call({ do: "rest" }).catch(() => {})
    this.#rests = true
    this.#cancelRest = this.#ports.clock.after(KEPT_MS, () => this.close())
  }

  /** Resolves at contact; rejects with `NoContact` where that is given up, or `signal` fires. */
  reached(signal?: AbortSignal): Promise<Contact> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const { contact } = this
        const reach = this.#reach
        if (contact) return settle(() => resolve(contact))
        if (reach.phase === "ended") return settle(() => reject(new NoContact(reach.why)))
        if (signal?.aborted || reach.phase === "idle") settle(() => reject(new NoContact("it was stopped")))
      }
      const settle = (answer: () => void) => {
        this.#waiting.delete(look)
        signal?.removeEventListener("abort", look)
        answer()
      }
      this.#waiting.add(look)
      signal?.addEventListener("abort", look)
      look()
    })
  }

  /** Rejects with `NoContact` at once where there is none, and where it is lost meanwhile. */
  async call(order: Order, options?: CallOptions): Promise<CallEnd> {
    const channel = this.#channel
    if (!this.contact || !channel) throw new NoContact(`there is no contact with ${this.#settings.name}`)
    try {
      const end = await channel.call(order, options)
      if (!end.isServerGone) return end
      if (this.#channel === channel) this.#drop(SILENT)
      throw new NoContact(`${this.#settings.name}: ${SILENT}`)
    } catch (error) {
      if (error instanceof Cut) throw new NoContact(`the connection to ${this.#settings.name} was cut`)
      throw error
    }
  }

  /** Ends the connection. */
  close(): void {
    this.#cancelRest()
    this.#cancelPause()
    const channel = this.#channel
    this.#leave()
    this.#put({ type: "unwanted" })
    channel?.close()
  }

  #put(input: ReachInput): void {
    const { clock, changed } = this.#ports
    const before = this.#reach
    this.#reach = step(before, input, clock.now())
    if (before === this.#reach) return
    if (this.#reach.phase !== before.phase) changed(this.#reach, before)
    for (const look of [...this.#waiting]) look()
    this.#attempt()
  }

  #attempt(): void {
    const { clock } = this.#ports
    if (this.#channel || this.#opening) return
    const pause = pauseBefore(this.#reach, clock.now())
    this.#cancelPause()
    if (pause === undefined) {
      if (this.#reach.phase === "no contact") void this.#open()
      return
    }
    this.#cancelPause = clock.after(pause, () => {
      this.#put({ type: "due" })
      if (this.#reach.phase !== "contact" && !this.#channel) void this.#open()
    })
  }

  async #open(): Promise<void> {
    if (this.#opening || this.#channel) return
    this.#opening = true
    const { clock, script, log, open = (ports) => new Channel(ports) } = this.#ports
    const { command, relay, opencode, connectTimeout } = this.#settings
    try {
      const text = opening(await script(), relay, opencode)
      // Nobody may need it any more.
      if (pauseBefore(this.#reach, clock.now()) === undefined && this.#reach.phase !== "no contact") {
        this.#opening = false
        return
      }
      let cancel = () => {}
      const within = (ms: number) => {
        cancel()
        if (connectTimeout > 0) cancel = clock.after(ms, () => this.#drop(`no answer within ${ms / 1000} s`))
      }
      const channel: Line = open({
        command,
        opening: text,
        heard: () => within(Math.max(connectTimeout, RELAY_START_MS)),
        opened: (hello) => {
          cancel()
          void this.#greet(channel, hello)
        },
        closed: ({ complaint, byItself }) => {
          cancel()
          if (this.#channel !== channel) return
          this.#leave()
          log(`connection closed: ${lastLine(complaint)}`)
          this.#lost({ type: "closed", byItself, ...reasonOf(complaint, this.#settings.name) })
        },
      })
      this.#channel = channel
      within(connectTimeout)
    } catch (error) {
      this.#opening = false
      const why = `${this.#settings.name} could not be reached: ${messageOf(error)}`
      return this.#lost({ type: "closed", byItself: true, fatal: true, why })
    }
    this.#opening = false
  }

  /** The relay is there: OpenCode is started, its clock compared. */
  async #greet(channel: Line, hello: Hello): Promise<void> {
    if (!isHello(hello)) return this.#refuse(channel, NOT_OURS)
    const { now, cache } = hello
    this.#far = { skew: now - this.#ports.clock.now(), cache }
    this.#pulse = new Pulse(channel, this.#ports.clock, (why) => this.#drop(why))
    await this.#served(channel)
  }

  /** Has OpenCode run there; from then on there is contact. */
  async #served(channel: Line): Promise<void> {
    this.#contact = undefined
    try {
      let text = ""
      const data = (body: Uint8Array) => {
        text += textOf(body)
      }
      const { problem } = await channel.call({ do: "serve" }, { receiver: { data } })
      if (this.#channel !== channel) return
      if (problem !== undefined) return this.#refuse(channel, oneLine(problem))
      const server = servedIn(text)
      if (!server) return this.#refuse(channel, "what it says of its OpenCode cannot be read")
      this.#contact = { ...this.#far, server }
      const known = this.#reach
      this.#put({ type: "opened" })
      // It was kept for nobody: who comes now finds out what was owed, as after a loss.
      if (known.phase === "contact") this.#ports.changed(this.#reach, known)
      for (const look of [...this.#waiting]) look()
      this.#eventStream.listen()
    } catch {
      // It was cut: that is told already.
    }
  }

  /** There is a way, and nothing that can be used at its end. */
  #refuse(channel: Line, why: string): void {
    if (this.#channel !== channel) return
    this.#leave()
    channel.close()
    this.#put({ type: "closed", byItself: true, why: `${this.#settings.name} cannot be used: ${why}` })
  }

  /** The connection is not used any more. */
  #leave(): void {
    this.#channel = undefined
    this.#pulse?.stop()
    this.#eventStream.rest()
  }

  #drop(why: string): void {
    const channel = this.#channel
    if (!channel) return
    this.#leave()
    channel.close()
    this.#lost({ type: "closed", byItself: false, why: `${this.#settings.name}: ${why}` })
  }

  /** Where nobody needs it, it is not made again. */
  #lost(closed: ReachInput): void {
    if (this.#users.size > 0) this.#put(closed)
    else this.close()
  }
}
