import { listed } from "../../core/errors.ts"
import type { GroupTexts } from "../../core/feature.ts"
import { countsText } from "../../core/group.ts"
import { groupPlan, groupResult, type Inferred, type Zod } from "../../core/record.ts"
import { limitAgain } from "../../core/spending.ts"
import type { Reason, Task } from "../../core/task.ts"
import { yieldToEventLoop } from "../../lib/clock.ts"
import { grouped } from "../../lib/collections.ts"
import { dollars } from "../../lib/format.ts"
import { count, formatInteger, oneLine } from "../../lib/text.ts"

/** Results of a map's items. Pure: the result of each item stands in its own record. */

export type ItemsPlan = Inferred<typeof planSchema>
export const planSchema = (z: Zod) =>
  z.object({
    ...groupPlan(z).shape,
    kind: z.literal("each"),
    total: z.number(),
    /** Path of the ledger: one row for each item. */
    file: z.string(),
  })

export type ItemsResult = Inferred<typeof resultSchema>
export const resultSchema = (z: Zod) =>
  z.object({
    ...groupResult(z).shape,
    kind: z.literal("each"),
    total: z.number(),
    valid: z.number(),
    failed: z.number(),
    notBegun: z.number(),
    /** Items that completed in places of their own, and whose changes are not merged. */
    unmerged: z.number().optional(),
    file: z.string(),
    /** True where the ledger could not be written at the end. */
    unwritten: z.boolean().optional(),
    /** Failed items by reason, most frequent first. */
    groups: z.array(z.object({ why: z.string(), count: z.number(), first: z.array(z.number()) })),
  })

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

/** Reason of a map whose items are all over, and of which some failed. */
export const itemsFailed = ({ failed, total }: Pick<ItemsResult, "failed" | "total">): Reason => ({
  code: "items",
  text: `${formatInteger(failed)} of ${count(total, "item")} failed.`,
})

export function itemsResult(
  { total, file }: ItemsPlan,
  rows: readonly ItemRow[],
  cost: number,
  unmerged = 0,
): ItemsResult {
  const states = (state: ItemRow["state"]) => rows.filter((row) => row.state === state)
  const groups = grouped(states("failed"), ({ reason = "" }) => reason)
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
      .map(([why, all]) => ({ why, count: all.length, first: all.slice(0, MOST_INDICES).map(({ index }) => index) })),
  }
}

/** Counts, cost, reasons of failures, path of the rows. */
export function itemLines(result: ItemsResult): readonly string[] {
  const { file, unwritten, cost, atLeast, groups, valid, failed, notBegun, total } = result
  const listedCount = groups.reduce((sum, group) => sum + group.count, 0)
  return [
    `Items: ${formatInteger(valid)} valid, ${formatInteger(failed)} failed, 0 running, ${formatInteger(notBegun)} not begun, of ${formatInteger(total)}. ${atLeast ? "At least " : ""}${dollars(cost)} in all.`,
    ...groups.map(({ why, count: many, first }) => {
      const numbers = first.map((index) => `${index + 1}`)
      return `- ${formatInteger(many)} failed (item ${listed(numbers, MOST_INDICES, many - first.length)}): ${why}`
    }),
    ...(failed > listedCount ? [`- ${formatInteger(failed - listedCount)} failed for other reasons`] : []),
    unwritten
      ? `The rows could not be written to ${file}: each answer is in the session of its item.`
      : `Rows, one per item, of which the first has index 0: ${file}`,
  ]
}

/** Rows for display: failed items first. */
export async function shownRows(rows: readonly ItemRow[]): Promise<string> {
  const shown = (["failed", "valid"] as const).flatMap((state) => rows.filter((row) => row.state === state))
  const lines: string[] = []
  const pause = slicedByLength()
  for (const { task: _task, session: _session, ms: _ms, cost: _cost, ...row } of shown) {
    const line = JSON.stringify(row)
    lines.push(line)
    await pause(line)
  }
  return lines.join("\n")
}

/** Says how the changes of items in worktrees are merged. */
const mergeText = (id: string, merge: boolean): string =>
  merge
    ? " Each is merged by itself when it has completed."
    : ` Not merged by themselves: superagents_task(merge="${id}") brings their changes into your files.`

export const itemTexts: GroupTexts<ItemsPlan, ItemsResult> = {
  launched({ id, group: { total, place } }, model, more) {
    const items = `${count(total, "item")}${model}`
    return place ? `${items}, each in its own worktree${more}.${mergeText(id, place.merge)}` : `${items}${more}.`
  },
  resumed: ({ total }) => `Those of the ${count(total, "item")} that are not valid run again.`,
  result: (result) => countsText({ ...result, running: 0 }, ["valid", "failed"]),
  lines: itemLines,
  summary(result, id) {
    const { unmerged = 0 } = result
    const merge = `Changes of ${count(unmerged, "item")} were not merged: superagents_task(merge="${id}") brings them into your files.`
    return [...itemLines(result), ...(unmerged > 0 ? [merge] : [])]
  },
  advice: ({ id, member }, reason) =>
    // A map that is still at work when one of its items has failed takes no resume.
    `${member ? `Once ${member.of} has ended,` : "To go on:"} superagents_task(resume="${member?.of ?? id}"${limitAgain(reason)}) runs the items that are not valid.`,
}

/** Characters of JSON that are read or written without a pause: this takes some 2 ms. */
const SLICE_CHARS = 200_000

/**
 * Like `sliced`, by the length of what was read or written, so that equal texts lead to equal pauses. `more`: characters
 * that take as long as what is done with each text beside.
 */
export function slicedByLength(more = 0): (text: string) => Promise<void> {
  let chars = 0
  return async (text) => {
    chars += text.length + more
    if (chars < SLICE_CHARS) return
    await yieldToEventLoop()
    chars = 0
  }
}
