import { CallError } from "../../src/core/errors.ts"
import type { EnterRequest, MergeResult, PutAway, Ready, Shown } from "../../src/place/place.ts"

export type PlacePorts = {
  /** Carries out a call as far as what it meets lets it. */
  readonly carryOut: <Result>(method: string, taskID: string, work: () => Result) => Promise<Result>
  /** A promise was broken. */
  readonly breach: (what: string) => void
  /** Where the task's session lies. */
  readonly folderOf: (taskID: string) => string
}

const WORK = { files: ["a"], added: 1, removed: 0, submodules: [], unsaved: [] }

/** What each task has: its state is kept, or its place is open. */
export type Kept = Map<string, "kept" | "open">

/**
 * Places of tasks without files: what is asked of them is what is asked of worktrees, and in the same order. `kept` is
 * what all processes see.
 */
export class SimulatedPlaces {
  readonly #ports: PlacePorts
  readonly #kept: Kept

  constructor(ports: PlacePorts, kept: Kept) {
    this.#ports = ports
    this.#kept = kept
  }

  /** The tasks whose place is open. */
  get open(): readonly string[] {
    return [...this.#kept].flatMap(([id, state]) => (state === "open" ? [id] : []))
  }

  capture(taskID: string): Promise<void> {
    return this.#do("place.capture", taskID, () => {
      if (!this.#kept.has(taskID)) this.#kept.set(taskID, "kept")
    })
  }

  enter({ taskID, signal }: EnterRequest): Promise<Ready> {
    return this.#do("place.ready", taskID, () => {
      if (signal?.aborted) throw new CallError("It was stopped.")
      if (!this.#kept.has(taskID)) this.#ports.breach("a place was made ready of which nothing was kept")
      this.#kept.set(taskID, "open")
      return { directory: `/places/${taskID}`, told: "You work there." }
    })
  }

  putAway(taskID: string): Promise<PutAway> {
    return this.#do("place.putAway", taskID, () => {
      const { folderOf, breach } = this.#ports
      const isOpen = this.#kept.get(taskID) === "open"
      if (isOpen && folderOf(taskID).startsWith("/places")) breach("a place was put away before its session came home")
      this.#kept.set(taskID, "kept")
      return WORK
    })
  }

  bringIn(taskID: string): Promise<MergeResult> {
    return this.#do("place.bringIn", taskID, () => ({ kind: "nothing" }))
  }

  /** One merge after the other is the kind's own duty: it has a lock for that. */
  merge(taskID: string): Promise<MergeResult> {
    return this.#do("place.merge", taskID, () => ({ kind: "merged", files: ["a"], submodules: [] }))
  }

  isUntouched(taskID: string): Promise<boolean> {
    return this.#do("place.isUntouched", taskID, () => false)
  }

  show(taskID: string): Promise<Shown> {
    return this.#do("place.show", taskID, () => ({ ...WORK, diff: "+a", cut: false, command: "git diff" }))
  }

  clear(_folder: string, taskIDs: readonly string[]): Promise<readonly string[]> {
    return this.#do("place.clear", taskIDs[0] ?? "", () => [])
  }

  sweep(_folder: string, isBusy: (taskID: string) => boolean) {
    return this.#do("place.sweep", "", () => {
      const left = this.open.filter((id) => !isBusy(id))
      for (const id of left) this.#kept.set(id, "kept")
      return left.map((taskID) => ({ taskID, what: "its state was kept" }))
    })
  }

  async expire(): Promise<readonly string[]> {
    return []
  }

  async #do<Result>(method: string, taskID: string, work: () => Result): Promise<Result> {
    try {
      return await this.#ports.carryOut(method, taskID, work)
    } catch (error) {
      throw error instanceof CallError ? error : new CallError("git did not do it")
    }
  }
}
