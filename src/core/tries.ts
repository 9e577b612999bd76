import { duration } from "../lib/duration.ts"
import { dollars } from "../lib/money.ts"
import { oneLine } from "../lib/text.ts"
import type { TriesPlan, TriesResult, TryRow } from "./group.ts"
import { modelKey } from "./limits.ts"
import { type MemberState, newest } from "./members.ts"
import type { CheckResult } from "./receipt.ts"
import { elapsed, type Task } from "./task.ts"

/** Results of a group's tries. Pure: each result stands in its member's record. */

const MOST_HOW_CHARS = 160
const LATE = "passed after the one that won"
const STOPPED = "stopped"
/** Of a try: all but a failure. */
const OTHER_ENDS: ReadonlySet<string> = new Set(["won", LATE, STOPPED])

/** End of a losing try, in a few words. */
export function tryEndText({ status, outcome }: Task): string {
  const { reason, receipt } = outcome ?? {}
  if (status === "completed") return LATE
  if (reason?.code === "parent-ended" || reason?.code === "cancelled") return STOPPED
  const { check } = receipt ?? {}
  if (reason?.code === "check" && check && !check.guarded) return `check did not pass (${oneLine(check.how)})`
  return oneLine(reason?.text ?? status, MOST_HOW_CHARS).replace(/\.$/, "")
}

/** `refOf`: git ref of a member's work. */
export function triesResult(
  plan: TriesPlan,
  members: readonly MemberState[],
  refOf: (task: Task) => string | undefined,
): TriesResult {
  const parts = newest(members)
  const rows = Array.from({ length: plan.count }, (_none, nth): TryRow => {
    const { task, check = task?.outcome?.receipt?.check } = parts.get(nth) ?? {}
    const model = task?.model ? modelKey(task.model) : plan.ladder?.[nth]
    if (!task) return { ...(model && { model }), how: "not begun", ms: 0, cost: 0 }
    const ref = refOf(task)
    return {
      ...(model && { model }),
      how: task.id === plan.winner ? "won" : tryEndText(task),
      ms: elapsed(task, 0),
      cost: costOf(task),
      task: task.id,
      session: task.sessionID,
      ...(ref && { ref }),
      ...guardOf(task, task.id === plan.winner ? plan.passed : check),
    }
  })
  const at = rows.findIndex(({ how }) => how === "won")
  const cost = members.reduce((sum, { task }) => sum + costOf(task), 0)
  return { kind: "tries", ...(at >= 0 && { won: nameIn(rows, at) }), cost, rows }
}

/** Its model names a try where no other had that model; else its number does. */
function nameIn(rows: readonly TryRow[], at: number): string {
  const model = rows[at]?.model
  const isAlone = rows.filter((row) => row.model === model).length === 1
  return model !== undefined && isAlone ? model : `try ${at + 1}`
}

/** Whether the check found guarded files changed. */
function guardOf({ run }: Task, check: CheckResult | undefined): Pick<TryRow, "guard"> {
  return run.guard && check && check.runs > 0 ? { guard: check.guarded ? "broken" : "held" } : {}
}

/** Cost of all runs of the try: an earlier winner may have been resumed. */
const costOf = ({ earlier, outcome }: Task): number => earlier.usage.cost + (outcome?.usage.cost ?? 0)

/** `Tries: 2 of 3, won by mock/two; $0.0930 in all. Its work is the task's result.` */
export function triesLine({ rows, won, cost }: TriesResult): string {
  const begun = rows.filter(({ task }) => task !== undefined).length
  const line = `Tries: ${begun} of ${rows.length}, ${won === undefined ? "none passed" : `won by ${oneLine(won)}`}; ${dollars(cost)} in all`
  return won === undefined ? line : `${line}. Its work is the task's result.`
}

/** `won by try 1, 1 did not pass`. */
export function triesText({ rows, won }: TriesResult): string {
  if (won === undefined) return "none passed"
  const failed = rows.filter(({ how, task }) => task !== undefined && !OTHER_ENDS.has(how)).length
  return `won by ${oneLine(won)}${failed > 0 ? `, ${failed} did not pass` : ""}`
}

/** Example: `1 mock/one: check did not pass (exit code 1), 12.3s, $0.0210, ses_…, refs/…`. */
export const tryLines = ({ rows }: TriesResult): readonly string[] =>
  rows.map(({ model, how, ms, cost, task, session, ref }, at) => {
    const figures = task ? [duration(ms), dollars(cost), session, ref].filter(Boolean) : []
    return [`${at + 1}${model ? ` ${oneLine(model)}` : ""}: ${how}`, ...figures].join(", ")
  })
