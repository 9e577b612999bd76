import { batchName, batchProgress } from "../../core/dependencies.ts"
import type { GroupKind } from "../../core/feature.ts"
import { countMembers, sizeOf } from "../../core/group.ts"
import { requestKeyOf } from "../../core/limits.ts"
import { pauseOf } from "../../core/pause.ts"
import { payer } from "../../core/spending.ts"
import {
  addUsage,
  agentName,
  billedTokens,
  elapsed,
  isActive,
  isQueued,
  machineOf,
  NO_USAGE,
  type Phase,
  type PhaseFacts,
  type Progress,
  type Task,
  type Usage,
  waited,
  wholeUsage,
} from "../../core/task.ts"
import { grouped } from "../../lib/collections.ts"
import { duration, ticking } from "../../lib/format.ts"
import { count, oneLine } from "../../lib/text.ts"
import { groupText, phaseAmong } from "../../present/view.ts"
import {
  costText,
  ENDS,
  endOf,
  FETCHING_WORK,
  isInQueue,
  MARKS,
  phaseText,
  tokensText,
  type UsageLimits,
} from "../../present/words.ts"

/** Makes texts and rows for the terminal. All functions are pure, and widths are in terminal columns. */

/** A task from its record. While it runs, also the state that its session's events show. */
export type ObservedTask = {
  readonly task: Task
  readonly progress?: PhaseFacts & Pick<Progress, "toolCalls" | "recentTools" | "usage">
  /** Kind of a group, or of a member's group. */
  readonly groupKind?: GroupKind
  /** Set if the task has ended on another machine and its changes are still being fetched. */
  readonly fetches?: true
}

export type Tone = "working" | "waiting" | "queued" | "completed" | "error" | "cancelled"

export type Row = ReturnType<typeof rowOf>

export type Batch = { readonly label: string; readonly done: number; readonly total: number }

export type Section = NonNullable<ReturnType<typeof sectionOf>>

/** Most rows of the sidebar; running tasks come first. */
export const MOST_ROWS = 10

const ICONS: Readonly<Partial<Record<Tone, string>>> = { waiting: MARKS.waiting, queued: MARKS.queued }

/** Sidebar section; undefined where it is hidden. `below`: descendants of the tasks shown. */
export function sectionOf(
  seen: readonly ObservedTask[],
  now: number,
  limits: UsageLimits = { tokens: 0, cost: 0 },
  below: readonly ObservedTask[] = [],
) {
  if (seen.length === 0) return undefined
  const ordered = inOrder(seen)
  const running = seen.filter(({ task }) => isActive(task)).length
  const shown = ordered.slice(0, MOST_ROWS)
  const all = [...seen, ...below]
  const usage = all.reduce((sum, each) => addUsage(sum, usageOf(each)), NO_USAGE)
  return {
    /** Examples: `2 running`, or `5 done, 1 failed, 1 cancelled` when nothing runs. */
    summary: running > 0 ? `${running} running` : endedText(seen),
    rows: shown.map((each) => rowOf(each, all, now)),
    /** Number of tasks without a row. */
    more: ordered.length - shown.length,
    batches: batchesOf(seen.map(({ task }) => task)),
    /** Usage of the session with its limits, in lines that fit the sidebar. */
    totals: totalsOf(usage, limits),
  }
}

const ENDED: readonly (readonly [Task["status"], string])[] = [
  ["completed", "done"],
  ["error", "failed"],
  ["cancelled", "cancelled"],
]

const endedText = (seen: readonly ObservedTask[]): string =>
  ENDED.map(([status, word]) => [seen.filter(({ task }) => task.status === status).length, word] as const)
    .filter(([number]) => number > 0)
    .map((each) => each.join(" "))
    .join(", ")

/** Running tasks in the order of launch, then ended ones, newest first. */
export function inOrder(seen: readonly ObservedTask[]): readonly ObservedTask[] {
  const active = seen.filter(({ task }) => isActive(task))
  const ended = seen.filter(({ task }) => !isActive(task))
  return [
    ...active.toSorted((a, b) => a.task.run.createdAt - b.task.run.createdAt),
    ...ended.toSorted((a, b) => (b.task.run.endedAt ?? 0) - (a.task.run.endedAt ?? 0)),
  ]
}

/** Row of a task. `all`: all known tasks, among them the task's children, whose tool calls count for the task. */
export function rowOf(seen: ObservedTask, all: readonly ObservedTask[], now: number) {
  const { task } = seen
  const phase = phaseIn(seen, all, now)
  const tone = toneOf(task, phase)
  const detail = phase ? detailOf(seen, phase, all) : seen.fetches && FETCHING_WORK
  return {
    sessionID: task.sessionID,
    tone,
    /** Absent while the row shows a spinner. */
    icon: phase ? ICONS[tone] : ENDS[endOf(task)].mark,
    title: titleOf(task),
    /** Duration of the run. For an ended task, also the number of tool calls. */
    facts: [timeOf(task, now), ...(phase ? [] : [...groupTexts(seen, all), ...callsText(seen, all)])].join(" · "),
    /** Activity or open question of a running task, or the work that is still to do for an ended task. */
    detail: detail && oneLine(detail),
  }
}

