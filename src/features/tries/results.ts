import { listed } from "../../core/errors.ts"
import type { GroupTexts } from "../../core/feature.ts"
import { chosenIn, failureOf, hasNeverBegun, type MemberState, memberName, STOPPED } from "../../core/group.ts"
import { modelKey } from "../../core/limits.ts"
import type { CheckResult } from "../../core/receipt.ts"
import { groupPlan, groupResult, type Inferred, memberRow, type Zod } from "../../core/record.ts"
import { limitAgain } from "../../core/spending.ts"
import { elapsed, type Task, type Usage, wholeUsage } from "../../core/task.ts"
import { dollars, duration } from "../../lib/format.ts"
import { count, inTagsWithID, oneLine, tail } from "../../lib/text.ts"

/** Results of a group's tries. Pure: each result stands in its member's record. */

export type TriesPlan = Inferred<typeof planSchema>
export const planSchema = (z: Zod) =>
  z.object({
    ...groupPlan(z).shape,
    kind: z.literal("tries"),
    count: z.number(),
    /** Models, as `provider/model`, to try one after the other; absent where all tries run side by side. */
    ladder: z.array(z.string()).optional(),
  })

type TryRow = Inferred<typeof tryRow>
const tryRow = (z: Zod) =>
  z.object({
    model: z.string().optional(),
    /** Examples: `won`, `stopped`, `not begun`, `check did not pass (exit code 1)`. */
    how: z.string(),
    ms: z.number(),
    cost: z.number(),
    /** The cost is a lower bound: an answer was cut off. */
    atLeast: z.boolean().optional(),
    ...memberRow(z).shape,
    /** Whether the try left the guarded files unchanged; absent where no check has looked at them. */
    guard: z.enum(["held", "broken"]).optional(),
  })

export type TriesResult = Inferred<typeof resultSchema>
export const resultSchema = (z: Zod) =>
  z.object({
    ...groupResult(z).shape,
    kind: z.literal("tries"),
    /** Model of the winning try, or the number of this try where several tries had that model. */
    won: z.string().optional(),
    rows: z.array(tryRow(z)),
  })

const LATE = "passed after the one that won"
/** Newest member for each number, in order. */
export function newest(members: readonly MemberState[]): ReadonlyMap<number, MemberState> {
  const known = new Map(members.map((member) => [member.task.member?.nth ?? 0, member]))
  return new Map([...known].sort(([one], [other]) => one - other))
}

/** Ends of a try that are not failures. */
const OTHER_ENDS: ReadonlySet<string> = new Set(["won", LATE, STOPPED])
/** Most characters shown of a check's output. */
const MOST_CHECK_CHARS = 1500
/** Most models that are named. */
const MOST_NAMED = 8

/** End of a losing try, in a few words. */
export const tryEndText = (task: Task): string => (task.status === "completed" ? LATE : failureOf(task))

