import { type GroupStep, isBegunIn, type MemberState } from "../../core/group.ts"
import { isActive, type Task } from "../../core/task.ts"
import { newest, type TriesPlan, tryEndText } from "./results.ts"

const NOTHING: GroupStep = { begin: [] }

/**
 * Decides which tries begin next, or how the group ends. `coming`: indexes of members that are being created;
 * `generation`: the group's run.
 */
export function nextTries(
  plan: TriesPlan,
  members: readonly MemberState[],
  coming: readonly number[],
  generation: number,
): GroupStep {
  if (plan.again !== undefined) return nextOfWinner(plan.again, members, coming, generation)
  const known = [...newest(members)]
  const passed = known.flatMap(([, member]) => (member.task.status === "completed" ? [member] : []))
  const [first] = passed.toSorted((a, b) => endedAt(a) - endedAt(b))
  if (first) return wonBy(first)
  const tried = known.filter(([, { task }]) => isTried(task, generation))
  const numbers = new Set([...coming, ...tried.map(([nth]) => nth)])
  const waiting = Array.from({ length: plan.count }, (_none, nth) => nth).filter((nth) => !numbers.has(nth))
  const isBusy = coming.length > 0 || known.some(([, { closed }]) => !closed)
  if (waiting.length > 0) return plan.ladder ? { begin: isBusy ? [] : waiting.slice(0, 1) } : { begin: waiting }
  if (isBusy) return NOTHING
  const failures = tried.map(([nth, { task }]) => `${nth + 1}: ${tryEndText(task)}`)
  const text = `None of ${plan.count} tries passed: ${failures.join("; ")}.`
  // A resume begins the tries again that have not failed. Without such a try there is nothing to resume.
  const code = tried.every(([, { task }]) => isTried(task, generation + 1)) ? "check" : "interrupted"
  return { begin: [], ending: { type: "failed", reason: { code, text } } }
}

/**
 * Whether a try counts for this run. A try that was cancelled or interrupted in an earlier run, or before it began, is
 * started again.
 */
const isTried = (task: Task, generation: number): boolean => {
  if (task.member?.run === generation) return isBegunIn(task, generation)
  return isActive(task) || (task.status === "error" && task.outcome?.reason?.code !== "interrupted")
}

const endedAt = ({ task }: MemberState): number => task.run.endedAt ?? 0

const wonBy = ({ task, check }: MemberState): GroupStep => {
  const passed = check ?? task.outcome?.receipt?.check
  return { begin: [], winner: task.id, ...(passed && { passed }) }
}

/** A resumed group with a winner starts the winner alone. */
function nextOfWinner(
  id: string,
  members: readonly MemberState[],
  coming: readonly number[],
  generation: number,
): GroupStep {
  const winner = members.find(({ task }) => task.id === id)
  const { run, nth = 0 } = winner?.task.member ?? {}
  if (winner && run !== generation) return coming.length > 0 ? NOTHING : { begin: [nth] }
  if (winner?.task.status === "completed") return wonBy(winner)
  if (winner && (isActive(winner.task) || !winner.closed)) return NOTHING
  const text = "The try that had won is not known any more."
  return { begin: [], ending: { type: "failed", reason: winner?.task.outcome?.reason ?? { code: "check", text } } }
}
