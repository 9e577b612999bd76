import { CallError } from "../../src/core/errors.ts"
import type {
  ArchiveResult,
  EnterRequest,
  MergeResult,
  PlaceRunLimits,
  PreparedPlace,
  SharedPlaces,
  UnchosenMember,
  WorkDiff,
} from "../../src/runtime/places/place.ts"
import type { CommandResult } from "../../src/runtime/places/process.ts"

export type PlacePorts = {
  /** Carries out a call as far as what it meets lets it. */
  readonly carryOut: <Result>(method: string, taskID: string, work: () => Result | Promise<Result>) => Promise<Result>
  /** A promise was broken. */
  readonly breach: (what: string) => void
  /** Resolves when so much time has passed, or this fires. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>
  /** The OpenCode of now: another one after a restart. */
  readonly process: () => object
  /** Somebody has asked for this task's work. */
  readonly isAskedFor: (taskID: string) => boolean
  /** Where the task's session lies. */
  readonly folderOf: (taskID: string) => string
}

const WORK = { files: ["a"], added: 1, removed: 0, submodules: [], unsaved: [] }

/** What a check does; one that fails once passes from its second time on, every other one of all that ran passes. */
export const CHECKS = ["pass", "fail", "fail once", "every other", "hang"] as const
const CHECK_MS = 40

/**
 * What each task has: its state is kept, or its place is open; and of its checks, how often one ran, whether the last one
 * passed, and whether one has in its last run: before a merge there may be another.
 */
export type Archive = {
  /** Of teams of tries, whose work came home. */
  readonly winners: Map<string, string>
  readonly states: Map<string, "kept" | "open">
  readonly checks: Map<string, { readonly times: number; readonly passed: boolean; readonly everPassed: boolean }>
}

/**
 * Places of tasks without files: what is asked of them is what is asked of worktrees, and in the same order. `kept` is
 * what all processes see.
 */
export class SimulatedPlaces {
  readonly #ports: PlacePorts
  readonly #archive: Archive

  constructor(ports: PlacePorts, archive: Archive) {
    this.#ports = ports
    this.#archive = archive
  }

  /** The tasks whose place is open. */
  get open(): readonly string[] {
    return [...this.#archive.states].flatMap(([id, state]) => (state === "open" ? [id] : []))
  }

  capture(taskID: string): Promise<undefined> {
    return this.#do("place.capture", taskID, () => {
      if (!this.#archive.states.has(taskID)) this.#archive.states.set(taskID, "kept")
      return undefined
    })
  }

