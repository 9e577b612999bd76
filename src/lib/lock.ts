import { randomBytes } from "node:crypto"
import { mkdir, open, readdir, stat, unlink, utimes } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { Turn } from "./turn.ts"

/** What tells a process from every other: `place` is the machine (its present boot, its container) where it runs. */
export type ProcessMark = { readonly place: string; readonly pid: number; readonly started: string }

export type Processes = {
  readonly self: ProcessMark
  /** Undefined where that cannot be seen from here. */
  readonly isAlive: (mark: ProcessMark) => boolean | undefined
}

/** A claim of a process that cannot be seen from here holds for so long after it was last renewed. */
const UNSEEN_CLAIM_MS = 30_000
const RENEW_MS = 10_000
const PAUSES_MS = [1, 2, 5, 10, 20, 40]

/** Those of this process that wait for a lock stand in line: only the first of them asks the file system. */
const turn = new Turn()

/**
 * A lock between processes, freed by its holder's death, without a helper process or signal handlers.
 *
 * Whoever wants it puts a file into the folder whose name says who it is, and then lists the folder: it holds the lock
 * when no living process has another claim there. Of two that see each other the one who came later takes its claim
 * back. Two can never hold it at once: whichever listed last saw the other's file. A dead process's claims are removed
 * by whoever meets them; since every claim has a name of its own, that never hits a living one.
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

  /** Waits for the lock; undefined where it is not to be had within `ms`. */
  async wait(ms: number): Promise<Claim | undefined> {
    const deadline = performance.now() + ms
    const claim = await this.#claim()
    try {
      for (let turn = 0; ; turn++) {
        const others = await this.#others(claim)
        if (others.length === 0) return claim
        if (performance.now() > deadline) break
        // The older one keeps its claim and has the lock next.
        if (others.some((name) => name < claim.name)) await claim.withdraw()
        const pause = PAUSES_MS[Math.min(turn, PAUSES_MS.length - 1)] as number
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
   * Does the work while nobody else holds the lock: after what came before it in this process, and once no other one has
   * it. `late` is thrown where another one does not free it within `ms`.
   */
  hold<Value>(ms: number, late: () => Error, work: () => Promise<Value>): Promise<Value> {
    const line = JSON.stringify([this.#folder, this.#name, this.#processes.self])
    return turn.take(() => this.#hold(ms, late, work), line)
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
      // One that is under way would put the claim there again.
      await renewed
      await claim.release()
    }
  }

  /** Takes the lock where nobody has it or waits for it. */
  async attempt(): Promise<Claim | undefined> {
    if ((await this.#others()).length > 0) return undefined
    const claim = await this.#claim()
    if ((await this.#others(claim)).length === 0) return claim
    await claim.release()
    return undefined
  }

  /** Whether anybody living has it or waits for it. */
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

  /** The names of the living claims beside one's own. */
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
    // A sign from the future is one of a clock that has been set back since.
    return found !== undefined && Math.abs(Date.now() - found.mtimeMs) < UNSEEN_CLAIM_MS
  }
}

/** One process's claim on a lock. */
export class Claim {
  readonly name: string
  readonly #path: string

  constructor(path: string, name: string) {
    this.#path = path
    this.name = name
  }

  /** Puts the claim there, or renews it. */
  async renew(): Promise<void> {
    const now = new Date()
    await utimes(this.#path, now, now).catch(async (error) => {
      ifMissing(undefined)(error)
      await (await open(this.#path, "wx")).close()
    })
  }

  /** Whether the claim is still there: somebody may have cleared the folder. */
  async holds(): Promise<boolean> {
    return (await stat(this.#path).catch(() => undefined)) !== undefined
  }

  async withdraw(): Promise<void> {
    await unlink(this.#path).catch(() => {})
  }

  /** Frees the lock. Never rejects. */
  release(): Promise<void> {
    return this.withdraw()
  }
}

/** For a file or folder that is not there: this instead. Rethrows anything else. */
export function ifMissing<Value>(value: Value): (error: unknown) => Value {
  return (error) => {
    if ((error as { code?: string }).code === "ENOENT") return value
    throw error
  }
}
