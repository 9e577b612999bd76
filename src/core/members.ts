import { dollars, duration } from "../lib/format.ts"
import { count, formatInteger, oneLine } from "../lib/text.ts"
import {
  chosenIn,
  type Group,
  type ItemsPlan,
  type ItemsResult,
  sizeOf,
  type TriesPlan,
  type TriesResult,
  type TryRow,
} from "./group.ts"
import { modelKey } from "./limits.ts"
import { neverBegan } from "./outcome.ts"
import type { CheckResult } from "./receipt.ts"
import { type Ending, elapsed, isActive, type Task } from "./task.ts"

/**
 * State of a member. `closed`: the member has ended and its work is archived; `began`: its model has begun to answer.
 */
export type MemberState = {
  readonly task: Task
  readonly closed: boolean
  readonly began: boolean
  /** Check result of the member, where the task's outcome does not hold it yet. */
  readonly check?: CheckResult
}

/** Next step of a group: members to start, its winner, or the end of its run. `until`: when to decide again. */
export type GroupStep = {
  readonly begin: readonly number[]
  readonly winner?: string
  readonly passed?: CheckResult
  readonly ending?: Ending
  readonly until?: number
}

/**
 * State of a group beside the states of its members. `coming`: members that are being created; `done`: items that
 * earlier runs settled as valid.
 */
export type GroupState = {
  readonly coming: readonly number[]
  readonly done: readonly number[]
  readonly generation: number
  /** Free slots. */
  readonly freeSlots: number
  readonly now: number
}

/** Newest member for each try or item, sorted by number. */
export function newest(members: readonly MemberState[]): ReadonlyMap<number, MemberState> {
  const known = new Map(members.map((member) => [member.task.member?.nth ?? 0, member]))
  return new Map([...known].sort(([one], [other]) => one - other))
}

/** True for a member that this run of the group has begun. Such a member is not begun again. */
export const isBegunIn = (task: Task, generation: number): boolean => {
  const { reason } = task.outcome ?? {}
  return task.member?.run === generation && (isActive(task) || !reason || !neverBegan(reason))
}

/** Sentence that says why a resume of an ended group has nothing to continue; undefined where members remain. */
export function whyNothingRemains({ id, group, outcome }: Task): string | undefined {
  const { group: result, reason } = outcome ?? {}
  if (result?.kind === "each" && result.valid === result.total)
    return `All ${result.total} items of task ${id} are valid: there is nothing to go on with. superagents_output(task_id="${id}") shows the rows; for other items or another prompt, launch a new task.`
  if (result?.kind === "tries" && reason?.code === "check" && chosenIn(group) === undefined)
    return `All ${result.rows.length} tries of task ${id} have failed: there is nothing to go on with. Launch a new task with another prompt or other models.`
  return undefined
}

/**
 * True for an ended group with unfinished members. A resume of the group needs no prompt, and is allowed for every
 * status.
 */
export const hasRemaining = (task: Task): boolean =>
  !isActive(task) &&
  task.group !== undefined &&
  chosenIn(task.group) === undefined &&
  whyNothingRemains(task) === undefined

/** Results of a group's tries. Pure: each result stands in its member's record. */

const MOST_HOW_CHARS = 160
const LATE = "passed after the one that won"
const STOPPED = "stopped"
/** Ends of a try that are not failures. */
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

/** Result of a group of tries. `refOf` returns the git ref of a member's work. */
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

/** Name of a try: its model where no other try had that model, else its number. */
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

/** Results of a map's items. Pure: the result of each item stands in its own record. */

/** Item counts of a map; they always sum up to `total`. */
export type ItemCounts = {
  readonly valid: number
  readonly failed: number
  readonly running: number
  readonly notBegun: number
  readonly total: number
}

/** `own`: members of the present run. `done`: items that earlier runs settled as valid. */
export function countItems(total: number, own: readonly MemberState[], done: { readonly length: number }): ItemCounts {
  const running = own.filter(({ task }) => isActive(task)).length
  const valid = own.filter(({ task }) => task.status === "completed").length + done.length
  const rest = own.length + done.length
  return { valid, failed: rest - running - valid, running, notBegun: total - rest, total }
}

/** Example: `Items: 412 valid, 3 failed, 10 running, 575 not begun, of 1,000.` */
function itemsLine({ valid, failed, running, notBegun, total }: ItemCounts): string {
  return `Items: ${formatInteger(valid)} valid, ${formatInteger(failed)} failed, ${formatInteger(running)} running, ${formatInteger(notBegun)} not begun, of ${formatInteger(total)}.`
}

