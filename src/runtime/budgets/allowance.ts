import type { Block } from "../../core/blocks.ts"
import { CallError } from "../../core/errors.ts"
import { launchDelay, MINUTE_MS } from "../../core/limits.ts"
import { allowanceOf, NOTHING_SPENT, needsBill, spendingRefusal } from "../../core/spending.ts"
import type { Run, Task } from "../../core/task.ts"
import { tooLateFor } from "../../core/watchdog.ts"
import type { Parts } from "../parts.ts"
import type { CostLedger } from "./ledger.ts"

/** Limits on new runs: cost, tokens, and rate of launches. */
export class Allowance {
  readonly #parts: Parts
  readonly #ledger: CostLedger

  constructor(parts: Parts, ledger: CostLedger) {
    this.#parts = parts
    this.#ledger = ledger
  }

  /** Throws a `CallError` where a limit on the new run is used up. */
  refuseSpent(sessionID: string, taskID?: string): void {
    const why = this.refusal(sessionID, taskID)
    if (why)
      throw new CallError(
        `Nothing was launched: ${why}. Only the user can raise it: do the rest yourself, or tell them.`,
      )
  }

  /** Why no run may begin; undefined where one may. */
  refusal(sessionID: string, taskID?: string): string | undefined {
    const limits = this.#ledger.limitsIn(sessionID, taskID)
    const { clock, options } = this.#parts
    const late = tooLateFor({ ...limits, lastWord: options.lastWord }, clock.now())
    return late ?? spendingRefusal(limits, this.#ledger.spentBefore(sessionID, taskID))
  }

  /** A run that waited while others spent what there was ends when its turn has come. */
  blocks({ id, parentID, run }: Task): Block | undefined {
    const why = this.refusal(parentID, id)
    if (why === undefined) return undefined
    const isUnbegun = run.startedAt === undefined || this.#parts.store.run(id)?.notStarted === true
    const text = isUnbegun ? `It never began: ${why}.` : `It did not go on: ${why}.`
    return { by: "budget", ends: { type: "failed", reason: { code: "budget", text } } }
  }

  of(task: Task): readonly string[] {
    const limits = this.#ledger.limitsIn(task.parentID, task.id)
    return allowanceOf(limits, needsBill(limits, task) ? this.#ledger.spentBy(task) : NOTHING_SPENT, task)
  }

  /** Budget of a run, where the call gave `max`. */
  budget(max: number | undefined, taskID: string): Run["budget"] {
    return max === undefined ? undefined : { max, before: this.#ledger.ofTask(taskID).cost }
  }

  /** Counts a launch. Throws where the session launched too many lately. */
  countLaunch(sessionID: string): void {
    const now = this.#parts.clock.now()
    const { maxLaunchesPerMinute } = this.#parts.options
    const parentState = this.#parts.store.parentState(sessionID)
    const delay = launchDelay(parentState.launches, maxLaunchesPerMinute, now)
    if (delay > 0)
      throw new CallError(
        `Too many launches: the option maxLaunchesPerMinute allows ${maxLaunchesPerMinute} a minute. Try again in ${Math.ceil(delay / 1000)} s.`,
      )
    parentState.launches = [...parentState.launches.filter((at) => at > now - MINUTE_MS), now]
  }
}
