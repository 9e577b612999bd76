import { randomBytes } from "node:crypto"
import { messageOf } from "../../core/errors.ts"
import type { Clock } from "../../core/ports.ts"
import { fetchDirectly } from "../../lib/http.ts"
import { type Address, ensureKeys, portOf, portsOfOthers, randomPart, readAddress, writeAddress } from "./address.ts"
import { proofOf } from "./app.ts"
import type { Fetch, Listener } from "./http.ts"
import type { Log } from "./ports.ts"

/** Interval at which a process that does not serve the page checks the serving process, in ms. */
export const LOOK_MS = 20_000
/** Delay after which a new server checks whether another server started at the same time, in ms. */
const SETTLE_MS = 2000
const PROOF_LIMIT_MS = 2000
/** Length of a proof: a SHA-256 in hex. */
const PROOF_CHARS = 64
/** Number of ports that are tried, because each project needs its own port. */
const PORTS = 20

export type LeaderPorts = {
  readonly file: string
  readonly port: number
  readonly host: string
  readonly clock: Clock
  readonly log: Log
  readonly listen: (fetch: Fetch, port: number, host: string) => Promise<Listener | undefined>
  readonly app: (address: Address) => Fetch
  /** Reads an address; rejects without an answer in time. */
  readonly get?: (url: string, limit: number) => Promise<string>
}

/**
 * Elects the process that serves a project's page: the first to take a port. Followers find it by the file and take
 * over when it is gone.
 *
 *     looking ──► serving ──► looking (another one serves as well)
 *        ▲  │
 *        │  └───► following ──┐
 *        └────────────────────┘ every LOOK_MS
 */
export class Leader {
  readonly #ports: LeaderPorts
  #state: "looking" | "serving" | "following" | "stopped" = "looking"
  #listener: Listener | undefined
  #followed = ""
  /** The problem that was reported last. A problem may last as long as OpenCode runs and is reported only once. */
  #problem = ""
  #later: () => void = () => {}

  constructor(ports: LeaderPorts) {
    this.#ports = ports
  }

  get state() {
    return this.#state
  }

  /** Serves the page, or follows the process that serves it, and repeats this check by itself. Never rejects. */
  async take(): Promise<void> {
    if (this.#state === "stopped") return
    const { log, clock } = this.#ports
    try {
      await this.#look()
      this.#problem = ""
    } catch (error) {
      const problem = messageOf(error)
      if (problem !== this.#problem) log("warn", "the page cannot be served", { error: problem })
      this.#problem = problem
      // A server whose address could not be written is found by nobody. It starts again with the next look.
      await this.#close()
      this.#state = this.#stopped() ? "stopped" : "following"
    }
    if (this.#stopped()) return this.#close()
    this.#later = clock.after(this.#state === "serving" ? SETTLE_MS : LOOK_MS, () => {
      void (this.#state === "serving" ? this.#settle() : this.take())
    })
  }

  async stop(): Promise<void> {
    this.#state = "stopped"
    this.#later()
    await this.#close()
  }

  #stopped(): boolean {
    return this.#state === "stopped"
  }

  async #close(): Promise<void> {
    const listener = this.#listener
    this.#listener = undefined
    await listener?.close()
  }

  async #look(): Promise<void> {
    const { file } = this.#ports
    const keys = ensureKeys(file)
    const known = readAddress(file)?.url ?? ""
    if (known !== "" && (await this.#isOurs(known, keys.token))) return this.#follow(known)
    await this.#sit(keys, portOf(known))
  }

  async #sit(keys: Pick<Address, "token" | "key">, before: number | undefined): Promise<void> {
    const { port, host, listen, file, log, app } = this.#ports
    for (const each of portsToTry(port, before, portsOfOthers(file))) {
      let answer: Fetch = () => new Response(null, { status: 503 })
      const listener = await listen((request) => answer(request), each, host)
      if (!listener) {
        // Another process has just taken this port: follow it if it serves this project's page, else try the next port.
        if (each !== 0 && (await this.#isOurs(urlOf(host, each), keys.token))) return this.#follow(urlOf(host, each))
        continue
      }
      const url = urlOf(host, listener.port)
      const address = { ...keys, url, boot: randomPart(6) }
      answer = app(address)
      this.#listener = listener
      if (this.#stopped()) return
      this.#state = "serving"
      writeAddress(file, address)
      log("info", "the page is served here; the file has its key", { url, file })
      return
    }
    throw new Error(`ports ${port} to ${port + PORTS - 1} are taken (option web.port)`)
  }

  /** If two servers run, this one stops unless the file names it. */
  async #settle(): Promise<void> {
    const { file, host, log } = this.#ports
    try {
      const named = readAddress(file)
      const mine = this.#listener && urlOf(host, this.#listener.port)
      if (!named || named.url === mine || !(await this.#isOurs(named.url, named.token)) || this.#stopped()) return
      await this.#close()
      this.#follow(named.url)
      this.#later = this.#ports.clock.after(LOOK_MS, () => void this.take())
    } catch (error) {
      log("warn", "the page's address could not be read", { error: String(error) })
    }
  }

  #follow(url: string): void {
    if (this.#stopped()) return
    this.#state = "following"
    if (url !== this.#followed) this.#ports.log("info", "the page is served by another OpenCode process", { url })
    this.#followed = url
  }

  /** Whether a server of this project answers at `url`. The token itself is not sent. */
  async #isOurs(url: string, token: string): Promise<boolean> {
    const nonce = randomBytes(16).toString("hex")
    const { get = getText } = this.#ports
    try {
      return (await get(`${url}/proof/${nonce}`, PROOF_LIMIT_MS)) === proofOf(token, nonce)
    } catch {
      return false
    }
  }
}

/**
 * Ports in the order in which they are tried; ports of other projects come last. If the option allows the project's
 * last port, this port comes first, because web sessions belong to it.
 */
export function portsToTry(port: number, before: number | undefined, others: ReadonlySet<number>): readonly number[] {
  if (port === 0) return before === undefined ? [0] : [before, 0]
  const range = Array.from({ length: PORTS }, (_, index) => port + index)
  const own = range.filter((each) => each === before)
  const free = range.filter((each) => each !== before && !others.has(each))
  return [...own, ...free, ...range.filter((each) => each !== before && others.has(each))]
}

export const urlOf = (host: string, port: number): string => `http://${host.includes(":") ? `[${host}]` : host}:${port}`

/** Reads no more than a proof can have: whoever has the port, such as another user, may send without end. */
async function getText(url: string, limit: number): Promise<string> {
  const { body } = await fetchDirectly(url, { signal: AbortSignal.timeout(limit), redirect: "error" })
  const reader = body?.getReader()
  let text = ""
  for (let read = await reader?.read(); read?.value; read = await reader?.read()) {
    text += Buffer.from(read.value).toString("latin1")
    if (text.length > PROOF_CHARS) {
      await reader?.cancel()
      throw new Error("This is no proof.")
    }
  }
  return text
}
