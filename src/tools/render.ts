import { accountOf, modelLine, nameOf, noText, workOf } from "../core/account.ts"
import { batchLabel } from "../core/batch.ts"
import { usageText } from "../core/figures.ts"
import { countsText } from "../core/items.ts"
import { modelKey } from "../core/limits.ts"
import { parkedText, whenOf } from "../core/parked.ts"
import { MOST_COMMAND_CHARS, quoted, receiptLines } from "../core/receipt.ts"
import { type Ask, billedTokens, isActive, isQueued, isUnmerged, type Task } from "../core/task.ts"
import { tryLines } from "../core/tries.ts"
import type { Report } from "../engine/conductor/reporting.ts"
import type { Limit } from "../engine/gate/gates.ts"
import type { TaskView } from "../engine/tasks/view.ts"
import { duration, ticking } from "../lib/duration.ts"
import { dollars } from "../lib/money.ts"
import { between, count, grouped, head, oneLine, tail } from "../lib/text.ts"
import type { Shown } from "../place/place.ts"
import type { ToolResult } from "./tool.ts"

/** The host cuts tool output at 2,000 lines or 50 KB; an answer is cut before that, and says how to read on. */
export const MOST_ANSWER_CHARS = 32_000
const MOST_ANSWER_LINES = 1900
export const MOST_ANSWER_BYTES = 46_000
/** However much is told before it. */
const LEAST_ANSWER_BYTES = 4000
const LATEST_TEXT_CHARS = 1000
/** Three hundred lines of code; the rest of what a tool result can hold is the answer's. */
const MOST_DIFF_BYTES = 24_000
const MOST_NAME_CHARS = 60

const TOLD = "You will be told when it ends."
/** What a task that has completed is doing until its work is home. */
const MERGING = "its work is being checked and merged"
const FETCHING = "bringing its work home"

/** A run that was begun, and what it may spend, by each limit. */
/** `place`: where it works, in words, where that is not its parent's own folder. */
type Begun = {
  readonly view: TaskView
  readonly allowance: readonly string[]
  readonly place?: string
  /** Its model's provider is at its limit. */
  readonly closed?: Limit
}

/** `named`: its model was given, and is confirmed. */
export function renderLaunch(
  { view, reused, allowance, place, closed }: Begun & { readonly reused: boolean },
  named = false,
): ToolResult {
  const { task } = view
  const first = reused
    ? `An identical task was launched before; this is that one: it is ${statusOf(view)}.`
    : `Background task launched${view.phase === "queued" && !closed ? `; it waits for a free slot (place ${view.place})` : ""}.`
  const names = [
    `${first} Task ID: ${nameOf(task)}`,
    ...(named ? [`Agent: ${agentOf(task, task.model?.variant)}`] : []),
  ]
  const terms = reused ? [] : termLines(task, allowance, place)
  const lines = [
    ...names,
    ...waitingLines(view),
    ...closedLines(view, closed),
    ...forkLines(task),
    ...rideLines(task),
    ...cutLines(task),
    ...terms,
  ]
  const next = isActive(task) ? TOLD : `Fetch its answer with superagents_output(task_id="${task.id}").`
  return result(view, [...lines, next])
}

/** For which tasks it waits. */
const waitingLines = ({ task, phase }: TaskView): string[] =>
  isQueued(task) && phase !== "queued" ? [`It is ${phase}, and begins with their answers.`] : []

/** It begins when its provider opens, and nobody has to do anything for that. */
const closedLines = ({ at }: TaskView, closed: Limit | undefined): string[] => {
  if (!closed) return []
  const when = whenOf(closed, at)
  const time = when ? ` ${when.text} (in ${duration(when.in)})` : ""
  if (closed.until !== undefined)
    return [`${closed.model} is at its limit${time}: the task is parked and begins by itself then.`]
  return [
    `${closed.model} is at its limit${time && `,${time}`}: the task is parked and begins by itself when it opens.`,
  ]
}

export function renderResume({ view, allowance, place, closed }: Begun): ToolResult {
  const { task } = view
  const lines = [
    `Resume #${task.run.generation} of task ${nameOf(task)} ${closed ? "is parked" : view.phase === "queued" ? `waits for a free slot (place ${view.place})` : "started"}.`,
    `Agent: ${agentOf(task)}, with its whole history.`,
    ...closedLines(view, closed),
    ...termLines(task, allowance, place),
    "",
    TOLD,
  ]
  return result(view, lines)
}

