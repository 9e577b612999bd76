import { DAY_MS } from "../../core/bill.ts"
import type { Clock } from "../../core/ports.ts"
import { readJson, replaceSync } from "../../lib/atomic-file.ts"
import { randomPart } from "./codes.ts"
import type { Log } from "./ports.ts"

/** Without use for so long, a session of the page ends, in ms. */
export const WEB_SESSION_MS = DAY_MS
/** How exactly the time of the last use is written down, in ms. */
const SAVE_MS = 600_000
/** The longest unused go first. */
const MOST_PASSES = 64
const PASS = /^p\.(\d+)\.[\w-]{22}$/

type WebSessionPorts = {
  readonly file: string
  /** Where the page is served. */
  readonly port: number
  readonly clock: Pick<Clock, "now">
  readonly log: Log
}

/**
 * The sessions of the page that are signed in, and when each was last used. The file has no secret: those are derived.
 * It outlives the process, so that a page comes back after a restart.
 *
 * Each belongs to one port, and ends when the page is served at another: whoever has the old one by then can load a page
 * in the browser that uses what is kept there, though it cannot read it.
 */
export class WebSessions {
  readonly #ports: WebSessionPorts
  /** When each was last used, by its id. */
  readonly #used: Map<string, number>
  /** What was written down of that. */
  readonly #saved: Map<string, number>
  /** How to end the streams that are open for each: a page that is open is in use. */
  readonly #streams = new Map<string, Set<() => void>>()

  constructor(ports: WebSessionPorts) {
    this.#ports = ports
    const written = read(ports.file)
    this.#used = new Map([...written].filter(([id]) => portIn(id) === ports.port))
    this.#saved = new Map(this.#used)
    if (this.#used.size < written.size) this.#save()
  }

  /** A new one; returns its id. */
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

  /** A stream is open for this one; `end` is called when the session is ended. Returns how to tell that it was left. */
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

  /** What cannot be written down holds all the same, until the process ends. */
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
      replaceSync(file, JSON.stringify(Object.fromEntries(kept)))
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