/** Example: `4 valid, 1 running of 6`; zero counts are left out. */
export function countsText(
  { valid, failed, running, notBegun, total }: ItemCounts,
  kind: Group["kind"] = "each",
): string {
  const isTries = kind === "tries"
  const all = [
    [valid, isTries ? "passed" : "valid"],
    [failed, isTries ? "did not pass" : "failed"],
    [running, "running"],
    [notBegun, "not begun"],
  ] as const
  const shown = all.filter(([many]) => many > 0).map(([many, what]) => `${formatInteger(many)} ${what}`)
  return `${shown.join(", ")} of ${formatInteger(total)}`
}

export function groupText({ id, group, outcome, run }: Task, members: readonly MemberState[]): string | undefined {
  if (!group) return undefined
  const { group: result } = outcome ?? {}
  if (result?.kind === "each") return countsText({ ...result, running: 0 })
  if (result) return triesText(result)
  const parts = members.filter(({ task: { member } }) => member?.of === id)
  const own = parts.filter(({ task: { member } }) => member?.run === run.generation)
  // A later run of a map does not begin items again that an earlier run settled.
  const settled = parts.filter(({ task: { status } }) => group.kind === "each" && status === "completed")
  const done = new Set(settled.filter((part) => !own.includes(part)).map(({ task: { member } }) => member?.nth))
  return countsText(countItems(sizeOf(group), own, { length: done.size }), group.kind)
}

/** A row of the ledger: `value` of a valid item, `reason` of a failed one. */
export type ItemRow = {
  readonly index: number
  readonly item: unknown
  readonly state: "running" | "valid" | "failed" | "not begun"
  readonly value?: unknown
  readonly reason?: string
  /** How often the agent was asked for a valid value; absent where it was asked once. */
  readonly asked?: number
  readonly task?: string
  readonly session?: string
  readonly cost?: number
  readonly ms?: number
}

const MOST_WHY_CHARS = 160
const MOST_GROUPS = 10
const MOST_INDICES = 5

/** Reason for a failed item, without details that differ between equal failures. */
export const failureText = (task: Task | undefined): string =>
  oneLine(task?.outcome?.reason?.text ?? "it was stopped", MOST_WHY_CHARS)

export function itemsResult(
  { total, file }: ItemsPlan,
  rows: readonly ItemRow[],
  cost: number,
  unmerged = 0,
): ItemsResult {
  const states = (state: ItemRow["state"]) => rows.filter((row) => row.state === state)
  const groups = new Map<string, number[]>()
  for (const { reason = "", index } of states("failed")) groups.set(reason, [...(groups.get(reason) ?? []), index])
  const [valid, failures] = [states("valid").length, states("failed").length]
  return {
    kind: "each",
    total,
    valid,
    failed: failures,
    notBegun: total - valid - failures,
    ...(unmerged > 0 && { unmerged }),
    cost,
    file,
    groups: [...groups]
      .sort(([, one], [, other]) => other.length - one.length)
      .slice(0, MOST_GROUPS)
      .map(([why, all]) => ({ why, count: all.length, first: all.slice(0, MOST_INDICES) })),
  }
}

/** Lines of the notification: counts, cost, reasons of failures, path of the rows. */
export function itemLines(result: ItemsResult): readonly string[] {
  const { file, cost, groups, failed: failures } = result
  const listedCount = groups.reduce((sum, group) => sum + group.count, 0)
  return [
    `${itemsLine({ ...result, running: 0 })} ${dollars(cost)} in all.`,
    ...groups.map(({ why, count: many, first }) => {
      const more = many > first.length ? ` and ${formatInteger(many - first.length)} more` : ""
      return `- ${formatInteger(many)} failed (item ${first.map((index) => index + 1).join(", ")}${more}): ${why}`
    }),
    ...(failures > listedCount ? [`- ${formatInteger(failures - listedCount)} failed for other reasons`] : []),
    `Rows, one an item, of which the first has index 0: ${file}`,
  ]
}

/** Rows for display: failed items first. */
export const shownRows = (rows: readonly ItemRow[]): string =>
  (["failed", "valid"] as const)
    .flatMap((state) => rows.filter((row) => row.state === state))
    .map(({ task: _task, session: _session, ms: _ms, cost: _cost, ...row }) => JSON.stringify(row))
    .join("\n")

/** Estimated cost of many items. `about`: from earlier runs; `atLeast`: the cost of the prompts alone. */
export type Forecast = { readonly about?: number; readonly atLeast?: number }

/** Question to the user before many items begin. */
export function previewOf(total: number, agent: string, model: string | undefined, cost: Forecast): string {
  const { about, atLeast } = cost
  const known = about ?? atLeast
  const price =
    known === undefined
      ? "cost not known"
      : `${about === undefined ? "" : "about "}${dollars(known, about === undefined)}`
  return `${count(total, "item")} for ${agent}${model ? ` (${model})` : ""}, ${price}`
}