/** Where a run works, what it has to pass, how its work comes home, and what it may spend. */
function termLines({ place, run }: Task, allowance: readonly string[], where: string | undefined): string[] {
  const { check } = run
  const merge = place?.merge && (check === undefined ? "when completed, unchecked" : "once its check has passed")
  return [
    ...(where ? [`Place: ${where}; ${merge ? `merged by itself ${merge}` : "not merged by itself"}.`] : []),
    ...(check === undefined
      ? []
      : [`Check: ${quoted(oneLine(check, MOST_COMMAND_CHARS))} has to pass before it counts as completed.`]),
    ...(allowance.length > 0 ? [`Limits: ${allowance.join(", ")}.`] : []),
  ]
}

/** `waits`: the run has not begun, and the words stand behind its prompt. */
export function renderTold({ view, waits }: { view: TaskView; waits: boolean }): ToolResult {
  const { task } = view
  const when = waits ? "It has not begun; it reads this behind its prompt." : "It reads this at its next step."
  const asks = view.asks.map(
    ({ what }) => `First it waits for an answer from the user, which this is not: ${oneLine(what)}`,
  )
  return result(view, [`Told task ${nameOf(task)}. ${when}`, ...asks, "", TOLD])
}

/** A parked task is tried at once. */
export function renderUnparked({ view, model, others }: { view: TaskView; model: string; others: number }): ToolResult {
  const follow = others > 0 ? `; ${count(others, "other follows", "others follow")} if it is answered` : ""
  return result(view, [`${nameOf(view.task)} tries ${model} now${follow}.`])
}

/** How a merge came out. */
export function renderMerge(view: TaskView): ToolResult {
  return result(view, [`Task: ${nameOf(view.task)}`, ...workOf(view.task)])
}

/**
 * A task with its facts in a short head and, if it has ended, its answer from character `offset` on. `patience`: after
 * how many ms a question that nobody answers is refused, 0 for never.
 */
export function renderOutput(report: Report, offset: number, patience: number): ToolResult {
  const { view, answer } = report
  const { task } = view
  const facts = [
    `Task: ${marked(task)} ${oneLine(task.description)}`,
    `Agent: ${agentOf(task)}`,
    `Batch: ${oneLine(batchLabel(task.batch))}`,
    `Status: ${statusOf(view)}`,
    ...(task.run.generation > 0 ? [`Resumed: ${count(task.run.generation, "time")}`] : []),
    `Time: ${duration(view.elapsed)}${view.waited >= 1000 ? ` (after ${duration(view.waited)} in the queue)` : ""}`,
    ...figureLines(view),
    ...(isActive(task) ? modelLine(task) : []),
    ...parkedLines(view),
    ...forkLines(task),
    ...cacheLines(task),
  ]
  const body =
    answer === undefined ? runningLines(view, patience, report.waited) : endedLines(task, answer, offset, report)
  return result(view, [...facts, ...body])
}

/** `bg_k3x9f2q1 (forked) (resumed)`. */
export const marked = (task: Task): string =>
  `${task.id}${task.fork ? " (forked)" : ""}${task.run.generation > 0 ? " (resumed)" : ""}${isUnmerged(task) ? " (unmerged)" : ""}`

/** The status, and what a task that has not ended is doing. */
export const statusOf = (view: TaskView): string =>
  view.counts ? `${stateOf(view)}, ${countsText(view.counts)}` : stateOf(view)

function stateOf(view: TaskView): string {
  const { task, phase, retry } = view
  if (phase === undefined)
    return [task.status, ...(view.merging ? [MERGING] : view.fetching ? [FETCHING] : [])].join(", ")
  if (phase === "queued") return `${task.status}, queued (place ${view.place})`
  if (retry) return `${task.status}, retrying (attempt ${retry.attempt}: ${oneLine(retry.message)})`
  const ask = view.asks[0]
  return ask ? `${task.status}, ${phase} (${oneLine(ask.what)})` : `${task.status}, ${phase}`
}

