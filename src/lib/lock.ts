import { randomBytes } from "node:crypto"
import { mkdir, open, readdir, stat, unlink, utimes } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { SerialQueue } from "./promises.ts"

/** Identifies a process; `place`: machine, boot and container. */
export type ProcessMark = { readonly place: string; readonly pid: number; readonly started: string }

export type Processes = {
  readonly self: ProcessMark
  /** Whether the marked process is alive; undefined where this process cannot tell. */
  readonly isAlive: (mark: ProcessMark) => boolean | undefined
}

/** How long a claim counts that is not renewed, if its process cannot be checked. In ms. */
const UNSEEN_CLAIM_MS = 30_000
const RENEW_MS = 10_000
const PAUSES_MS = [1, 2, 5, 10, 20, 40]

/** Callers of this process queue here, so that only the first of them polls the file system. */
const queue = new SerialQueue()

/**
 * Lock between processes, which becomes free when its holder dies. A process adds a file with a unique name to the
 * folder and holds the lock if no other live process has a file there; otherwise the later process withdraws.
 */
export class Lock {
  readonly #folder: string
  readonly #name: string
  readonly #processes: Processes

  constructor(folder: string, name: string, processes: Processes) {
    this.#folder = folder
    this.#name = name
    this.#processes = processes
  }

  /** Waits for the lock; undefined after `ms`. */
  async wait(ms: number): Promise<Claim | undefined> {
    const deadline = performance.now() + ms
    const claim = await this.#claim()
    try {
      for (let attempt = 0; ; attempt++) {
        const others = await this.#others(claim)
        if (others.length === 0) return claim
        if (performance.now() > deadline) break
        // The older claim stays in the folder and gets the lock next; a later claim is withdrawn.
        if (others.some((name) => name < claim.name)) await claim.release()
        const pause = PAUSES_MS[Math.min(attempt, PAUSES_MS.length - 1)] as number
        await sleep(pause * (0.5 + Math.random()))
        await claim.renew()
      }
    } catch (error) {
      await claim.release()
      throw error
    }
    await claim.release()
    return undefined
  }

  /**
   * Runs `work` while holding the lock, after earlier callers of this process. Throws the error of `late` if another
   * process holds the lock for more than `ms`.
   */
  hold<Value>(ms: number, late: () => Error, work: () => Promise<Value>): Promise<Value> {
    const line = JSON.stringify([this.#folder, this.#name, this.#processes.self])
    return queue.take(() => this.#hold(ms, late, work), line)
  }

  async #hold<Value>(ms: number, late: () => Error, work: () => Promise<Value>): Promise<Value> {
    const claim = await this.wait(ms)
    if (!claim) throw late()
    let renewed = Promise.resolve()
    const renewing = setInterval(() => {
      renewed = claim.renew().catch(() => {})
    }, RENEW_MS).unref()
    try {
      return await work()
    } finally {
      clearInterval(renewing)
      // Wait for a pending renewal: after the release it would create the file again.
      await renewed
      await claim.release()
    }
  }

  /** Takes the lock if no other process holds or awaits it. */
  async attempt(): Promise<Claim | undefined> {
    if ((await this.#others()).length > 0) return undefined
    const claim = await this.#claim()
    if ((await this.#others(claim)).length === 0) return claim
    await claim.release()
    return undefined
  }

  /** Whether a live process holds or awaits the lock. */
  async isTaken(): Promise<boolean> {
    return (await this.#others()).length > 0
  }

  async #claim(): Promise<Claim> {
    await mkdir(this.#folder, { recursive: true })
    const { place, pid, started } = this.#processes.self
    const time = Date.now().toString(36).padStart(9, "0")
    const name = [this.#name, time, place, pid, started, randomBytes(6).toString("hex")].join(".")
    const claim = new Claim(join(this.#folder, name), name)
    await claim.renew()
    return claim
  }

  /** Names of the claims of other live processes. */
  async #others(own?: Claim): Promise<string[]> {
    const names = await readdir(this.#folder).catch(ifMissing<string[]>([]))
    const others: string[] = []
    for (const name of names) {
      if (!name.startsWith(`${this.#name}.`) || name === own?.name) continue
      const path = join(this.#folder, name)
      if (await this.#isAlive(name, path)) others.push(name)
      else await unlink(path).catch(() => {})
    }
    return others
  }

  async #isAlive(name: string, path: string): Promise<boolean> {
    const [, , place = "", pid, started = ""] = name.split(".")
    const alive = this.#processes.isAlive({ place, pid: Number(pid), started })
    if (alive !== undefined) return alive
    const found = await stat(path).catch(() => undefined)
    // A claim dated far in the future was made before the system clock was set back, so it does not count.
    return found !== undefined && Math.abs(Date.now() - found.mtimeMs) < UNSEEN_CLAIM_MS
  }
}

export class Claim {
  readonly name: string
  readonly #path: string

  constructor(path: string, name: string) {
    this.#path = path
    this.name = name
  }

  /** Creates the claim's file, or renews its time. */
  async renew(): Promise<void> {
    const now = new Date()
    await utimes(this.#path, now, now).catch(async (error) => {
      ifMissing(undefined)(error)
      await (await open(this.#path, "wx")).close()
    })
  }

  /** Whether the claim's file exists; false where somebody has removed it. */
  async holds(): Promise<boolean> {
    return (await stat(this.#path).catch(() => undefined)) !== undefined
  }

  /** Never rejects. */
  async release(): Promise<void> {
    await unlink(this.#path).catch(() => {})
  }
}

/** Makes an error handler. The handler returns `value` for a missing file or folder and rethrows any other error. */
export function ifMissing<Value>(value: Value): (error: unknown) => Value {
  return (error) => {
    if ((error as { code?: string }).code === "ENOENT") return value
    throw error
  }
}
