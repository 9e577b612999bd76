import { countMembers, type GroupState, type GroupStep, type MemberState } from "../../core/group.ts"
import { type Ending, isActive, type Task } from "../../core/task.ts"
import { failureText, type ItemsPlan, itemsFailed } from "./results.ts"

/** A map stops after this many failed items in a row, because the fault is then common to all items. */
const MOST_IN_A_ROW = 10
/** Longest head start of the first item, which fills the provider's cache for the others. */
const ALONE_MS = 10_000

/** Next members to create. Pure: the result of each item is read from the record of its member. */
export function nextItems(plan: ItemsPlan, members: readonly MemberState[], state: GroupState): GroupStep {
  const { coming, generation, done, now } = state
  const own = members.filter(({ task }) => task.member?.run === generation)
  const counts = countMembers(
    plan.total,
    own.map(({ task }) => task),
    done.length,
  )
  const ended = own.filter(({ task }) => !isActive(task)).toSorted((a, b) => endedAt(a.task) - endedAt(b.task))
  const latest = ended.slice(-MOST_IN_A_ROW).map(({ task }) => task)
  if (latest.length === MOST_IN_A_ROW && latest.every(({ status }) => status !== "completed"))
    return { begin: [], ending: failed(`${MOST_IN_A_ROW} items in a row failed: ${failureText(latest.at(-1))}`) }
  const begun = new Set([...done, ...coming, ...own.map(({ task }) => task.member?.nth)])
  const waiting = Array.from({ length: plan.total }, (_none, nth) => nth).filter((nth) => !begun.has(nth))
  if (waiting.length === 0) {
    if (coming.length > 0 || own.some(({ closed }) => !closed)) return { begin: [] }
    const ending: Ending = counts.failed === 0 ? { type: "completed" } : { type: "failed", reason: itemsFailed(counts) }
    return { begin: [], ending }
  }
  return { ...firstAlone(own, coming, now), begin: waiting.slice(0, mayBegin(own, coming, state)) }
}

const failed = (text: string): Ending => ({ type: "failed", reason: { code: "items", text } })

const endedAt = ({ run }: Task): number => run.endedAt ?? 0

/**
 * Number of items that may begin now. The first item begins alone, so that the others read their common beginning from
 * the provider's cache.
 */
function mayBegin(own: readonly MemberState[], coming: readonly number[], { freeSlots, now }: GroupState): number {
  if (own.length === 0) return coming.length > 0 ? 0 : Math.min(1, freeSlots)
  const isUnder = own.some(({ task, began }) => began || !isActive(task) || now >= aloneUntil(task))
  return isUnder ? freeSlots : 0
}

const aloneUntil = ({ run }: Task): number => (run.startedAt ?? run.createdAt) + ALONE_MS

function firstAlone(own: readonly MemberState[], coming: readonly number[], now: number): { until?: number } {
  const [first] = own
  if (
    own.length !== 1 ||
    !first ||
    first.began ||
    !isActive(first.task) ||
    coming.length > 0 ||
    now >= aloneUntil(first.task)
  )
    return {}
  return { until: aloneUntil(first.task) }
}
