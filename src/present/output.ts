import { batchText } from "../core/dependencies.ts"
import { listed } from "../core/errors.ts"
import type { GroupKind } from "../core/feature.ts"
import { failureOf, memberName, plannedIn } from "../core/group.ts"
import { modelKey } from "../core/limits.ts"
import { pauseOf, pauseText, pauseTextForModel, whenOf } from "../core/pause.ts"
import type { ToolResult } from "../core/ports.ts"
import { receiptLines } from "../core/receipt.ts"
import {
  billedTokens,
  elapsed,
  endedUnanswered,
  isActive,
  isQueued,
  isUnmerged,
  nameOf,
  type Task,
} from "../core/task.ts"
import { ago, duration, formatTime } from "../lib/format.ts"
import { between, capital, count, formatInteger, head, inTagsWithID, oneLine, tail } from "../lib/text.ts"
import { type MayDo, modelLine, noText, summaryOf, workSummary } from "./summary.ts"
import { groupText, type Report, type ShownDiff, type TaskView } from "./view.ts"
import { attemptText, ENDS, endOf, FETCHING_WORK, isInQueue, queueText, usageText } from "./words.ts"

/**
 * Limits for answers. OpenCode cuts tool output at 2,000 lines or 50 KB, so longer answers are cut here, with a hint
 * how to read on.
 */
export const MOST_ANSWER_CHARS = 32_000
export const MOST_ANSWER_LINES = 1900
export const MOST_ANSWER_BYTES = 46_000
/** Bytes that are always left for the answer. */
const LEAST_ANSWER_BYTES = 4000
const LATEST_TEXT_CHARS = 1000
/** Most bytes of a diff, about three hundred lines of code, and most lines. The rest of a tool result is for the answer. */
const MOST_DIFF_BYTES = 24_000
const MOST_DIFF_LINES = 600
const MOST_NAME_CHARS = 60

export const TOLD = "You will be told when it ends."

/** When the parent is told: of a member's end no message comes, only of its group's. */
export const toldText = ({ member }: Task, kind: GroupKind | undefined): string =>
  member && kind ? `You will be told when ${member.of} has ended, not of this ${kind.noun.one}.` : TOLD

/** Status text of a completed task whose work is not merged yet. */
const MERGING = "its work is being checked and merged"

export const renderMerge = (view: TaskView, may: MayDo): ToolResult => toolResult(view, mergeLines(view, may))

export function mergeLines({ task, groupKind }: TaskView, may: MayDo): readonly string[] {
  const work = workSummary(task, groupKind, may)
  return [`Task: ${nameOf(task)}`, ...(work.length > 0 ? work : ["No try passed: nothing to merge."])]
}

/** Facts of the task in a few lines. If the task has ended, its answer follows from character `offset` on. */
export function renderOutput(report: Report, offset: number): ToolResult {
  const { view, answer } = report
  const { task } = view
  const batch = batchText(task)
  const facts = [
    `Task: ${markedID(view)} ${oneLine(task.description)}`,
    `Agent: ${agentOf(view)}`,
    ...(batch === undefined ? [] : [`Batch: ${batch}`]),
    `Status: ${statusOf(view)}`,
    ...(task.run.generation > 0 ? [`Resumed: ${count(task.run.generation, "time")}`] : []),
    `Time: ${duration(view.elapsed)}${waitedText(view)}`,
    ...figureLines(view),
    ...(isActive(task) ? modelLine(task) : []),
    ...pauseLines(view),
    ...forkLines(task),
    ...cacheLines(task),
  ]
  const body =
    answer === undefined
      ? [...atWorkLines(report), ...runningLines(view, report)]
      : endedLines(view, answer, offset, report)
  return toolResult(view, [...facts, ...body])
}

/** Example: `bg_k3x9f2q1 (forked) (resumed)`. */
export const markedID = ({ task, groupKind }: TaskView): string =>
  `${task.id}${task.fork ? " (forked)" : ""}${task.run.generation > 0 ? " (resumed)" : ""}${isUnmerged(task, groupKind) ? " (unmerged)" : ""}`

