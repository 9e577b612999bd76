import { messageOf } from "../../core/errors.ts"
import type { Clock } from "../../core/ports.ts"
import { oneLine } from "../../lib/text.ts"
import { PlaceError } from "../../runtime/places/place.ts"
import {
  bootstrapLines,
  type CallOptions,
  Channel,
  type ChannelPorts,
  ConnectionLost,
  RemoteEventStream,
  type RemoteEventStreamPorts,
} from "./channel.ts"
import {
  type ConnectionInput,
  type ConnectionState,
  IDLE,
  lastLine,
  pauseBefore,
  reasonOf,
  step,
} from "./connection-state.ts"
import { textOf } from "./frames.ts"
import type { HostSettings } from "./options.ts"
import {
  type CallEnd,
  isHello,
  type Order,
  type PingReply,
  parseServerState,
  type RelayHello,
  type RelaySettings,
  type RemoteServerState,
} from "./orders.ts"

/** Interval and time limit of pings, in ms. */
const PING_MS = 4000
const PONG_LIMIT_MS = 10_000

const SILENT = "OpenCode there does not answer any more"

/**
 * Pings the relay until `stop` is called. `died` is called once with the reason: no answer came, or OpenCode's server
 * hangs although the connection works.
 */
class Heartbeat {
  readonly #channel: Pick<Channel, "ping">
  readonly #clock: Clock
  readonly #died: (why: string) => void
  #silentSince: number | undefined
  #cancel: () => void = () => {}
  #isOver = false

  constructor(channel: Pick<Channel, "ping">, clock: Clock, died: (why: string) => void) {
    this.#channel = channel
    this.#clock = clock
    this.#died = died
    this.#ask()
  }

  stop(): void {
    this.#isOver = true
    this.#cancel()
  }

  #ask(): void {
    const limit = this.#clock.after(PONG_LIMIT_MS, () => this.#end("it does not answer any more"))
    this.#cancel = limit
    let isAnswered = false
    this.#channel.ping((pong) => {
      limit()
      if (this.#isOver || isAnswered) return
      isAnswered = true
      if (this.#isSilent(pong)) return this.#end(SILENT)
      this.#cancel = this.#clock.after(PING_MS, () => this.#ask())
    })
  }

  #isSilent({ server }: PingReply): boolean {
    const now = this.#clock.now()
    if (server !== false) this.#silentSince = undefined
    else this.#silentSince ??= now
    return this.#silentSince !== undefined && now - this.#silentSince >= PING_MS
  }

  #end(why: string): void {
    if (this.#isOver) return
    this.stop()
    this.#died(why)
  }
}

/**
 * Longest time in which nothing of an order is sent or received, in ms. An order runs a few programs on the host, each of
 * which has a limit of 15 minutes at most.
 */
const STILL_LIMIT_MS = 3_600_000

const STILL = "an order there neither ends nor goes on"

/** Options of a call for which `late` is called once nothing of it has moved for too long. `over` ends this watch. */
function watched({ input, receiver, signal }: CallOptions, clock: Clock, late: () => void) {
  let movedAt = clock.now()
  let over = () => {}
  const moved = () => {
    movedAt = clock.now()
  }
  const look = () => {
    const left = movedAt + STILL_LIMIT_MS - clock.now()
    if (left <= 0) late()
    else over = clock.after(left, look)
  }
  async function* sent(bodies: AsyncIterable<Uint8Array>) {
    for await (const body of bodies) {
      moved()
      yield body
    }
  }
  const options: CallOptions = {
    input: input && !(input instanceof Uint8Array) ? sent(input) : input,
    receiver: {
      head: (body) => {
        moved()
        receiver?.head?.(body)
      },
      data: (body) => {
        moved()
        return receiver?.data?.(body)
      },
    },
    signal,
  }
  look()
  return { options, over: () => over() }
}

/** Time limit for the relay's start after the host's first output, in ms. */
const RELAY_START_MS = 30_000
/** How long an unused connection is kept. */
const KEPT_MS = 600_000

type LinkSettings = Pick<HostSettings, "opencode" | "connectTimeout"> & {
  readonly name: string
  readonly command: readonly string[]
  readonly relay: RelaySettings
}

type LinkPorts = Omit<RemoteEventStreamPorts, "call"> & {
  /** Reads the relay's JavaScript source. */
  readonly script: () => Promise<string>
  /** Called when the phase changes, and when a new user of an idle connection gets contact. */
  readonly changed: (state: ConnectionState, before: ConnectionState) => void
  readonly log: (text: string) => void
  readonly open?: (ports: ChannelPorts) => ChannelApi
}

