import type { CheckResult } from "../../core/receipt.ts"
import type { Task } from "../../core/task.ts"
import type { Parts } from "../../runtime/parts.ts"
import type { Merging, Places } from "../../runtime/places/places.ts"
import type { TaskHandle } from "../../runtime/tasks/task-handle.ts"
import { runCheck } from "./run-check.ts"

export type CheckingPorts = {
  readonly places: Places
  readonly home: { inspected(task: Task, result: CheckResult): Promise<CheckResult> }
}

/** Result of a check; `lacks`: missing dependencies of the place that may have failed it. */
type AtEnd = { readonly result?: CheckResult; readonly lacks?: string }

/** Checks of runs. Each can be stopped, and the run is not closed before its check has ended. */
export class Checking {
  readonly #parts: Parts
  readonly #ports: CheckingPorts

  constructor(parts: Parts, ports: CheckingPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** Check of a run that is about to complete; `runs`: how often it ran before. */
  async atEnd(entry: TaskHandle, task: Task, runs: number): Promise<AtEnd> {
    const stop = new AbortController()
    entry.stop = stop
    const inspecting = this.#inspected(task, runs, stop.signal)
    entry.preparation = inspecting.catch(() => {})
    const result = await inspecting
    const lacks = result && isUnequipped(result) ? await this.#ports.places.lackedBy(task) : undefined
    return { ...(result && { result }), ...(lacks !== undefined && { lacks }) }
  }

  /** Checks for the merge of a completed task; halting the run stops them all. */
  merging(entry: TaskHandle): Merging {
    const stop = new AbortController()
    entry.stop = stop
    this.#parts.store.noticed(entry.task.id)
    const runs = entry.run?.check?.runs ?? 0
    return { signal: stop.signal, check: (task, folder) => this.#inspected(task, runs, stop.signal, folder) }
  }

  /** Runs a check in the task's place, or in a local folder. */
  async #inspected(task: Task, runs: number, signal: AbortSignal, folder?: string): Promise<CheckResult | undefined> {
    const where = folder ?? this.#parts.host.folderOf(task.sessionID)
    const run = folder === undefined ? await this.#ports.places.runner(task) : undefined
    const result = await runCheck(this.#parts, task, runs, signal, { folder: where, run })
    return result && this.#ports.home.inspected(task, result)
  }
}

/** Messages of shells, Node, Bun, Python and Ruby about missing programs and modules. */
const NOT_FOUND =
  /command not found|: not found$|cannot find (?:module|package)|No module named|ModuleNotFoundError|cannot load such file/im

const isUnequipped = ({ passed, output = "" }: CheckResult): boolean => !passed && NOT_FOUND.test(output)
