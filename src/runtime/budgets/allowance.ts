import type { Block } from "../../core/blocks.ts"
import { CallError } from "../../core/errors.ts"
import { launchDelay, MINUTE_MS } from "../../core/limits.ts"
import { allowanceOf, NOTHING_SPENT, needsBill, refusalOf } from "../../core/spending.ts"
import type { Run, Task } from "../../core/task.ts"
import { tooLateFor } from "../../core/watchdog.ts"
import type { Parts } from "../parts.ts"
import type { Ledger } from "./ledger.ts"

/** What may still be begun: by the money and the tokens that were spent, and by how often something was begun lately. */
export class Allowance {
  readonly #parts: Parts
  readonly #ledger: Ledger

  constructor(parts: Parts, ledger: Ledger) {
    this.#parts = parts
    this.#ledger = ledger
  }

  /** Nothing begins where a limit that it would come under is used up, by what is known now. Throws a `CallError`. */
  refuseSpent(sessionID: string, taskID?: string): void {
    const why = this.refusal(sessionID, taskID)
    if (why)
      throw new CallError(
        `Nothing was launched: ${why}. Only the user can raise it: do the rest yourself, or tell them.`,
      )
  }

  /** Why nothing may begin; undefined where it may. */
  refusal(sessionID: string, taskID?: string): string | undefined {
    const limits = this.#ledger.limitsIn(sessionID, taskID)
    const { clock, options } = this.#parts
    const late = tooLateFor({ ...limits, lastWord: options.lastWord }, clock.now())
    return late ?? refusalOf(limits, this.#ledger.spentBefore(sessionID, taskID))
  }

  /** A run that waited while others spent what there was ends when its turn has come. */
  blocks({ id, parentID, run }: Task): Block | undefined {
    const why = this.refusal(parentID, id)
    if (why === undefined) return undefined
    const isUnbegun = run.startedAt === undefined || this.#parts.store.run(id)?.notStarted === true
    const text = isUnbegun ? `It never began: ${why}.` : `It did not go on: ${why}.`
    return { by: "budget", ends: { type: "failed", reason: { code: "budget", text } } }
  }

  /** What a run that is about to begin may spend, for a reader. */
  of(task: Task): readonly string[] {
    const limits = this.#ledger.limitsIn(task.parentID, task.id)
    return allowanceOf(limits, needsBill(limits, task) ? this.#ledger.spentBy(task) : NOTHING_SPENT, task)
  }

  /** What a run may cost that was given `max` for itself. */
  budget(max: number | undefined, taskID: string): Run["budget"] {
    return max === undefined ? undefined : { max, before: this.#ledger.ofTask(taskID).cost }
  }

  /** Counts one launch of a session. Throws where there were too many of late. */
  countLaunch(sessionID: string): void {
    const now = this.#parts.clock.now()
    const { maxLaunchesPerMinute } = this.#parts.options
    const household = this.#parts.store.parentState(sessionID)
    const delay = launchDelay(household.launches, maxLaunchesPerMinute, now)
    if (delay > 0)
      throw new CallError(
        `Too many launches: the option maxLaunchesPerMinute allows ${maxLaunchesPerMinute} a minute. Try again in ${Math.ceil(delay / 1000)} s.`,
      )
    household.launches = [...household.launches.filter((at) => at > now - MINUTE_MS), now]
  }
}
