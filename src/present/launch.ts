import { batchText } from "../core/dependencies.ts"
import type { GroupKind } from "../core/feature.ts"
import type { Group } from "../core/group.ts"
import { modelKey } from "../core/limits.ts"
import { conditionOf, type PauseView, pauseText, waitsForText, whenOf } from "../core/pause.ts"
import type { ToolResult } from "../core/ports.ts"
import { MOST_COMMAND_CHARS, quoted } from "../core/receipt.ts"
import { isActive, isQueued, nameOf, type Task } from "../core/task.ts"
import { dollars, duration } from "../lib/format.ts"
import { count, formatInteger, oneLine } from "../lib/text.ts"
import { agentOf, forkLines, statusOf, TOLD, toolResult } from "./output.ts"
import { MOST_PATH_CHARS, named } from "./summary.ts"
import type { TaskView } from "./view.ts"
import { isInQueue, queueText } from "./words.ts"

/** Texts with the results of launches and messages. */

/** Most models or guarded files that are named. */
const MOST_NAMED = 8

/** A started run and what it may spend. `place`: describes a place other than the parent's folder. */
type Begun = {
  readonly view: TaskView
  readonly allowance: readonly string[]
  readonly place?: string
  /** Contents missing in the place, with the option that adds them. */
  readonly lacks?: string | undefined
  /** Why runs with the task's model must wait now; absent where they need not. */
  readonly closed?: PauseView
  /** Path of the file with the task's value or rows. */
  readonly results?: string
}

/** `named`: the call has named a model, so the text confirms it. */
export function renderLaunch(
  { view, reused, allowance, place, lacks, closed, results }: Begun & { readonly reused: boolean },
  named = false,
): ToolResult {
  const { task } = view
  const first = reused
    ? `An identical task was launched before; this is that one: it is ${statusOf(view)}.`
    : `Background task launched${isInQueue(view.phase) && !closed ? `; it ${waitsForSlot(view)}` : ""}.`
  const names = [
    `${first} Task ID: ${nameOf(task)}`,
    ...(named ? [`Agent: ${agentOf(view, task.model?.variant)}`] : []),
  ]
  const constraints = reused ? [] : termLines(view, { allowance, place, lacks, results })
  const lines = [
    ...names,
    ...waitingLines(view),
    ...closedLines(view, closed),
    ...forkLines(task).map((line) => [line, ...priceOf(task)].join(" ")),
    ...(task.fork?.why ? [task.fork.why] : []),
    ...cutLines(task),
    ...constraints,
  ]
  return toolResult(view, [...lines, nextAfter(view, reused)])
}

function nextAfter(view: TaskView, reused: boolean): string {
  const { task } = view
  if (isActive(task)) return TOLD
  return reused
    ? `Fetch its answer with superagents_output(task_id="${task.id}").`
    : `It has ended already (${statusOf(view)}); a message with the reason follows.`
}

const waitsForSlot = ({ phase = "queued", place }: TaskView): string =>
  queueText(phase, place).replace("queued", "waits")

const waitsForTasks = ({ task, phase }: TaskView): boolean =>
  isQueued(task) && phase?.startsWith("waiting for bg_") === true

const waitingLines = (view: TaskView): string[] => {
  const { after = [] } = view.task.run
  return waitsForTasks(view)
    ? [`It is ${view.phase}, and begins with ${after.length > 1 ? "their answers" : "its answer"}.`]
    : []
}

/** Lines about a model that refuses requests now. The waiting run needs no action of the parent. */
const closedLines = (view: TaskView, closed: PauseView | undefined): string[] => {
  const { at, groupKind: kind } = view
  // When the other tasks have completed, the model may be free again.
  if (!closed || waitsForTasks(view)) return []
  const when = whenOf(closed, at)
  if (!when) return [`The task waits for ${waitsForText(closed, at)} and begins by itself.`]
  const begins = kind ? `its ${kind.noun.many} wait and begin by themselves` : "the task is parked and begins by itself"
  return [
    `${closed.waitsFor} ${conditionOf(closed.kind)}${when.after} (in ${duration(when.in)}): ${begins} ${closed.until === undefined ? "when it answers" : "then"}.`,
  ]
}

function beginningOf(view: TaskView, closed: PauseView | undefined): string {
  if (closed) return whenOf(closed, view.at) ? "is parked" : "waits for its model"
  return isInQueue(view.phase) ? waitsForSlot(view) : "started"
}