/** How long the task waited before it began. Names the tasks in `after` if the task had to wait for them. */
function waitedText({ waited, task: { run } }: TaskView): string {
  if (waited < 1000) return ""
  const { after = [] } = run
  const wait = duration(waited)
  return after.length > 0 ? ` (after waiting ${wait} for ${listed(after)})` : ` (after ${wait} in the queue)`
}

/** Status of a task, with its present activity while it is active. */
export const statusOf = (view: TaskView): string =>
  view.counts ? `${stateOf(view)}, ${groupText(view)}` : stateOf(view)

function stateOf(view: TaskView): string {
  const { task, phase, failing } = view
  if (phase === undefined)
    return [
      `${task.status}${endText(task)}`,
      ...(view.merging ? [MERGING] : view.fetching ? [FETCHING_WORK] : []),
    ].join(", ")
  if (isInQueue(phase)) return `${task.status}, ${queueText(phase, view.place)}`
  if (failing) {
    const since = formatTime(failing.since, view.at)
    return `${task.status}, retrying since ${since} (${attemptText(failing)})`
  }
  const ask = view.asks[0]
  return ask ? `${task.status}, ${phase} (${oneLine(ask.what)})` : `${task.status}, ${phase}`
}

/** How a task ended, where its status does not say that. */
function endText(task: Task): string {
  const end = endOf(task)
  return end === "unanswered" || end === "refused" ? ` (${ENDS[end].text})` : ""
}

/** Lines about the pause of an active task. Pauses of an ended task are in its summary. */
function pauseLines({ task, pause, at }: TaskView): string[] {
  if (!pause) return []
  const when = whenOf(pause, at)
  const text = `${capital(pauseText(pause, at))}${when ? ` (in ${duration(when.in)})` : ""}`
  return [`${text}: ${pauseTextForModel(pause, task.member?.of ?? task.id)}`]
}

function figureLines({ task, whole, thisRun, recentTools }: TaskView): string[] {
  const last = recentTools.length > 0 ? ` (last: ${recentTools.map(nameLike).join(", ")})` : ""
  const used = usageText(whole)
  if (task.run.generation === 0)
    return [`Tool calls: ${formatInteger(whole.toolCalls)}${last}`, ...(used ? [`Usage: ${used}`] : [])]
  const [now, all] = [usageText(thisRun), used].map((text) => text || "not known")
  return [
    `Tool calls: this run ${formatInteger(thisRun.toolCalls)}${last}, in all ${formatInteger(whole.toolCalls)}`,
    `Usage: this run ${now}; in all ${all}`,
  ]
}

export function forkLines({ fork }: Task): string[] {
  if (!fork) return []
  const cuts = [
    ...(fork.droppedMessages > 0 ? [`${count(fork.droppedMessages, "older message")} dropped`] : []),
    ...(fork.cutResults > 0 ? [`${count(fork.cutResults, "tool result")} cut`] : []),
  ]
  const inherited = `Inherited: ${count(fork.messages, "message")}, about ${count(fork.tokens, "token")}`
  if (fork.whole) return [`${inherited}, uncut.`]
  return [`${inherited}${cuts.length > 0 ? `; ${cuts.join(", ")}` : ""}`]
}

/** Says how many tokens a fork's first request read from the shared cache. */
function cacheLines({ fork, outcome }: Task): string[] {
  if (!fork?.whole || !outcome || billedTokens(outcome.usage) + outcome.usage.cacheRead === 0) return []
  const { first } = outcome
  if (!first) return ["Cache: not reported."]
  const missed = first.read * 2 < first.of ? "missed; " : ""
  const [read, of] = [formatInteger(first.read), formatInteger(first.of)]
  return [`Cache: ${missed}${read} of the ${of} tokens of its first request were read from it.`]
}

