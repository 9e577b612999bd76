import type { Runtime } from "../../core/feature.ts"
import { modelKeyOf } from "../../core/limits.ts"
import { conditionOf } from "../../core/refusal.ts"
import { isUnattended, type Task } from "../../core/task.ts"
import { duration, formatTime } from "../../lib/format.ts"
import { count } from "../../lib/text.ts"
import { type Note, notifyIdle } from "../../runtime/mailbox/notes.ts"
import type { Breaker } from "./breaker.ts"

/** Shorter waits are not reported. */
const WORTH_TELLING_MS = 30_000
/** Delay before the affected runs are counted, in ms. By then they are parked. */
const GATHER_MS = 1000

/** Delay before a busy parent is tried again, in ms. */
const AGAIN_MS = 10_000
/**
 * After a report, the same model is not reported again for this long, in ms, unless its opening time moves by as much.
 */
const QUIET_MS = 600_000

/** Reports once that a model is at its limit: a toast for the user, and a note for each affected parent. */
export class LimitNotices {
  readonly #runtime: Runtime
  readonly #breakerOf: (model: string) => Breaker | undefined
  /** Last report for each model: the time of the report, and the opening time that it stated. */
  readonly #told = new Map<string, { readonly at: number; readonly opensAt: number }>()
  /** Models with a report in preparation. */
  readonly #gathering = new Set<string>()
  /** Parents still to be told, by model, and time of the next attempt. */
  readonly #owed = new Map<string, { readonly parents: ReadonlySet<string>; readonly at: number }>()

  constructor(runtime: Runtime, breakerOf: (model: string) => Breaker | undefined) {
    this.#runtime = runtime
    this.#breakerOf = breakerOf
  }

  /** Reports to parents that were busy before. Called by the clock. */
  look(): void {
    const now = this.#runtime.clock.now()
    for (const [model, { parents, at }] of this.#owed) {
      if (now >= at) this.#tell(model, parents)
      else this.#runtime.wakeAt(at)
    }
  }

  /** Called when a breaker trips, or trips again. `before`: the breaker's former state. */
  closed(model: string, before: Breaker | undefined): void {
    if (this.#gathering.has(model) || !this.#isNews(model, before)) return
    this.#gathering.add(model)
    this.#runtime.clock.after(GATHER_MS, () => {
      this.#gathering.delete(model)
      this.#announce(model)
    })
  }

  /** Called when an earlier process has reported this limit. */
  wasTold(model: string, told: { readonly at: number; readonly opensAt: number }): void {
    this.#told.set(model, told)
  }

  #isNews(model: string, before: Breaker | undefined): boolean {
    const breaker = this.#breakerOf(model)
    const now = this.#runtime.clock.now()
    if (!breaker || breaker.opensAt - now < WORTH_TELLING_MS) return false
    const told = this.#told.get(model)
    // The limit was too short to report before, and has become long.
    if (told === undefined) return true
    // If only a probe was refused, the limit is not new.
    const isNew = before === undefined || before.recovery !== undefined
    const isLater = breaker.told && breaker.opensAt - told.opensAt >= QUIET_MS
    return isLater || (isNew && now - told.at >= QUIET_MS)
  }

  #announce(model: string): void {
    const { clock, opencode, options } = this.#runtime
    const breaker = this.#breakerOf(model)
    const parked = concerned(this.#runtime, model)
    if (!breaker || breaker.recovery || parked.length === 0) return
    const now = clock.now()
    this.#told.set(model, { at: now, opensAt: breaker.opensAt })
    const title = headline(model, breaker, now)
    const message = `${count(parked.length, "task")} ${are(parked)} parked and ${go(parked)} on by ${themselves(parked)}. /tasks: Go on now.`
    if (options.toasts) opencode.toast({ title, message, variant: "warning" })
    this.#tell(model, new Set(parked.map((task) => task.parentID)))
  }

  #tell(model: string, parents: ReadonlySet<string>): void {
    this.#owed.delete(model)
    const breaker = this.#breakerOf(model)
    if (!breaker || breaker.recovery) return
    const { opencode, background } = this.#runtime
    for (const parentID of parents) {
      const note = noteTo(this.#runtime, parentID, model, breaker)
      if (note)
        background.run("tell of a limit", async () => {
          if (!(await notifyIdle(opencode, note))) this.#owe(model, parentID)
        })
    }
  }

  /**
   * Notes that a busy parent must be told later, if the limit still holds. A message during a turn would cause another
   * step.
   */
  #owe(model: string, parentID: string): void {
    const at = this.#runtime.clock.now() + AGAIN_MS
    this.#owed.set(model, { parents: new Set([...(this.#owed.get(model)?.parents ?? []), parentID]), at })
    this.#runtime.wakeAt(at)
  }
}

const concerned = ({ store }: Runtime, model: string): readonly Task[] =>
  store.active().filter((task) => task.run.parked?.model === model || (isWaiting(task) && modelKeyOf(task) === model))

const isWaiting = (task: Task): boolean => task.run.startedAt === undefined

function headline(model: string, { told, opensAt, kind }: Breaker, now: number): string {
  return `${model} ${conditionOf(kind)}${told ? " until" : ", next try"} ${formatTime(opensAt, now)}`
}

/** Reason why a task is ended instead of parked: its limit ends too late. */
export const notParkedText = (model: string, { opensAt, why, kind }: Breaker, now: number): string =>
  `${model} ${conditionOf(kind)} until ${formatTime(opensAt, now)} (in ${duration(opensAt - now)}), longer than a task is parked (option maxParked): ${why}`

const are = ({ length }: readonly Task[]): string => (length === 1 ? "is" : "are")
const go = ({ length }: readonly Task[]): string => (length === 1 ? "goes" : "go")
const themselves = ({ length }: readonly Task[]): string => (length === 1 ? "itself" : "themselves")

function noteTo(runtime: Runtime, parentID: string, model: string, breaker: Breaker): Note | undefined {
  const at = runtime.clock.now()
  const own = concerned(runtime, model).filter((task) => task.parentID === parentID)
  const [task] = own
  if (!task || isUnattended(task)) return undefined
  return {
    task,
    kind: "parked",
    at,
    visible: `⏸ **${headline(model, breaker, at)}.** ${count(own.length, "task")} ${are(own)} parked.`,
    text: "They go on by themselves: do not wait, poll or launch them again. superagents_cancel stops one, superagents_task(unpark: …) tries now.",
  }
}
