import { DAY_MS } from "../../core/bill.ts"
import type { Clock } from "../../core/ports.ts"
import { readJson, replaceFileSync } from "../../lib/atomic-file.ts"
import { randomPart } from "./codes.ts"
import type { Log } from "./ports.ts"

/** An unused web session expires after this time, in ms. */
export const WEB_SESSION_MS = DAY_MS
/** Precision of the stored last use, in ms. */
const SAVE_MS = 600_000
/** Above this number, sessions unused for longest are dropped. */
const MOST_PASSES = 64
const PASS = /^p\.(\d+)\.[\w-]{22}$/

type WebSessionPorts = {
  readonly file: string
  /** Port of the page. */
  readonly port: number
  readonly clock: Pick<Clock, "now">
  readonly log: Log
}

/**
 * Signed-in web sessions with their last use. Stored without secrets, which are derived, so they survive restarts; each
 * belongs to a port and ends when the page moves to another, because a later server at the old port could use the
 * browser's key.
 */
export class WebSessions {
  readonly #ports: WebSessionPorts
  /** Last use by session id. */
  readonly #used: Map<string, number>
  /** Last uses as stored. */
  readonly #saved: Map<string, number>
  /** Functions that end each session's open streams; an open page counts as use. */
  readonly #streams = new Map<string, Set<() => void>>()

  constructor(ports: WebSessionPorts) {
    this.#ports = ports
    const written = read(ports.file)
    this.#used = new Map([...written].filter(([id]) => portIn(id) === ports.port))
    this.#saved = new Map(this.#used)
    if (this.#used.size < written.size) this.#save()
  }

  /** Creates a session and returns its id. */
  issue(): string {
    const id = `p.${this.#ports.port}.${randomPart(16)}`
    this.#used.set(id, this.#ports.clock.now())
    this.#save()
    return id
  }

  isLive(id: string): boolean {
    const used = this.#used.get(id)
    return used !== undefined && (this.#streams.has(id) || this.#ports.clock.now() - used < WEB_SESSION_MS)
  }

  use(id: string): void {
    const now = this.#ports.clock.now()
    this.#used.set(id, now)
    if (now - (this.#saved.get(id) ?? 0) >= SAVE_MS) this.#save()
  }

  /**
   * Registers a stream of a web session; `end` is called when the web session is ended. The caller calls the result
   * when the stream closes.
   */
  open(id: string, end: () => void): () => void {
    const streams = this.#streams.get(id) ?? new Set()
    this.#streams.set(id, streams.add(end))
    return () => {
      streams.delete(end)
      if (streams.size > 0 || this.#streams.get(id) !== streams) return
      this.#streams.delete(id)
      if (this.#used.has(id)) this.use(id)
    }
  }

  end(id: string): void {
    const streams = this.#streams.get(id) ?? []
    this.#streams.delete(id)
    this.#used.delete(id)
    this.#save()
    for (const end of [...streams]) end()
  }

  /** If storing fails, sessions last until the process ends. */
  #save(): void {
    const { file, log } = this.#ports
    for (const id of this.#used.keys()) if (!this.isLive(id)) this.#used.delete(id)
    const lastUse = ([id, used]: readonly [string, number]) => (this.#streams.has(id) ? Number.POSITIVE_INFINITY : used)
    const kept = [...this.#used].toSorted((one, other) => lastUse(other) - lastUse(one) || 0).slice(0, MOST_PASSES)
    this.#used.clear()
    this.#saved.clear()
    for (const [id, used] of kept) {
      this.#used.set(id, used)
      this.#saved.set(id, used)
    }
    try {
      replaceFileSync(file, JSON.stringify(Object.fromEntries(kept)))
    } catch (error) {
      log("warn", "the page's sessions could not be written down", { error: String(error) })
    }
  }
}

const portIn = (id: string): number => Number(PASS.exec(id)?.[1])

function read(file: string): Map<string, number> {
  const found = Object.entries(readJson(file) ?? {})
  return new Map(found.filter((entry): entry is [string, number] => PASS.test(entry[0]) && Number.isFinite(entry[1])))
}