export const titleOf = ({ description }: Task): string => oneLine(description)

/** Agent and state or phase: `general, waiting for permission`. */
export function stateText(seen: ObservedTask, all: readonly ObservedTask[], now: number): string {
  const phase = phaseIn(seen, all, now)
  const state = phase ? [phaseText(phase)] : [ENDS[endOf(seen.task)].text, ...(seen.fetches ? [FETCHING_WORK] : [])]
  return oneLine([agentName(seen.task), ...state, ...groupTexts(seen, all)].join(", "))
}

/** Results of a group's members, as far as the terminal knows them. */
function groupTexts({ task, groupKind }: ObservedTask, all: readonly ObservedTask[]): readonly string[] {
  const { id, group, run } = task
  if (!group) return []
  const members = all.flatMap((other) => (other.task.member?.of === id ? [other.task] : []))
  const own = members.filter(({ member }) => member?.run === run.generation)
  // Where each member counts, a later run does not begin those again that an earlier run completed.
  const kept = members.filter((each) => !groupKind?.picksOne && each.status === "completed" && !own.includes(each))
  const done = new Set(kept.map(({ member }) => member?.nth)).size
  return [groupText({ task, groupKind, counts: countMembers(sizeOf(group), own, done) }) ?? []].flat()
}

/** Short text for the badge; undefined while nothing runs. */
export function badgeOf(seen: readonly ObservedTask[], all: readonly ObservedTask[]) {
  const tones = seen.filter(({ task }) => isActive(task)).map((each) => toneOf(each.task, phaseIn(each, all, 0)))
  if (tones.length === 0) return undefined
  const asking = tones.filter((tone) => tone === "waiting").length
  const agents = count(tones.length, "agent")
  return asking === 0 ? { text: agents, waiting: false } : { text: `${agents}, ${asking} waiting`, waiting: true }
}

/** Batches with running tasks, or else the latest batch. A single task has no batch here. */
function batchesOf(tasks: readonly Task[]): Batch[] {
  const keys = new Set(tasks.filter(isActive).map(({ batch }) => batch))
  const latest = tasks.toSorted((a, b) => a.run.createdAt - b.run.createdAt).at(-1)
  if (keys.size === 0 && latest) keys.add(latest.batch)
  return [...keys].flatMap((key) => {
    const { done, total } = batchProgress(key, tasks)
    return total < 2 ? [] : { label: oneLine(batchName(key) ?? ""), done, total }
  })
}

/** Filled and empty part of a batch's bar. It is full only when all tasks have ended. */
export function barOf({ label, done, total }: Batch, columns: number) {
  const name = cut(label, Math.floor(columns / 3))
  const before = name === "" ? "" : `${name} `
  const after = ` ${done}/${total}`
  const room = Math.max(0, Math.floor(columns) - columnsOf(before) - after.length)
  const filled = total === 0 ? 0 : Math.floor((room * done) / total)
  return { before, filled: "━".repeat(filled), rest: "─".repeat(room - filled), after }
}

/** Usage of the task alone: children have rows of their own. */
function usageOf({ task, progress }: ObservedTask): Usage {
  if (!isActive(task) || !progress) return wholeUsage(task)
  // What a task on a host costs is known here at the end of its run: its session on this machine costs nothing.
  return machineOf(task) === undefined ? progress.usage : { ...wholeUsage(task), atLeast: true }
}

/**
 * Number of tool calls in all runs of a task and of those below it. The list for models counts in this way, too. Anybody
 * can write a record of which two tasks are each other's parent, so each counts once.
 */
function toolCallsOf(seen: ObservedTask, all: readonly ObservedTask[]): number {
  const counted = new Set([seen])
  let calls = 0
  for (const { task, progress } of counted) {
    calls += task.earlier.toolCalls + ((isActive(task) ? progress?.toolCalls : task.outcome?.toolCalls) ?? 0)
    for (const below of childrenIn(all).get(task.sessionID) ?? []) counted.add(below)
  }
  return calls
}

/** Keeps what is made of a list, because every row of the list asks for it. */
function perList<Made>(make: (all: readonly ObservedTask[]) => Made): (all: readonly ObservedTask[]) => Made {
  const kept = new WeakMap<readonly ObservedTask[], Made>()
  return (all) => {
    const made = kept.get(all) ?? make(all)
    kept.set(all, made)
    return made
  }
}

/** The tasks by their parents' sessions. */
const childrenIn = perList((all) => grouped(all, ({ task }) => task.parentID))