  enter({ taskID, signal }: EnterRequest): Promise<PreparedPlace> {
    return this.#do("place.ready", taskID, () => {
      if (signal?.aborted) throw new CallError("It was stopped.")
      if (!this.#archive.states.has(taskID)) this.#ports.breach("a place was made ready of which nothing was kept")
      this.#archive.states.set(taskID, "open")
      const { times = 0 } = this.#archive.checks.get(taskID) ?? {}
      // What passed before says nothing of the work of this run.
      if (times > 0) this.#archive.checks.set(taskID, { times, passed: false, everPassed: false })
      return { directory: `/places/${taskID}`, preface: "You work there." }
    })
  }

  archive(taskID: string): Promise<ArchiveResult> {
    return this.#do("place.archive", taskID, () => {
      const { folderOf, breach } = this.#ports
      const isOpen = this.#archive.states.get(taskID) === "open"
      if (isOpen && folderOf(taskID).startsWith("/places")) breach("a place was put away before its session came home")
      this.#archive.states.set(taskID, "kept")
      return WORK
    })
  }

  bringIn(taskID: string): Promise<MergeResult> {
    const found: MergeResult = { kind: "merged", files: ["b"], submodules: [] }
    return this.#do("place.bringIn", taskID, () => (this.#archive.checks.has(taskID) ? found : { kind: "nothing" }))
  }

  /** The check of a task: its command is one of `CHECKS`. */
  run(taskID: string, command: string, { timeLimit, signal }: PlaceRunLimits): Promise<CommandResult> {
    return this.#do("place.run", taskID, async () => {
      const { times = 0, everPassed = false } = this.#archive.checks.get(taskID) ?? {}
      this.#archive.checks.set(taskID, { times: times + 1, passed: false, everPassed })
      const limit = timeLimit || Number.POSITIVE_INFINITY
      await this.#ports.wait(command === "hang" ? limit : Math.min(limit, CHECK_MS), signal)
      if (signal.aborted) return { why: "stopped", output: "" }
      if (command === "hang") return { why: "time", output: "" }
      const all = [...this.#archive.checks.values()].reduce((sum, each) => sum + each.times, 0)
      const passed =
        command === "pass" || (command === "fail once" && times > 0) || (command === "every other" && all % 2 === 0)
      this.#archive.checks.set(taskID, { times: times + 1, passed, everPassed: everPassed || passed })
      return { exitCode: passed ? 0 : 1, output: "what it says" }
    })
  }

  readonly shared: SharedPlaces = {
    copyStart: (taskID, from) => this.#goOn("place.beginAs", taskID, from),
    copyWork: (taskID, groupID) => this.#goOn("place.goOnAs", taskID, groupID),
    settle: (_folder, groupID, winner, others) => this.#settle(groupID, winner, others),
    changedIn: (taskID) => this.#do("place.changedIn", taskID, () => ({ files: [], named: [] })),
    isCurrent: (taskID) => this.#do("place.isCurrent", taskID, () => true),
  }

  #goOn(method: string, taskID: string, from: string): Promise<void> {
    return this.#do(method, taskID, () => {
      if (!this.#archive.states.has(from)) this.#ports.breach("a try was to begin with what nobody had kept")
      this.#archive.states.set(taskID, "kept")
    })
  }

  /** The work of one comes home, and of one that has passed. */
  #settle(
    groupID: string,
    winner: string | undefined,
    others: readonly UnchosenMember[],
  ): Promise<ReadonlyMap<string, string>> {
    const { breach } = this.#ports
    const { winners, checks } = this.#archive
    if (winner !== undefined) {
      const before = winners.get(groupID)
      // One that won before and is resumed stays the group's, whatever becomes of its check, or of this call.
      if (before === undefined && !this.hasPassed(winner)) breach("a try has won whose check has not passed")
      if ((before ?? winner) !== winner) breach("two tries of one team have won")
      if (others.some(({ taskID }) => taskID === winner)) breach("the work of the try that won was put aside")
      winners.set(groupID, winner)
    }
    return this.#do("place.settle", groupID, () => {
      if (winner !== undefined) checks.set(groupID, { times: 0, passed: true, everPassed: true })
      return new Map(others.map(({ taskID, name }) => [taskID, name]))
    })
  }

  /** Whether a check of this task's last run has passed. */
  hasPassed(taskID: string): boolean {
    return this.#archive.checks.get(taskID)?.everPassed === true
  }

  /** One merge after the other is the kind's own duty: it has a lock for that. */
  merge(taskID: string): Promise<MergeResult> {
    return this.#do("place.merge", taskID, () => {
      const { breach, isAskedFor } = this.#ports
      if (this.#archive.checks.get(taskID)?.passed === false && !isAskedFor(taskID))
        breach("work was merged by itself whose check had not passed")
      return { kind: "merged", files: ["a"], submodules: [] }
    })
  }

  show(taskID: string): Promise<WorkDiff> {
    return this.#do("place.show", taskID, () => ({ ...WORK, diff: "+a", cut: false, command: "git diff" }))
  }

  clear(_folder: string, taskIDs: readonly string[]): Promise<readonly string[]> {
    return this.#do("place.clear", taskIDs[0] ?? "", () => [])
  }

  sweep(_folder: string, isBusy: (taskID: string) => boolean) {
    return this.#do("place.sweep", "", () => {
      const left = this.open.filter((id) => !isBusy(id))
      for (const id of left) this.#archive.states.set(id, "kept")
      return left.map((taskID) => ({ taskID, what: "its state was kept" }))
    })
  }

  async expire(): Promise<readonly string[]> {
    return []
  }

  async #do<Result>(method: string, taskID: string, work: () => Result | Promise<Result>): Promise<Result> {
    try {
      return await this.#ports.carryOut(method, taskID, work)
    } catch (error) {
      throw error instanceof CallError ? error : new CallError("git did not do it")
    }
  }
}