/** Of a task at work that is parked; what an ended one was is told in its account. */
function parkedLines({ task, parked, at }: TaskView): string[] {
  if (!parked) return []
  const when = whenOf(parked, at)
  const text = `P${parkedText(parked, at).slice(1)}${when ? ` (in ${duration(when.in)})` : ""}`
  return [
    `${text}: ${parked.model} says "${oneLine(parked.why)}". It goes on by itself; superagents_task(unpark: "${task.id}") tries now.`,
  ]
}

function figureLines({ task, whole, thisRun, recentTools }: TaskView): string[] {
  const last = recentTools.length > 0 ? ` (last: ${recentTools.map(nameLike).join(", ")})` : ""
  if (task.run.generation === 0) return [`Tool calls: ${grouped(whole.toolCalls)}${last}`, `Usage: ${usageText(whole)}`]
  return [
    `Tool calls: this run ${grouped(thisRun.toolCalls)}${last}, in all ${grouped(whole.toolCalls)}`,
    `Usage: this run ${usageText(thisRun)}; in all ${usageText(whole)}`,
  ]
}

function forkLines({ fork }: Task): string[] {
  if (!fork) return []
  const cuts = [
    ...(fork.droppedMessages > 0 ? [`${count(fork.droppedMessages, "older message")} dropped`] : []),
    ...(fork.cutResults > 0 ? [`${count(fork.cutResults, "tool result")} cut`] : []),
  ]
  const inherited = `Inherited: ${count(fork.messages, "message")}, about ${count(fork.tokens, "token")}`
  if (fork.whole) return [`${inherited}, uncut.`]
  return [`${inherited}${cuts.length > 0 ? `; ${cuts.join(", ")}` : ""}`]
}

/** What a fork that rides on the cache really read from it, with its first request. */
function cacheLines({ fork, outcome }: Task): string[] {
  if (!fork?.whole || !outcome || billedTokens(outcome.usage) + outcome.usage.cacheRead === 0) return []
  const { first } = outcome
  if (!first) return ["Cache: the provider told of none."]
  const missed = first.read * 2 < first.of ? "missed; " : ""
  const [read, of] = [grouped(first.read), grouped(first.of)]
  return [`Cache: ${missed}${read} of the ${of} tokens of its first request were read from it.`]
}

/** What the launch alone tells of a fork: what its first step costs, and why it is not as it was asked for. */
function rideLines({ fork }: Task): string[] {
  const { price, why } = fork ?? {}
  const first =
    price &&
    `From the provider's cache its first step costs about ${dollars(price.cached)} instead of ${dollars(price.anew)}.`
  return [...(first ? [first] : []), ...(why ? [why] : [])]
}

/** What a fork has not whole: the parent may want to tell it. */
function cutLines({ fork }: Task): string[] {
  const cuts = fork?.cuts ?? []
  if (!fork || cuts.length === 0) return []
  const named = cuts.map(
    ({ tool, call, kept, of }) => `${oneLine(tool)} ${oneLine(call)}: ${grouped(kept)} of ${grouped(of)}`,
  )
  const more = fork.cutResults - cuts.length
  const first = more > 0 ? [`- ${count(more, "older one")}`] : []
  return ["Cut, with the characters that are left:", ...first, ...named.map((line) => `- ${line}`)]
}

/** `waited`: for how many ms the call has waited in vain. */
function runningLines(view: TaskView, patience: number, waited: number | undefined): string[] {
  const asks = view.asks.map(
    (ask) =>
      `Waits for an answer from the user (${ask.kind}): ${oneLine(ask.what)}${unanswered(ask, patience, view.at)}`,
  )
  const text = view.lastText.trim()
  const latest = text.length > LATEST_TEXT_CHARS ? `…${tail(text, LATEST_TEXT_CHARS)}` : text
  return [
    ...(view.signAge === undefined ? [] : [`Last sign of life: ${ago(view.signAge)}`]),
    ...asks,
    ...(latest === "" ? [] : ["Latest text:", between("task_output", view.task.id, latest)]),
    "",
    `It is still running${waited === undefined ? "" : ` after a wait of ${duration(waited)}`}. ${TOLD} Do not ask again until then.`,
  ]
}