const NOT_OURS =
  "what answers there is not the script that was sent. Its command has to run a line of shell there, and to pass what that prints through unchanged."

const UNREADABLE_STATE = "what it says of its OpenCode cannot be read"
/** Longest text that is read about a server. */
const MOST_STATE_CHARS = 10_000

type ChannelApi = Pick<Channel, "call" | "ping" | "close">

/** Error of a call to a host that is out of reach, for now or for good. */
export class NoContact extends Error {
  override readonly name = "NoContact"
}

/** Facts that a host reported at the present contact. */
export type Contact = {
  /** The host's clock minus this machine's, in ms. */
  readonly skew: number
  /** Path of the host's cache folder. */
  readonly cache: string
  readonly server: RemoteServerState
}

/** One host's connection: opened on demand, reopened after a loss, and closed some time after its last use. */
export class HostConnection {
  readonly #settings: LinkSettings
  readonly #ports: LinkPorts
  #state: ConnectionState = IDLE
  #channel: ChannelApi | undefined
  #contact: Contact | undefined
  #hostFacts = { skew: 0, cache: "" }
  #opening = false
  readonly #users = new Set<string>()
  readonly #waiting = new Set<() => void>()
  #cancelPause: () => void = () => {}
  #heartbeat: Heartbeat | undefined
  readonly #eventStream: RemoteEventStream
  #cancelClose: () => void = () => {}
  /** True while the connection is kept without users. OpenCode's server on the host may end in this time. */
  #isUnused = false

  constructor(settings: LinkSettings, ports: LinkPorts) {
    this.#settings = settings
    this.#ports = ports
    this.#eventStream = new RemoteEventStream({ ...ports, call: (order, options) => this.call(order, options) })
  }

  /** True while the host reports activity by events, so that polling may be rare. */
  get hears(): boolean {
    return this.#eventStream.hears
  }

  get reach(): ConnectionState {
    return this.#state
  }

  /** Facts about the host; undefined without contact, and while the connection has no users. */
  get contact(): Contact | undefined {
    return this.#state.phase === "contact" && !this.#isUnused ? this.#contact : undefined
  }