/** For each model the task that was parked last, whose pause has the latest information about the model. */
const parkedIn = perList((all) => {
  const newest = new Map<string, Task>()
  for (const { task } of all) {
    const { parked } = task.run
    if (!parked || !isActive(task)) continue
    if (parked.at > (newest.get(parked.model)?.run.parked?.at ?? -1)) newest.set(parked.model, task)
  }
  return newest
})

/** Tasks that have no row but whose usage counts for the session: descendants and cleared tasks. */
export function belowOf(
  sessionID: string,
  all: readonly ObservedTask[],
  cleared: readonly ObservedTask[] = [],
): readonly ObservedTask[] {
  const taskIn = new Map([...all, ...cleared].map(({ task }) => [task.sessionID, task]))
  const pays = ({ task }: ObservedTask) =>
    payer(task.parentID, (id) => (id === sessionID ? undefined : taskIn.get(id))) === sessionID
  return [...all.filter(({ task }) => task.parentID !== sessionID), ...cleared].filter(pays)
}

/** Example: `12.3K tokens · $0.0123`. */
function totalsOf(usage: Usage, { tokens, cost }: UsageLimits): readonly string[] {
  const used = tokensText(billedTokens(usage), usage.cacheRead, usage.atLeast, tokens)
  const spent = costText(usage.cost, usage.atLeast, cost)
  return tokens > 0 && cost > 0 ? [used, spent] : [`${used} · ${spent}`]
}

/** Duration of a task's run. While the task is queued, its time in the queue. */
export function timeOf(task: Task, now: number): string {
  if (!isActive(task)) return duration(elapsed(task, now))
  return ticking(isQueued(task) ? waited(task, now) : elapsed(task, now))
}

/** One line of at most `columns`, ending in an ellipsis where it was cut. */
export function cut(text: string, columns: number): string {
  if (columnsOf(text) <= columns) return text
  return columns < 1 ? "" : `${trimTo(text, columns - 1)}…`
}

/** Rows of a menu, each with a value of its own: several questions of one task have the same title. */
export function withValues<Row extends { readonly title: string; readonly id?: string }>(rows: readonly Row[]) {
  const counts = new Map<string, number>()
  return rows.map((row) => {
    const name = row.id ?? row.title
    const earlier = counts.get(name) ?? 0
    counts.set(name, earlier + 1)
    return { row, value: `${earlier} ${name}` }
  })
}

/** Text of an agent without control characters, because OpenCode would pass them on to the terminal. */
export const readable = (text: string): string => text.replace(/\r\n?/g, "\n").replace(CONTROL, "")

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g

function columnsOf(text: string): number {
  return [...SEGMENTER.segment(text)].reduce((sum, { segment }) => sum + (WIDE.test(segment) ? 2 : 1), 0)
}

const SEGMENTER = new Intl.Segmenter()
/** Characters of two columns: CJK, full-width forms, emoji. */
const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}|\ufe0f/u

function trimTo(text: string, columns: number): string {
  let used = 0
  let kept = ""
  for (const { segment } of SEGMENTER.segment(text)) {
    used += columnsOf(segment)
    if (used > columns) break
    kept += segment
  }
  return kept.trimEnd()
}

function phaseIn({ task, progress }: ObservedTask, all: readonly ObservedTask[], now: number): Phase | undefined {
  const parked = parkedIn(all)
  const around = {
    get: (id: string) => all.find((other) => other.task.id === id)?.task,
    active: [...parked.values()],
    ownTasks: (childrenIn(all).get(task.sessionID) ?? []).some((child) => isActive(child.task)),
    // Tasks that have not begun wait, too, if other tasks of their model are parked.
    limitOf: () => pauseOf(parked.get(requestKeyOf(task) ?? "")?.run ?? {}),
  }
  return phaseAmong(task, progress ?? { asks: [] }, around, now)
}

function toneOf(task: Task, phase: Phase | undefined): Tone {
  if (isQueued(task)) return "queued"
  if (phase === "waiting for permission" || phase === "waiting for an answer") return "waiting"
  if (phase) return "working"
  const end = endOf(task)
  return end === "completed" || end === "error" ? end : "cancelled"
}

function detailOf(seen: ObservedTask, phase: Phase, all: readonly ObservedTask[]): string {
  const { progress } = seen
  const ask = progress?.asks[0]
  if (ask && !isInQueue(phase)) return `${phase}: ${oneLine(ask.what)}`
  if (progress?.retry && phase === "retrying") {
    return `retrying (${progress.retry.attempt}): ${oneLine(progress.retry.message)}`
  }
  return [
    phase && phaseText(phase),
    ...groupTexts(seen, all),
    ...callsText(seen, all),
    ...(progress?.recentTools.slice(-1) ?? []),
  ].join(" · ")
}

function callsText(seen: ObservedTask, all: readonly ObservedTask[]): string[] {
  const calls = toolCallsOf(seen, all)
  return calls === 0 ? [] : [count(calls, "call")]
}
