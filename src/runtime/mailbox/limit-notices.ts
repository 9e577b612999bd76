import type { Breaker } from "../../core/breaker.ts"
import { modelKeyOf } from "../../core/limits.ts"
import { conditionOf } from "../../core/refusal.ts"
import { isUnattended, type Task } from "../../core/task.ts"
import { duration } from "../../lib/duration.ts"
import { formatTime } from "../../lib/format-time.ts"
import { count } from "../../lib/text.ts"
import type { Parts } from "../parts.ts"
import type { Note } from "./notes.ts"
import { notifyIdle } from "./notify-idle.ts"

/** Shorter waits are not reported. */
const WORTH_TELLING_MS = 30_000
/** Delay before affected runs are counted, so that they are parked by then, in ms. */
const GATHER_MS = 1000

/** Delay before a busy parent is tried again, in ms. */
const AGAIN_MS = 10_000
/** A reported model is not reported again for this long, in ms, unless its time is later by as much. */
const QUIET_MS = 600_000

type NoticePorts = {
  readonly breakerOf: (model: string) => Breaker | undefined
  readonly at: (time: number) => void
}

/**
 * Reports once that a model is at its limit: a toast for the user, a message without a turn for each affected parent.
 */
export class LimitNotices {
  readonly #parts: Parts
  readonly #breakerOf: NoticePorts["breakerOf"]
  readonly #at: NoticePorts["at"]
  /** Last report for each model: when, and which opening time it named. */
  readonly #told = new Map<string, { readonly at: number; readonly opensAt: number }>()
  /** Models with a report in preparation. */
  readonly #gathering = new Set<string>()
  /** Parents still to be told, by model, and time of the next attempt. */
  readonly #owed = new Map<string, { readonly parents: ReadonlySet<string>; readonly at: number }>()

  constructor(parts: Parts, { breakerOf, at }: NoticePorts) {
    this.#parts = parts
    this.#breakerOf = breakerOf
    this.#at = at
  }

  /** Reports to parents that were busy before. Called by the clock. */
  look(): void {
    const now = this.#parts.clock.now()
    for (const [model, { parents, at }] of this.#owed) {
      if (now >= at) this.#tell(model, parents)
      else this.#at(at)
    }
  }

  /** A breaker tripped, or tripped anew: `before` is its former state. */
  closed(model: string, before: Breaker | undefined): void {
    if (this.#gathering.has(model) || !this.#isNews(model, before)) return
    this.#gathering.add(model)
    this.#parts.clock.after(GATHER_MS, () => {
      this.#gathering.delete(model)
      this.#announce(model)
    })
  }

  /** An earlier process has reported this limit. */
  wasTold(model: string, told: { readonly at: number; readonly opensAt: number }): void {
    this.#told.set(model, told)
  }

  #isNews(model: string, before: Breaker | undefined): boolean {
    const breaker = this.#breakerOf(model)
    const now = this.#parts.clock.now()
    if (!breaker || breaker.opensAt - now < WORTH_TELLING_MS) return false
    const told = this.#told.get(model)
    // A limit too short to report has become long.
    if (told === undefined) return true
    // A refused probe is not a new limit.
    const isNew = before === undefined || before.recovery !== undefined
    const isLater = breaker.told && breaker.opensAt - told.opensAt >= QUIET_MS
    return isLater || (isNew && now - told.at >= QUIET_MS)
  }

  #announce(model: string): void {
    const { clock, host, options } = this.#parts
    const breaker = this.#breakerOf(model)
    const parked = concerned(this.#parts, model)
    if (!breaker || breaker.recovery || parked.length === 0) return
    const now = clock.now()
    this.#told.set(model, { at: now, opensAt: breaker.opensAt })
    const title = headline(model, breaker, now)
    const message = `${count(parked.length, "task")} ${are(parked)} parked and ${go(parked)} on by ${themselves(parked)}. /tasks: Go on now.`
    if (options.toasts) host.toast({ title, message, variant: "warning" })
    this.#tell(model, new Set(parked.map((task) => task.parentID)))
  }

  #tell(model: string, parents: ReadonlySet<string>): void {
    this.#owed.delete(model)
    const breaker = this.#breakerOf(model)
    if (!breaker || breaker.recovery) return
    const { host, background } = this.#parts
    for (const parentID of parents) {
      const note = noteTo(this.#parts, parentID, model, breaker)
      if (note)
        background.run("tell of a limit", async () => {
          if (!(await notifyIdle(host, note))) this.#owe(model, parentID)
        })
    }
  }

  /** A message during a turn would cause another step: the parent is told later, if the limit still holds. */
  #owe(model: string, parentID: string): void {
    const at = this.#parts.clock.now() + AGAIN_MS
    this.#owed.set(model, { parents: new Set([...(this.#owed.get(model)?.parents ?? []), parentID]), at })
    this.#at(at)
  }
}

const concerned = ({ store }: Parts, model: string): readonly Task[] =>
  store.active().filter((task) => task.run.parked?.model === model || (isWaiting(task) && modelKeyOf(task) === model))

const isWaiting = (task: Task): boolean => task.run.startedAt === undefined

function headline(model: string, { told, opensAt, kind }: Breaker, now: number): string {
  return `${model} ${conditionOf(kind)}${told ? " until" : ", next try"} ${formatTime(opensAt, now)}`
}

/** Reason why a task is not parked: the limit ends too late. */
export const notParkedText = (model: string, { opensAt, why, kind }: Breaker, now: number): string =>
  `${model} ${conditionOf(kind)} until ${formatTime(opensAt, now)} (in ${duration(opensAt - now)}), longer than a task is parked (option maxParked): ${why}`

const are = ({ length }: readonly Task[]): string => (length === 1 ? "is" : "are")
const go = ({ length }: readonly Task[]): string => (length === 1 ? "goes" : "go")
const themselves = ({ length }: readonly Task[]): string => (length === 1 ? "itself" : "themselves")

function noteTo(parts: Parts, parentID: string, model: string, breaker: Breaker): Note | undefined {
  const at = parts.clock.now()
  const own = concerned(parts, model).filter((task) => task.parentID === parentID)
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