/** What becomes of a question that nobody answers; the host ends the turn of an agent whose own question is dismissed. */
function unanswered({ kind, askedAt }: Ask, patience: number, now: number): string {
  if (patience === 0) return ""
  const left = ticking(Math.max(0, askedAt + patience - now))
  return kind === "permission"
    ? ` (refused in ${left} if nobody answers; the agent then goes on without it)`
    : ` (dismissed in ${left} if nobody answers; the agent's turn then ends)`
}

function endedLines(task: Task, answer: string, from: number, { gone, shown: changes }: Report): string[] {
  // A caller may ask for it from within a letter.
  const offset = from < answer.length ? head(answer, from).length : from
  const { team } = task.outcome ?? {}
  const tries = offset === 0 && team?.kind === "tries" ? tryLines(team) : []
  const proof = offset === 0 ? [...proofLines(task), ...(changes ? diffLines(task, changes) : [])].join("\n") : ""
  const facts = [...accountOf(task), ...tries, ...(proof === "" ? [] : [proof])]
  if (answer === "") return [...facts, "", noText(task, gone)]
  if (offset >= answer.length)
    return [...facts, "", `Nothing at offset ${grouped(offset)}: the answer has ${count(answer.length, "character")}.`]
  const shown = slice(answer, offset, facts.join("\n"))
  const end = offset + shown.length
  const range =
    end < answer.length || offset > 0
      ? [`Characters ${grouped(offset)} to ${grouped(end)} of ${grouped(answer.length)}.`]
      : []
  const more = end < answer.length ? [`The answer goes on: read on with offset=${end}.`] : []
  const partial = task.outcome?.saidLastWord ? "Its last word, which is partial:" : "Text it had written:"
  const title = task.status === "completed" ? "Answer:" : partial
  return [...facts, ...range, "", title, between("task_output", task.id, shown), ...more]
}

/** The commands that ran, and what a check that did not pass had written. */
function proofLines({ id, outcome }: Task): string[] {
  const receipt = outcome?.receipt
  if (!receipt) return []
  const { output } = receipt.check ?? {}
  return [
    ...receiptLines(receipt),
    ...(output ? ["The end of the check's output:", between("check_output", id, output)] : []),
  ]
}

function diffLines({ id }: Task, { diff, cut, command }: Shown): string[] {
  const fitting = withinBytes(diff, MOST_DIFF_BYTES)
  const shown = fitting.length === diff.length ? diff : fitting.slice(0, fitting.lastIndexOf("\n"))
  if (!cut && shown.length === diff.length) return [`Its changes (\`${command}\`):`, between("changes", id, shown)]
  const lines = count(shown.split("\n").length, "line")
  return [`The first ${lines} of its changes (all of them: \`${command}\`):`, between("changes", id, shown)]
}

/** As much of the answer as one tool result can hold, in whole characters. */
function slice(answer: string, offset: number, before: string): string {
  const rest = answer.slice(offset)
  const room = Math.max(LEAST_ANSWER_BYTES, MOST_ANSWER_BYTES - Buffer.byteLength(before))
  const lines = withinBytes(head(rest, MOST_ANSWER_CHARS), room).split("\n")
  return lines.slice(0, MOST_ANSWER_LINES - before.split("\n").length).join("\n")
}

/** As much of the text as the byte limit allows: scripts other than Latin take several bytes a character. */
export function withinBytes(text: string, most: number): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(most))
  return text.slice(0, read)
}

const ago = (ms: number): string => (ms < 1000 ? "just now" : `${duration(Math.floor(ms / 1000) * 1000)} ago`)

const nameLike = (name: string): string => oneLine(name, MOST_NAME_CHARS)

const agentOf = ({ agent, model }: Task, variant?: string): string => {
  const name = model && `${modelKey(model)}${variant === undefined ? "" : `#${variant}`}`
  return `${nameLike(agent)}${name ? ` (${oneLine(name)})` : ""}`
}

function result(view: TaskView, lines: readonly string[]): ToolResult {
  const { task } = view
  return {
    title: oneLine(task.description),
    output: lines.join("\n"),
    metadata: { taskId: task.id, sessionId: task.sessionID, status: task.status },
  }
}