  /** Adds a user of the connection. `known`: there was contact before, so attempts never end. */
  use(user: string, known = false): void {
    this.#users.add(user)
    this.#cancelClose()
    if (this.#isUnused && this.#channel) void this.#startServer(this.#channel)
    this.#isUnused = false
    this.#apply({ type: "wanted", known })
  }

  /** Removes a user. Some time after the last one has left, the connection is closed. */
  release(user: string): void {
    if (!this.#users.delete(user) || this.#users.size > 0) return
    this.#eventStream.stopListening()
    if (this.contact) void this.call({ do: "rest" }).catch(() => {})
    this.#isUnused = true
    this.#cancelClose = this.#ports.clock.after(KEPT_MS, () => this.close())
  }

  /** Resolves at contact. Rejects with `NoContact` where attempts end, or `signal` is aborted. */
  reached(signal?: AbortSignal): Promise<Contact> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const { contact } = this
        const state = this.#state
        if (contact) return settle(() => resolve(contact))
        if (state.phase === "ended") return settle(() => reject(new NoContact(state.why)))
        if (signal?.aborted || state.phase === "idle") settle(() => reject(new NoContact("it was stopped")))
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

  /**
   * Runs an order on the host. Rejects with `NoContact` if there is no contact, or contact is lost during the call. A host
   * that answers, but does not carry an order out, loses contact, and the order is not repeated.
   */
  async call(order: Order, options: CallOptions = {}): Promise<CallEnd> {
    const channel = this.#channel
    if (!this.contact || !channel) throw new NoContact(`there is no contact with ${this.#settings.name}`)
    const drop = (why: string) => {
      if (this.#channel === channel) this.#drop(why)
    }
    let isHanging = false
    const late = () => {
      isHanging = true
      drop(STILL)
    }
    // Events may be far apart.
    const watch = order.do === "listen" ? undefined : watched(options, this.#ports.clock, late)
    try {
      const end = await channel.call(order, watch?.options ?? options)
      if (!end.isServerGone) return end
      drop(SILENT)
      throw new NoContact(`${this.#settings.name}: ${SILENT}`)
    } catch (error) {
      if (isHanging) throw new PlaceError(`${this.#settings.name}: ${STILL}.`, "host")
      if (error instanceof ConnectionLost) throw new NoContact(`the connection to ${this.#settings.name} was cut`)
      throw error
    } finally {
      watch?.over()
    }
  }

  close(): void {
    this.#cancelClose()
    this.#cancelPause()
    const channel = this.#channel
    this.#forgetChannel()
    this.#apply({ type: "unwanted" })
    channel?.close()
  }

  #apply(input: ConnectionInput): void {
    const { clock, changed } = this.#ports
    const before = this.#state
    this.#state = step(before, input, clock.now())
    if (before === this.#state) return
    if (this.#state.phase !== before.phase) changed(this.#state, before)
    for (const look of [...this.#waiting]) look()
    this.#attempt()
  }

  #attempt(): void {
    const { clock } = this.#ports
    if (this.#channel || this.#opening) return
    const pause = pauseBefore(this.#state, clock.now())
    this.#cancelPause()
    if (pause === undefined) {
      if (this.#state.phase === "no contact") void this.#open()
      return
    }
    this.#cancelPause = clock.after(pause, () => {
      this.#apply({ type: "due" })
      if (this.#state.phase !== "contact" && !this.#channel) void this.#open()
    })
  }

  async #open(): Promise<void> {
    if (this.#opening || this.#channel) return
    this.#opening = true
    const { clock, script, log, open = (ports) => new Channel(ports) } = this.#ports
    const { command, relay, opencode, connectTimeout } = this.#settings
    try {
      const text = bootstrapLines(await script(), relay, opencode)
      // No attempt is due any more: the last user may have left meanwhile.
      if (pauseBefore(this.#state, clock.now()) === undefined && this.#state.phase !== "no contact") {
        this.#opening = false
        return
      }
      let cancel = () => {}
      const within = (ms: number) => {
        cancel()
        if (connectTimeout > 0) cancel = clock.after(ms, () => this.#drop(`no answer within ${ms / 1000} s`))
      }
      const channel: ChannelApi = open({
        command,
        opening: text,
        onActivity: () => within(Math.max(connectTimeout, RELAY_START_MS)),
        opened: (hello) => {
          cancel()
          void this.#onHello(channel, hello)
        },
        closed: ({ complaint, byItself }) => {
          cancel()
          if (this.#channel !== channel) return
          this.#forgetChannel()
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

  /** Called when the relay has started: compares the clocks and starts OpenCode's server. */
  async #onHello(channel: ChannelApi, hello: RelayHello): Promise<void> {
    if (!isHello(hello)) return this.#refuse(channel, NOT_OURS)
    const { now, cache } = hello
    this.#hostFacts = { skew: now - this.#ports.clock.now(), cache }
    this.#heartbeat = new Heartbeat(channel, this.#ports.clock, (why) => this.#drop(why))
    await this.#startServer(channel)
  }

  /** Starts OpenCode's server on the host. Contact begins when the server answers. */
  async #startServer(channel: ChannelApi): Promise<void> {
    this.#contact = undefined
    try {
      let text = ""
      const data = (body: Uint8Array) => {
        text += textOf(body)
        if (text.length > MOST_STATE_CHARS) this.#refuse(channel, UNREADABLE_STATE)
      }
      const { problem } = await channel.call({ do: "serve" }, { receiver: { data } })
      if (this.#channel !== channel) return
      if (problem !== undefined) return this.#refuse(channel, oneLine(problem))
      const server = parseServerState(text)
      if (!server) return this.#refuse(channel, UNREADABLE_STATE)
      this.#contact = { ...this.#hostFacts, server }
      const known = this.#state
      this.#apply({ type: "opened" })
      // Report contact to the new user of an idle connection as after a loss. The report also starts pending cleanups.
      if (known.phase === "contact") this.#ports.changed(this.#state, known)
      for (const look of [...this.#waiting]) look()
      this.#eventStream.listen()
    } catch {
      // The loss of the connection was reported already.
    }
  }

  /** Closes the channel to a host that answers but cannot be used. `why`: the reason. */
  #refuse(channel: ChannelApi, why: string): void {
    if (this.#channel !== channel) return
    this.#forgetChannel()
    channel.close()
    this.#apply({ type: "closed", byItself: true, why: `${this.#settings.name} cannot be used: ${why}` })
  }

  /** Forgets the channel, and stops its pings and events. */
  #forgetChannel(): void {
    this.#channel = undefined
    this.#heartbeat?.stop()
    this.#eventStream.stopListening()
  }

  #drop(why: string): void {
    const channel = this.#channel
    if (!channel) return
    this.#forgetChannel()
    channel.close()
    this.#lost({ type: "closed", byItself: false, why: `${this.#settings.name}: ${why}` })
  }

  /** Handles the loss of a connection, which is opened again only if it has users. */
  #lost(closed: ConnectionInput): void {
    if (this.#users.size > 0) this.#apply(closed)
    else this.close()
  }
}
