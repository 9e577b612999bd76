import type { Breaker } from "../../core/breaker.ts"
import { modelKeyOf } from "../../core/limits.ts"
import { conditionOf } from "../../core/refusal.ts"
import { isUnattended, type Task } from "../../core/task.ts"
import { duration } from "../../lib/duration.ts"
import { moment } from "../../lib/format-time.ts"
import { count } from "../../lib/text.ts"
import type { Parts } from "../parts.ts"
import type { Note } from "./notes.ts"
import { notifyIdle } from "./notify-idle.ts"

/** A breaker that is tripped for less than this is nobody's news. */
const WORTH_TELLING_MS = 30_000
/** What a closing concerns is counted when those that it met have been parked, in ms. */
const GATHER_MS = 1000

/** A parent that could not be told now is told at a look so much later, in ms. */
const AGAIN_MS = 10_000
/** One that is told of is not told of again for so long, in ms, unless its time is later by as much. */
const QUIET_MS = 600_000

type NoticePorts = {
  readonly breakerOf: (model: string) => Breaker | undefined
  readonly at: (time: number) => void
}

/** Says once that a model is at its limit: to the user by a toast, to each parent concerned by a message that wakes nobody. */
export class Notices {
  readonly #parts: Parts
  readonly #breakerOf: NoticePorts["breakerOf"]
  readonly #at: NoticePorts["at"]
  /** By model: when it was told of last, and the time that was told. */
  readonly #told = new Map<string, { readonly at: number; readonly opensAt: number }>()
  /** Models of which is told in a moment. */
  readonly #gathering = new Set<string>()
  /** Of each model the parents that are still to be told, and when that is tried again. */
  readonly #owed = new Map<string, { readonly parents: ReadonlySet<string>; readonly at: number }>()

  constructor(parts: Parts, { breakerOf, at }: NoticePorts) {
    this.#parts = parts
    this.#breakerOf = breakerOf
    this.#at = at
  }

  /** Tells those who were busy when a gate closed. Called by the clock. */
  look(): void {
    const now = this.#parts.clock.now()
    for (const [model, { parents, at }] of this.#owed) {
      if (now >= at) this.#tell(model, parents)
      else this.#at(at)
    }
  }

  /** A gate has closed, or closed anew: `before` is how it was. */
  closed(model: string, before: Breaker | undefined): void {
    if (this.#gathering.has(model) || !this.#isNews(model, before)) return
    this.#gathering.add(model)
    this.#parts.clock.after(GATHER_MS, () => {
      this.#gathering.delete(model)
      this.#announce(model)
    })
  }

  /** An earlier process has told of a closing. */
  wasTold(model: string, told: { readonly at: number; readonly opensAt: number }): void {
    this.#told.set(model, told)
  }

  #isNews(model: string, before: Breaker | undefined): boolean {
    const gate = this.#breakerOf(model)
    const now = this.#parts.clock.now()
    if (!gate || gate.opensAt - now < WORTH_TELLING_MS) return false
    const told = this.#told.get(model)
    // What was closed for a moment until now is news by now.
    if (told === undefined) return true
    // A refused probe is no closing of its own.
    const isNew = before === undefined || before.recovery !== undefined
    const isLater = gate.told && gate.opensAt - told.opensAt >= QUIET_MS
    return isLater || (isNew && now - told.at >= QUIET_MS)
  }

  #announce(model: string): void {
    const { clock, host, options } = this.#parts
    const gate = this.#breakerOf(model)
    const parked = concerned(this.#parts, model)
    if (!gate || gate.recovery || parked.length === 0) return
    const now = clock.now()
    this.#told.set(model, { at: now, opensAt: gate.opensAt })
    const title = headline(model, gate, now)
    const message = `${count(parked.length, "task")} ${are(parked)} parked and ${go(parked)} on by ${themselves(parked)}. /tasks: Go on now.`
    if (options.toasts) host.toast({ title, message, variant: "warning" })
    this.#tell(model, new Set(parked.map((task) => task.parentID)))
  }

  #tell(model: string, parents: ReadonlySet<string>): void {
    this.#owed.delete(model)
    const gate = this.#breakerOf(model)
    if (!gate || gate.recovery) return
    const { host, background } = this.#parts
    for (const parentID of parents) {
      const note = noteTo(this.#parts, parentID, model, gate)
      if (note)
        background.run("tell of a limit", async () => {
          if (!(await notifyIdle(host, note))) this.#owe(model, parentID)
        })
    }
  }

  /** In mid-turn a message would make the host take another step: it is told later, if it still is so. */
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
  return `${model} ${conditionOf(kind)}${told ? " until" : ", next try"} ${moment(opensAt, now)}`
}

/** Why a task is not parked: its gate opens too late. */
export const beyond = (model: string, { opensAt, why, kind }: Breaker, now: number): string =>
  `${model} ${conditionOf(kind)} until ${moment(opensAt, now)} (in ${duration(opensAt - now)}), longer than a task is parked (option maxParked): ${why}`

const are = ({ length }: readonly Task[]): string => (length === 1 ? "is" : "are")
const go = ({ length }: readonly Task[]): string => (length === 1 ? "goes" : "go")
const themselves = ({ length }: readonly Task[]): string => (length === 1 ? "itself" : "themselves")

function noteTo(parts: Parts, parentID: string, model: string, gate: Breaker): Note | undefined {
  const at = parts.clock.now()
  const own = concerned(parts, model).filter((task) => task.parentID === parentID)
  const [task] = own
  if (!task || isUnattended(task)) return undefined
  return {
    task,
    kind: "parked",
    at,
    visible: `⏸ **${headline(model, gate, at)}.** ${count(own.length, "task")} ${are(own)} parked.`,
    text: "They go on by themselves: do not wait, poll or launch them again. superagents_cancel stops one, superagents_task(unpark: …) tries now.",
  }
}