function runningLines(view: TaskView, { waited }: Report): string[] {
  const asks = view.asks.map(
    (ask) => `Waits for an answer from the user (${ask.kind}): ${oneLine(ask.what)}${unanswered(ask, view.at)}`,
  )
  const text = view.lastText.trim()
  const latest = text.length > LATEST_TEXT_CHARS ? `…${tail(text, LATEST_TEXT_CHARS)}` : text
  return [
    ...(view.signAge === undefined || isQueued(view.task) ? [] : [`Last activity: ${ago(view.signAge)}`]),
    ...asks,
    ...(latest === "" ? [] : ["Latest text:", inTagsWithID("task_output", view.task.id, latest)]),
    "",
    `${stillRunning(waited)} ${toldText(view.task, view.groupKind)} Do not ask again until then.`,
  ]
}

/** `waited`: how long the call has waited for the end, in ms. */
export const stillRunning = (waited: number | undefined): string =>
  `It is still running${waited === undefined ? "" : ` after a wait of ${duration(waited)}`}.`

/** Says how the agent goes on if nobody answers the question. */
const unanswered = ({ refusedAt }: TaskView["asks"][number], now: number): string =>
  refusedAt === undefined
    ? ""
    : ` (refused at ${formatTime(refusedAt, now)} if nobody answers; the agent then goes on without it)`

/** Most members of a group that are named. */
const MOST_MEMBERS = 30

/** Lines about members of an active group. Failed members come first, with their reasons. */
function atWorkLines({ view: { task, at, groupKind: kind }, members = [] }: Report): string[] {
  if (!task.group) return []
  const newest = [...new Map(members.map((member) => [member.task.member?.nth ?? 0, member.task])).values()]
  const rank = (member: Task) => (isActive(member) ? 1 : member.status === "completed" ? 2 : 0)
  const lines = newest
    .toSorted((one, other) => rank(one) - rank(other))
    .slice(0, MOST_MEMBERS)
    .map((member) => {
      const how = isActive(member)
        ? atWork(member, at)
        : member.status === "completed"
          ? kind?.ends[0]
          : failureOf(member)
      return `${memberName(task.id, member.member?.nth ?? 0)}: ${how}, ${duration(elapsed(member, at))}`
    })
  const more = newest.length - lines.length
  return [...lines, ...(more > 0 ? [`and ${formatInteger(more)} more`] : [])]
}

/** Example: `running, parked until 07:12`. */
function atWork({ status, run }: Task, now: number): string {
  const pause = pauseOf(run)
  return pause ? `${status}, ${pauseText(pause, now)}` : status
}

/** Lines about members of an ended group. `rows`: the group's answer, where that is the rows of its members. */
function membersLines({ task, groupKind: kind }: TaskView, rows: string, members: Report["members"] = []): string[] {
  const { id, outcome } = task
  if (!outcome?.group || !kind) return []
  const lines = kind.texts.members?.(outcome.group, id, members) ?? []
  const hasBegun = rows !== "" || members.length > 0
  const first = outcome.group.rows?.findIndex((row) => row.task) ?? (hasBegun ? 0 : -1)
  if (first < 0) return [...lines]
  const opens = `superagents_output(task_id="${memberName(id, first)}") opens the first`
  return [...lines, `${opens}${kind.rows ? ", which has index 0" : ""}.`]
}

function endedLines(
  view: TaskView,
  answer: string,
  from: number,
  { gone, may, shown: changes, members }: Report,
): string[] {
  const { task, groupKind: kind } = view
  // The offset may fall within a surrogate pair, so it is moved to a whole character.
  const offset = from < answer.length ? head(answer, from).length : from
  const ofMembers = offset === 0 ? membersLines(view, answer, members) : []
  const proof = offset === 0 ? [...proofLines(task), ...(changes?.diff ? diffLines(task, changes) : [])].join("\n") : ""
  const facts = [...summaryOf(task, kind, may), ...ofMembers, ...(proof === "" ? [] : [proof])]
  if (answer === "") return [...facts, "", noText(task, gone)]
  if (offset >= answer.length)
    return [
      ...facts,
      "",
      `Nothing at offset ${formatInteger(offset)}: the answer has ${count(answer.length, "character")}.`,
    ]
  const shown = slice(answer, offset, facts.join("\n"))
  const end = offset + shown.length
  const range =
    end < answer.length || offset > 0
      ? [`Characters ${formatInteger(offset)} to ${formatInteger(end)} of ${formatInteger(answer.length)}.`]
      : []
  const more = end < answer.length ? [`The answer goes on: read on with offset=${end}.`] : []
  const isRows = kind?.rows !== undefined && task.group !== undefined
  const partial = isRows
    ? "Rows:"
    : task.outcome?.saidLastWord
      ? "Its last word, which is partial:"
      : "Text it had written:"
  const title = endedUnanswered(task) ? "Earlier text:" : task.status === "completed" && !isRows ? "Answer:" : partial
  return [...facts, ...range, "", title, inTagsWithID("task_output", task.id, shown), ...more]
}

