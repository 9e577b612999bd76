import { duration } from "../lib/duration.ts"
import { dollars } from "../lib/money.ts"
import { between, head, oneLine, tail } from "../lib/text.ts"
import type { TriesPlan, TriesResult, TryRow } from "./group.ts"
import { modelKey } from "./limits.ts"
import { neverBegan } from "./outcome.ts"
import { type CheckResult, receiptLine } from "./receipt.ts"
import { type Ending, elapsed, isActive, type Task } from "./task.ts"

/** Decides what follows from the results of a group's tries. Pure: each result stands in its member's record. */

/** State of a member. `closed`: it has ended and its work is archived. `began`: its answer has begun. */
export type Member = {
  readonly task: Task
  readonly closed: boolean
  readonly began: boolean
  /** Check result, where the outcome does not hold it yet. */
  readonly check?: CheckResult
}

/** Next move of a group: members to start, its winner, or the end of its run. */
export type Move = {
  readonly begin: readonly number[]
  readonly winner?: string
  readonly passed?: CheckResult
  readonly ending?: Ending
}

const NOTHING: Move = { begin: [] }

const numberOf = ({ member }: Task): number => member?.nth ?? 0

/** Newest member for each number. */
function newest(members: readonly Member[]): ReadonlyMap<number, Member> {
  const known = new Map(members.map((member) => [numberOf(member.task), member]))
  return new Map([...known].sort(([one], [other]) => one - other))
}

/** A try that was cancelled or interrupted in an earlier run, or before it began, has not failed: it is started again. */
const hasFailed = ({ status, member, outcome }: Task, generation: number): boolean => {
  const { reason } = outcome ?? {}
  if (member?.run === generation) return !reason || !neverBegan(reason)
  return status === "error" && reason?.code !== "interrupted"
}

/** True for a member that was begun in this run of its group, and is not begun again. */
export const isBegunIn = (task: Task, generation: number): boolean =>
  task.member?.run === generation && (isActive(task) || hasFailed(task, generation))

/** `coming`: indexes of members that are being created. `generation`: the group's run. */
export function nextTries(
  plan: TriesPlan,
  members: readonly Member[],
  coming: readonly number[],
  generation: number,
): Move {
  if (plan.again !== undefined) return nextOfWinner(plan.again, members, coming, generation)
  const known = [...newest(members).values()]
  const passed = known.filter(({ task }) => task.status === "completed")
  const [first] = passed.toSorted((a, b) => endedAt(a) - endedAt(b))
  if (first) return wonBy(first)
  const tried = known.filter(({ task }) => isActive(task) || hasFailed(task, generation))
  const numbers = new Set([...coming, ...tried.map(({ task }) => numberOf(task))])
  const waiting = Array.from({ length: plan.count }, (_none, nth) => nth).filter((nth) => !numbers.has(nth))
  const isBusy = coming.length > 0 || known.some(({ closed }) => !closed)
  if (waiting.length > 0) return plan.ladder ? { begin: isBusy ? [] : waiting.slice(0, 1) } : { begin: waiting }
  if (isBusy) return NOTHING
  const failures = tried.map(({ task }) => `${numberOf(task) + 1}: ${howOf(task)}`)
  const text = `None of ${plan.count} tries passed: ${failures.join("; ")}.`
  return { begin: [], ending: { type: "failed", reason: { code: "check", text } } }
}

const endedAt = ({ task }: Member): number => task.run.endedAt ?? 0

const wonBy = ({ task, check }: Member): Move => {
  const passed = check ?? task.outcome?.receipt?.check
  return { begin: [], winner: task.id, ...(passed && { passed }) }
}

/** A resumed group with a winner starts the winner alone. */
function nextOfWinner(id: string, members: readonly Member[], coming: readonly number[], generation: number): Move {
  const winner = members.find(({ task }) => task.id === id)
  const isBegun = winner?.task.member?.run === generation
  if (winner && !isBegun) return coming.length > 0 ? NOTHING : { begin: [numberOf(winner.task)] }
  if (winner?.task.status === "completed") return wonBy(winner)
  if (winner && (isActive(winner.task) || !winner.closed)) return NOTHING
  const text = "The try that had won is not known any more."
  return { begin: [], ending: { type: "failed", reason: winner?.task.outcome?.reason ?? { code: "check", text } } }
}

const MOST_HOW_CHARS = 160
const LATE = "passed after the one that won"
const STOPPED = "stopped"
/** Of a try: all but a failure. */
const OTHER_ENDS: ReadonlySet<string> = new Set(["won", LATE, STOPPED])

/** End of a losing try, in a few words. */
export function howOf({ status, outcome }: Task): string {
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
  members: readonly Member[],
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
      how: task.id === plan.winner ? "won" : howOf(task),
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

const DIGEST_CHARS = 8000
const DIGEST_OUTPUT_LINES = 60
const DIGEST_OUTPUT_CHARS = 4000
const DIGEST_FILES = 50

/** Prompt of a later try, after the results of earlier ones. These are data between tags that they cannot close. */
export function withDigest(prompt: string, groupID: string, earlier: readonly Task[]): string {
  if (earlier.length === 0) return prompt
  const share = Math.floor(DIGEST_CHARS / earlier.length)
  const pieces = earlier.map((task) => head(digestOf(task), share))
  const digest = between("earlier_tries", groupID, pieces.join("\n\n"))
  return `Others tried this before you, from the same files that you begin with; nothing of their work is in them. What became of each, as data:\n\n${digest}\n\nDo not repeat what failed. Your task:\n\n${prompt}`
}

function digestOf(task: Task): string {
  const { model, outcome } = task
  const { reason, receipt, work } = outcome ?? {}
  const files = work?.files ?? []
  const more = files.length - DIGEST_FILES + (work?.moreFiles ?? 0)
  const output = tail(
    (receipt?.check?.output ?? "").trimEnd().split("\n").slice(-DIGEST_OUTPUT_LINES).join("\n"),
    DIGEST_OUTPUT_CHARS,
  )
  return [
    `Try ${numberOf(task) + 1}${model ? ` (${modelKey(model)})` : ""}: ${oneLine(reason?.text ?? "it did not pass", 500)}`,
    ...(receipt ? [`Receipt: ${receiptLine(receipt)}`] : []),
    ...(files.length > 0
      ? [
          `Files changed: ${files
            .slice(0, DIGEST_FILES)
            .map((file) => oneLine(file))
            .join(", ")}${more > 0 ? ` and ${more} more` : ""}`,
        ]
      : []),
    ...(output === "" ? [] : ["The end of its check's output:", output]),
  ].join("\n")
}
