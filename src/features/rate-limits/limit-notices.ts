import type { Note, Runtime } from "../../core/feature.ts"
import { requestKeyOf } from "../../core/limits.ts"
import { conditionOf } from "../../core/pause.ts"
import { isMember, slotSessionOf, type Task } from "../../core/task.ts"
import { duration, formatTime } from "../../lib/format.ts"
import { count } from "../../lib/text.ts"
import type { Breaker } from "./breaker.ts"

/** Shorter waits are not reported. */
const WORTH_TELLING_MS = 30_000
/** Delay before the affected runs are counted, in ms. By then they are parked. */
const GATHER_MS = 1000

/**
 * After a report, the same model is not reported again for this long, in ms, unless its opening time moves by as much.
 */
const QUIET_MS = 600_000

/** Reports once that a model is at its limit: a toast for the user, and a note for each affected parent. */
export class LimitNotices {
  readonly #runtime: Runtime
  readonly #breakerOf: (model: string) => Breaker | undefined
  /** Last report for each model: the time of the report, and the opening time that it stated. */
  readonly #reports = new Map<string, { readonly at: number; readonly opensAt: number }>()
  /** Notes that wait until their session is idle, by model and session. */
  readonly #queued = new Set<string>()
  /** Models with a report in preparation. */
  readonly #gathering = new Set<string>()

  constructor(runtime: Runtime, breakerOf: (model: string) => Breaker | undefined) {
    this.#runtime = runtime
    this.#breakerOf = breakerOf
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
  recordReport(model: string, report: { readonly at: number; readonly opensAt: number }): void {
    this.#reports.set(model, report)
  }

  #isNews(model: string, before: Breaker | undefined): boolean {
    const breaker = this.#breakerOf(model)
    const now = this.#runtime.clock.now()
    if (!breaker || breaker.opensAt - now < WORTH_TELLING_MS) return false
    const report = this.#reports.get(model)
    // The limit was too short to report before, and has become long.
    if (report === undefined) return true
    // If only a probe was refused, the limit is not new.
    const isNew = before === undefined || before.recovery !== undefined
    const isLater = breaker.stated && breaker.opensAt - report.opensAt >= QUIET_MS
    // A report in the future is from before the system clock was set back.
    return isLater || (isNew && Math.abs(now - report.at) >= QUIET_MS)
  }

  #announce(model: string): void {
    const { clock, opencode, options } = this.#runtime
    const breaker = this.#breakerOf(model)
    const parked = concerned(this.#runtime, model)
    if (!breaker || breaker.recovery || parked.length === 0) return
    const now = clock.now()
    this.#reports.set(model, { at: now, opensAt: breaker.opensAt })
    const title = headline(model, breaker, now)
    // The dialog has no such row for a group, and members have no rows beside it.
    const offer = parked.every(isMember) ? "" : " /tasks: Go on now."
    const message = `${count(parked.length, "task")} ${are(parked)} parked and ${go(parked)} on by ${themselves(parked)}.${offer}`
    if (options.toasts) opencode.toast({ title, message, variant: "warning" })
    for (const sessionID of new Set(parked.map(slotSessionOf))) this.#tell(sessionID, model)
  }

  /** Queues the note for a session, unless one about this model is queued already. */
  #tell(sessionID: string, model: string): void {
    const key = `${model} ${sessionID}`
    if (this.#queued.has(key)) return
    this.#queued.add(key)
    this.#runtime.note(
      sessionID,
      () => this.#noteTo(sessionID, model),
      () => this.#queued.delete(key),
    )
  }

  /** Undefined where the limit has passed; "later" while a probe or a wave may show that it has. */
  #noteTo(sessionID: string, model: string): Note | "later" | undefined {
    const breaker = this.#breakerOf(model)
    const own = concerned(this.#runtime, model).filter((task) => slotSessionOf(task) === sessionID)
    const [task] = own
    if (!breaker) return undefined
    if (breaker.recovery || !task) return "later"
    const at = this.#runtime.clock.now()
    return {
      task,
      kind: "parked",
      at,
      visible: `⏸ **${headline(model, breaker, at)}.** ${count(own.length, "task")} ${are(own)} parked.`,
      text: goingOn(own),
    }
  }
}

/** Says how parked tasks go on, and what their parent may do about it. */
function goingOn(parked: readonly Task[]): string {
  const [they, them, one] = parked.length === 1 ? ["It goes", "it", "it"] : ["They go", "them", "one"]
  // A call about a member takes the id of its group. A cancel of that would stop all members.
  const ids = new Set(parked.map(({ id, member }) => member?.of ?? id))
  const id = ids.size === 1 ? `="${[...ids].join()}"` : ""
  const stops = parked.every(isMember) ? "" : `superagents_cancel stops ${one}, `
  return `${they} on by ${themselves(parked)}: do not wait, poll or launch ${them} again. ${stops}superagents_task(unpark${id}) tries now.`
}

const concerned = (runtime: Runtime, model: string): readonly Task[] => {
  const isWaiting = (task: Task) => task.run.startedAt === undefined && !runtime.waitsForTasks(task)
  return runtime.store
    .active()
    .filter((task) => task.run.parked?.model === model || (requestKeyOf(task) === model && isWaiting(task)))
}

function headline(model: string, { stated: told, opensAt, kind }: Breaker, now: number): string {
  return `${model} ${conditionOf(kind)}${told ? " until" : ", next try"} ${formatTime(opensAt, now)}`
}

/** Reason why a task is ended instead of parked: its limit ends too late. */
export const notParkedText = (model: string, { opensAt, why, kind }: Breaker, now: number): string =>
  `${model} ${conditionOf(kind)} until ${formatTime(opensAt, now)} (in ${duration(opensAt - now)}), longer than a task is parked (option maxParked): ${why}`

const are = ({ length }: readonly Task[]): string => (length === 1 ? "is" : "are")
const go = ({ length }: readonly Task[]): string => (length === 1 ? "goes" : "go")
const themselves = ({ length }: readonly Task[]): string => (length === 1 ? "itself" : "themselves")
