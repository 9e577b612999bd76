import { AUTOMATIC } from "../../core/account.ts"
import type { Gate } from "../../core/gate.ts"
import { messageID, partID } from "../../core/ids.ts"
import { modelKey } from "../../core/limits.ts"
import { isUnattended, type Task } from "../../core/task.ts"
import { moment } from "../../lib/moment.ts"
import { count } from "../../lib/text.ts"
import type { Parts } from "../parts.ts"

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
    for (const parentID of new Set(parked.map((task) => task.parentID)))
      background.run("tell of a limit", () => tellParent(parts, parentID, model, gate, now))
  })
}

const concerned = ({ store }: Parts, model: string): readonly Task[] =>
  store.active().filter((task) => task.run.parked?.model === model || (isWaiting(task) && keyOf(task) === model))

const isWaiting = (task: Task): boolean => task.run.startedAt === undefined

const keyOf = ({ model }: Task): string => (model ? modelKey(model) : "")

const headline = (model: string, gate: Gate, now: number): string =>
  gate.told ? `${model} is at its limit until ${moment(gate.opensAt, now)}` : `${model} is at its limit`

const are = ({ length }: readonly Task[]): string => (length === 1 ? "is" : "are")
const go = ({ length }: readonly Task[]): string => (length === 1 ? "goes" : "go")
const themselves = ({ length }: readonly Task[]): string => (length === 1 ? "itself" : "themselves")

/** Not in mid-turn, where a stored message makes the host take another step, nor where the user has undone something. */
async function tellParent(parts: Parts, parentID: string, model: string, gate: Gate, at: number): Promise<void> {
  const { host } = parts
  const own = concerned(parts, model).filter((task) => task.parentID === parentID)
  const [first] = own
  if (!first || isUnattended(first)) return
  const persona = await host.persona(parentID)
  const [parent, activity] = await Promise.all([host.parent(parentID), host.activity()])
  if (parent?.reverted || activity.has(parentID)) return
  const { id, run } = first
  const part = (index: number) => partID("parked", id, run.generation, at, index)
  await host.prompt({
    sessionID: parentID,
    messageID: messageID("parked", id, run.generation, at),
    agent: persona?.agent,
    model: persona?.model,
    noReply: true,
    parts: [
      { id: part(0), text: `⏸ **${headline(model, gate, at)}.** ${count(own.length, "task")} ${are(own)} parked.` },
      {
        id: part(1),
        synthetic: true,
        text: `${AUTOMATIC} They go on by themselves: do not wait, poll or launch them again. superagents_cancel stops one, superagents_task(unpark: …) tries now.`,
      },
    ],
  })
}