/** Lines about the commands that the run has executed, and the output of a failed check. */
function proofLines({ id, outcome }: Task): string[] {
  const receipt = outcome?.receipt
  if (!receipt) return []
  const { output } = receipt.check ?? {}
  return [
    ...receiptLines(receipt),
    ...(output ? ["The end of the check's output:", inTagsWithID("check_output", id, output)] : []),
  ]
}

function diffLines({ id }: Task, { diff, cut, command }: ShownDiff): string[] {
  const beginning = fitting("changes", diff, MOST_DIFF_BYTES)
  const whole = beginning.length === diff.length ? diff : beginning.slice(0, beginning.lastIndexOf("\n"))
  const shown = firstLines(whole, MOST_DIFF_LINES)
  if (!cut && shown.length === diff.length) return [`Its changes (\`${command}\`):`, inTagsWithID("changes", id, shown)]
  const lines = count(shown.split("\n").length, "line")
  return [`The first ${lines} of its changes (all of them: \`${command}\`):`, inTagsWithID("changes", id, shown)]
}

/** Part of the answer that fits into one tool result, in whole characters. */
function slice(answer: string, offset: number, before: string): string {
  const rest = answer.slice(offset)
  const room = Math.max(LEAST_ANSWER_BYTES, MOST_ANSWER_BYTES - Buffer.byteLength(before))
  const shown = fitting("task_output", head(rest, MOST_ANSWER_CHARS), room)
  return firstLines(shown, MOST_ANSWER_LINES - before.split("\n").length)
}

export const firstLines = (text: string, most: number): string => text.split("\n").slice(0, most).join("\n")

/** Beginning of an untrusted text that takes at most `most` bytes between such tags, with the marks added to it there. */
export function fitting(tag: string, text: string, most: number): string {
  let shown = withinBytes(text, most)
  for (;;) {
    const bytes = Buffer.byteLength(between(tag, shown))
    if (bytes <= most) return shown
    shown = withinBytes(shown, Math.floor((Buffer.byteLength(shown) * most) / bytes))
  }
}

/** Cuts a text to `most` bytes. Characters of other scripts than Latin take several bytes. */
function withinBytes(text: string, most: number): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(most))
  return text.slice(0, read)
}

const nameLike = (name: string): string => oneLine(name, MOST_NAME_CHARS)

/** Example: `general (mock/large)`. Tries may have models of their own, which count instead of the group's. */
export const agentOf = ({ task, groupKind: kind }: TaskView, variant?: string): string => {
  const { agent, model, group } = task
  const models =
    group && kind?.picksOne
      ? Array.from({ length: plannedIn(group) }, (_none, nth) => kind.member({ ...task, group }, nth).model)
      : [model]
  const keys = new Set(models.flatMap((each) => (each ? modelKey(each) : [])))
  const names = [...keys].map((key) => oneLine(`${key}${variant === undefined ? "" : `#${variant}`}`))
  return `${nameLike(agent)}${names.length > 0 ? ` (${listed(names)})` : ""}`
}

export function toolResult(view: TaskView, lines: readonly string[]): ToolResult {
  const { task } = view
  return {
    title: oneLine(task.description),
    output: lines.join("\n"),
    metadata: { taskId: task.id, sessionId: task.sessionID, status: task.status },
  }
}
