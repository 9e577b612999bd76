import { dollars } from "../lib/money.ts"
import { count, formatInteger, oneLine } from "../lib/text.ts"
import { type Group, type ItemsPlan, type ItemsResult, sizeOf } from "./group.ts"
import type { MemberState } from "./members.ts"
import { isActive, type Task } from "./task.ts"
import { triesText } from "./tries.ts"

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
  // Items that an earlier run settled are not begun again.
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
  /** How often its agent was asked for a valid value; absent for once. */
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
  const told = groups.reduce((sum, group) => sum + group.count, 0)
  return [
    `${itemsLine({ ...result, running: 0 })} ${dollars(cost)} in all.`,
    ...groups.map(({ why, count: many, first }) => {
      const more = many > first.length ? ` and ${formatInteger(many - first.length)} more` : ""
      return `- ${formatInteger(many)} failed (item ${first.map((index) => index + 1).join(", ")}${more}): ${why}`
    }),
    ...(failures > told ? [`- ${formatInteger(failures - told)} failed for other reasons`] : []),
    `Rows, one an item, of which the first has index 0: ${file}`,
  ]
}

/** Rows for display: failed items first. */
export const shownRows = (rows: readonly ItemRow[]): string =>
  (["failed", "valid"] as const)
    .flatMap((state) => rows.filter((row) => row.state === state))
    .map(({ task: _task, session: _session, ms: _ms, cost: _cost, ...row }) => JSON.stringify(row))
    .join("\n")

/** Estimated cost of many items: from earlier runs, or at least what their prompts cost. */
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
