import { batchName } from "../../core/dependencies.ts"
import { modelKey } from "../../core/limits.ts"
import { receiptLine, receiptLines } from "../../core/receipt.ts"
import { costOfDay } from "../../core/spending.ts"
import { agentName, billedTokens, isUnmerged, type Task } from "../../core/task.ts"
import { groupText, hasRemaining, type TaskView } from "../../present/view.ts"
import { attemptText, endOf } from "../../present/words.ts"

const LAST_TEXT_CHARS = 400

/** With the fields of `parts`. Times are in ms since 1970; the page computes how long a task runs. */
export function agentRow(view: TaskView, foreign: boolean, now: number, parts: readonly { row(task: Task): object }[]) {
  const { task } = view
  const { run, outcome, model } = task
  const row = {
    id: task.id,
    sessionID: task.sessionID,
    parentID: task.parentID,
    description: task.description,
    agent: agentName(task),
    model: model && modelKey(model),
    /** Absent where nobody named the batch. */
    batch: batchName(task.batch),
    status: task.status,
    /** Meaningful once the task has ended. */
    end: endOf(task),
    phase: view.phase,
    /** Set while the run is paused. */
    stands: view.pause && ("parked" as const),
    /** Results of a group in a few words. */
    counts: groupText(view),
    /** A resume without a prompt continues unfinished members of the group. */
    left: hasRemaining(task, view.groupKind) || undefined,
    /** Checked again and merged after its end; a user can stop this. */
    merging: view.merging,
    fetching: view.fetching,
    forked: task.fork !== undefined,
    /** Absent for the project's folder. */
    place: task.place?.kind,
    unmerged: isUnmerged(task, view.groupKind),
    generation: run.generation,
    foreign,
    createdAt: run.createdAt,
    // Pauses of the run and of the tasks that it waited for do not count, so the start is moved by them.
    startedAt: run.startedAt === undefined ? undefined : run.startedAt + (run.uncountedMs ?? 0),
    /** Since when the time of a running task does not count. */
    stoppedSince: run.stoppedSince,
    endedAt: run.endedAt,
    toolCalls: view.whole.toolCalls,
    recentTools: view.recentTools,
    lastText: view.lastText.slice(-LAST_TEXT_CHARS),
    lastSignAt: view.signAge === undefined ? undefined : now - view.signAge,
    ...spentIn(view, now),
    asks: view.asks.map(({ doing: _doing, ...ask }) => ask),
    retry: view.retry && attemptText(view.retry),
    reason: outcome?.reason?.text,
    reasonCode: outcome?.reason?.code,
    timeLimit: run.timeout || undefined,
    costLimit: run.budget && run.budget.max + run.budget.before,
  }
  return Object.assign(row, ...parts.map((part) => part.row(task))) as typeof row
}

function spentIn({ task, whole, thisRun, membersOfDay }: TaskView, now: number) {
  // A group's members have no rows of their own.
  const day = membersOfDay ?? costOfDay(task, thisRun.usage, now)
  return {
    tokens: billedTokens(whole.usage),
    /** Tokens of the last run alone. Absent for a group: each of its members has a limit of its own. */
    runTokens: task.group ? undefined : billedTokens(thisRun.usage),
    /** Tokens that the provider's cache served. No limit counts them. */
    cachedTokens: whole.usage.cacheRead,
    /** Cost of all runs of the task and of its children, in US dollars; the day's cost is without children. */
    cost: whole.usage.cost,
    atLeast: whole.usage.atLeast ?? false,
    dayCost: day.cost,
    dayAtLeast: day.atLeast ?? false,
  }
}

/** Facts about a single task that lists do not need. */
export function agentFacts({ task: { run, outcome }, groupKind }: TaskView) {
  const { receipt, work } = outcome ?? {}
  return {
    note: outcome?.note,
    filesChanged: work?.files ?? outcome?.filesChanged ?? [],
    /** Changes in the task's folder that others may have made. */
    filesMeanwhile: work ? [] : (outcome?.meanwhile?.files ?? []),
    merge: work?.merge,
    receipt: receipt && [receiptLine(receipt), ...receiptLines(receipt)],
    /** Results of a group: a line for each try, or for each reason of failed items. */
    parts: outcome?.group && groupKind?.texts.lines(outcome.group),
    check: run.check,
    /** End of the output of a check that did not pass. */
    checkOutput: receipt?.check?.output,
    openTodos: outcome?.openTodos ?? 0,
  }
}
