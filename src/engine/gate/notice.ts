import type { Gate } from "../../core/gate.ts"
import { modelKey } from "../../core/limits.ts"
import { isUnattended, modelOf, type Task } from "../../core/task.ts"
import { moment } from "../../lib/moment.ts"
import { count } from "../../lib/text.ts"
import { tellIdle } from "../conductor/telling.ts"
import type { Parts } from "../parts.ts"
import type { Note } from "../talk/notes.ts"

/** A gate that is closed for less than this is nobody's news. */
const WORTH_TELLING_MS = 5000
/** What a closing concerns is counted when those that it met have been parked, in ms. */
const GATHER_MS = 1000

/** Says once that a model is at its limit: to the user by a toast, to each parent concerned by a message that wakes nobody. */
export function announce(parts: Parts, model: string, gate: Gate): void {
  const { clock, host, options, background } = parts
  const now = clock.now()
  if (gate.opensAt - now < WORTH_TELLING_MS) return
  clock.after(GATHER_MS, () => {
    const parked = concerned(parts, model)
    if (parked.length === 0) return
    const title = headline(model, gate, now)
    const message = `${count(parked.length, "task")} ${are(parked)} parked and ${go(parked)} on by ${themselves(parked)}. /tasks: Go on now.`
    if (options.toasts) host.toast({ title, message, variant: "warning" })
    for (const parentID of new Set(parked.map((task) => task.parentID))) {
      const note = noteTo(parts, parentID, model, gate, now)
      if (note) background.run("tell of a limit", () => tellIdle(host, note))
    }
  })
}

const concerned = ({ store }: Parts, model: string): readonly Task[] =>
  store.active().filter((task) => task.run.parked?.model === model || (isWaiting(task) && keyOf(task) === model))

const isWaiting = (task: Task): boolean => task.run.startedAt === undefined

const keyOf = (task: Task): string => {
  const model = modelOf(task)
  return model ? modelKey(model) : ""
}

const headline = (model: string, gate: Gate, now: number): string =>
  gate.told ? `${model} is at its limit until ${moment(gate.opensAt, now)}` : `${model} is at its limit`

const are = ({ length }: readonly Task[]): string => (length === 1 ? "is" : "are")
const go = ({ length }: readonly Task[]): string => (length === 1 ? "goes" : "go")
const themselves = ({ length }: readonly Task[]): string => (length === 1 ? "itself" : "themselves")

function noteTo(parts: Parts, parentID: string, model: string, gate: Gate, at: number): Note | undefined {
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