/** Result of a group of tries. `refs`: git refs of the tries' work, by task. `usage`: of all tries and their tasks. */
export function triesResult(
  plan: TriesPlan,
  members: readonly MemberState[],
  refs: ReadonlyMap<string, string>,
  { cost, atLeast }: Usage,
): TriesResult {
  const parts = newest(members)
  const rows = Array.from({ length: plan.count }, (_none, nth): TryRow => {
    const { task, check = task?.outcome?.receipt?.check } = parts.get(nth) ?? {}
    const model = task?.model ? modelKey(task.model) : plan.ladder?.[nth]
    if (!task || hasNeverBegun(task)) return { ...(model && { model }), how: "not begun", ms: 0, cost: 0 }
    const ref = refs.get(task.id)
    const own = wholeUsage(task)
    return {
      ...(model && { model }),
      how: task.id === plan.winner ? "won" : tryEndText(task),
      ms: elapsed(task, 0),
      cost: own.cost,
      ...(own.atLeast && { atLeast: true }),
      task: task.id,
      session: task.sessionID,
      ...(ref && { ref }),
      ...guardOf(task, task.id === plan.winner ? plan.passed : check),
    }
  })
  const at = rows.findIndex(({ how }) => how === "won")
  return { kind: "tries", ...(at >= 0 && { won: nameIn(rows, at) }), cost, ...(atLeast && { atLeast }), rows }
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

/** `Tries: 2 of 3, won by mock/two; $0.0930 in all. Its work is the task's result.` */
function triesLine({ rows, won, cost, atLeast }: TriesResult): string {
  const begun = rows.filter(({ task }) => task !== undefined).length
  const line = `Tries: ${begun} of ${rows.length}, ${won === undefined ? "none passed" : `won by ${oneLine(won)}`}; ${dollars(cost, atLeast)} in all`
  return won === undefined ? line : `${line}. Its work is the task's result.`
}

/** `won by try 1, 1 did not pass`. */
function triesText({ rows, won }: TriesResult): string {
  if (won === undefined) return "none passed"
  const failed = rows.filter(({ how, task }) => task !== undefined && !OTHER_ENDS.has(how)).length
  return `won by ${oneLine(won)}${failed > 0 ? `, ${failed} did not pass` : ""}`
}

/** Example: `1 mock/one: check did not pass (exit code 1), 12.3s, $0.0210, ses_…, refs/…`. */
const tryLines = ({ rows }: TriesResult): readonly string[] =>
  rows.map(({ model, how, ms, cost, atLeast, task, session, ref }, at) => {
    const figures = task ? [duration(ms), dollars(cost, atLeast), session, ref].filter(Boolean) : []
    return [`${at + 1}${model ? ` ${oneLine(model)}` : ""}: ${how}`, ...figures].join(", ")
  })

/** Lines about the tries, the winner last. Those that failed have the end of their check's output. */
function membersLines(result: TriesResult, id: string, members: readonly MemberState[]): readonly string[] {
  const lines = tryLines(result)
  const rows = result.rows.map((row, nth) => ({ ...row, nth, isWon: row.how === "won" }))
  return rows
    .toSorted((one, other) => Number(one.isWon) - Number(other.isWon))
    .flatMap(({ nth, isWon, task: taskID }) => {
      const output = members.find(({ task }) => task.id === taskID)?.task.outcome?.receipt?.check?.output
      const shown = !isWon && output ? tail(output.trimEnd(), MOST_CHECK_CHARS) : undefined
      return [
        lines[nth] ?? "",
        ...(shown === undefined ? [] : [inTagsWithID("check_output", memberName(id, nth), shown)]),
      ]
    })
}

/** `guard: held in 2 of 2`; "" where no check has looked at a try. */
function guardText({ rows }: TriesResult): string {
  const seen = rows.filter(({ guard }) => guard !== undefined)
  const held = seen.filter(({ guard }) => guard === "held").length
  return seen.length > 0 ? `guard: held in ${held} of ${seen.length}` : ""
}

const FIRST_WINS = "The first to pass becomes the task's result."

export const tryTexts: GroupTexts<TriesPlan, TriesResult> = {
  launched({ group: plan }, model, more) {
    const names = plan.ladder?.map((name) => oneLine(name))
    const how = names ? ` in turn with ${listed(names, MOST_NAMED)}` : model
    return `${count(plan.count, "try", "tries")}${how}, each in its own worktree${more}. ${FIRST_WINS}`
  },
  resumed: (plan) =>
    chosenIn(plan) === undefined
      ? `Those of the ${count(plan.count, "try", "tries")} that have not failed run, from the same files. ${FIRST_WINS}`
      : "The try that had won is asked again, with its whole history.",
  result: triesText,
  lines: tryLines,
  summary: (result) => [triesLine(result)],
  guard: guardText,
  members: membersLines,
  advice({ id, group }, reason) {
    if (!group) return undefined
    if (chosenIn(group) !== undefined)
      return `To go on: superagents_task(resume="${id}", prompt${limitAgain(reason)}) asks the try that had won again.`
    if (reason.code === "check")
      return "To go on: launch a new task with another prompt, other models or higher limits."
    return reason.code === "interrupted"
      ? `To go on: superagents_task(resume="${id}"${limitAgain(reason)}) begins the tries that have not failed, from the same files.`
      : undefined
  },
}