export function renderResume({ view, allowance, place, closed, results }: Begun): ToolResult {
  const { task } = view
  const lines = [
    `Resume #${task.run.generation} of task ${nameOf(task)} ${beginningOf(view, closed)}.`,
    `Agent: ${agentOf(view)}${task.group ? "" : ", with its whole history"}.`,
    ...closedLines(view, closed),
    ...termLines(view, { allowance, place, results }),
    "",
    TOLD,
  ]
  return toolResult(view, lines)
}

/**
 * Lines about a group's members, where the run works, which check it must pass, who merges its work and how much it may
 * spend.
 */
function termLines(
  { task, groupKind: kind }: TaskView,
  { allowance, place: where, lacks, results }: Pick<Begun, "allowance" | "place" | "lacks" | "results">,
): string[] {
  const { id, place, run, group } = task
  const { check, guard = [] } = run
  const guarded = group ? "" : guardedText(guard)
  const what = kind?.rows ? `Rows: one per ${kind.noun.one}` : "Schema: its valid value"
  const merge = place?.merge && (check === undefined ? "when completed, unchecked" : "once its check has passed")
  return [
    ...(group && kind ? [run.generation > 0 ? kind.texts.resumed(group) : groupLine({ ...task, group }, kind)] : []),
    ...(where
      ? [
          `Place: ${where}; ${merge ? `merged by itself ${merge}` : `not merged by itself: when it has ended, superagents_task(merge="${id}") brings its changes into your files`}.${lacks ? ` ${lacks}` : ""}`,
        ]
      : []),
    ...(check === undefined
      ? []
      : [
          `Check: ${quoted(oneLine(check, MOST_COMMAND_CHARS))} has to pass before ${kind?.rows ? kind.noun.a : "it"} counts as completed${guarded}.`,
        ]),
    ...(results ? [`${what}, in ${oneLine(results, MOST_PATH_CHARS)}`] : []),
    ...(allowance.length > 0 ? [`Limits: ${allowance.join(", ")}.`] : []),
  ]
}

/** Example: `6 items with mock/large, batch grades.` */
function groupLine(task: Task & { readonly group: Group }, { texts }: GroupKind): string {
  const { model, run } = task
  const name = batchText(task)
  const inBatch = name === undefined ? "" : `, batch ${name}`
  return texts.launched(
    task,
    model ? ` with ${oneLine(modelKey(model))}` : "",
    `${inBatch}${guardedText(run.guard ?? [])}`,
  )
}

const guardedText = (guard: readonly string[]): string =>
  guard.length > 0 ? `; guarded: ${named(guard, MOST_NAMED)}` : ""

/** `waits`: the task's prompt is not sent yet, so the agent reads the message after it. */
export function renderTold({ view, waits }: { view: TaskView; waits: boolean }): ToolResult {
  const { task } = view
  const atWork = view.pause
    ? `It is ${pauseText(view.pause, view.at)}; it reads this when it goes on.`
    : "It reads this at its next step."
  const when = waits ? "It has not begun; it reads this after its prompt." : atWork
  const asks = view.asks.map(
    ({ what }) => `It is blocked on a question to the user; your message does not answer it: ${oneLine(what)}`,
  )
  return toolResult(view, [`Told task ${nameOf(task)}. ${when}`, ...asks, "", TOLD])
}

export function renderUnparked({ view, model, others }: { view: TaskView; model: string; others: number }): ToolResult {
  const follow = others > 0 ? `; ${count(others, "other follows", "others follow")} if it is answered` : ""
  return toolResult(view, [`${nameOf(view.task)} tries ${model} now${follow}.`])
}

/** Line about the cost of the first step of a fork that shares its parent's cache. */
function priceOf({ fork }: Task): string[] {
  const { price } = fork ?? {}
  if (!price) return []
  return [
    `From the provider's cache its first step costs about ${dollars(price.cached)} instead of ${dollars(price.anew)}.`,
  ]
}

/** Lines about tool results that the fork has only in part, so that the parent can tell the fork about them. */
function cutLines({ fork }: Task): string[] {
  const cuts = fork?.cuts ?? []
  if (!fork || cuts.length === 0) return []
  const named = cuts.map(
    ({ tool, call, kept, of }) => `${oneLine(tool)} ${oneLine(call)}: ${formatInteger(kept)} of ${formatInteger(of)}`,
  )
  const more = fork.cutResults - cuts.length
  const first = more > 0 ? [`- ${count(more, "older one")}`] : []
  return ["Cut, with the characters that are left:", ...first, ...named.map((line) => `- ${line}`)]
}
