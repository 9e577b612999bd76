import { costOfDay } from "../../core/bill.ts"
import { batchName } from "../../core/dependencies.ts"
import type { GroupResult } from "../../core/group.ts"
import { modelKey } from "../../core/limits.ts"
import { countsText, groupText, hasRemaining, itemLines, tryLines } from "../../core/members.ts"
import { receiptLine, receiptLines } from "../../core/receipt.ts"
import { agentName, billedTokens, isActive, isUnattended, isUnmerged, type Task, uncounted } from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"
import type { TaskView } from "../../present/view.ts"
import type { AgentFacts, AgentRow } from "./wire.ts"

const LAST_TEXT_CHARS = 400

/** Row of a background task. Running times are computed by the page. */
export function agentRow(view: TaskView, foreign: boolean, now: number): AgentRow {
  const { task } = view
  const { run, outcome, model } = task
  // The cost of a group includes its members, because they have no rows of their own.
  const day = costOfDay(task, task.group ? view.whole.usage : view.thisRun.usage, now)
  return {
    id: task.id,
    sessionID: task.sessionID,
    parentID: task.parentID,
    description: task.description,
    agent: agentName(task),
    model: model && modelKey(model),
    batch: batchName(task.batch),
    status: task.status,
    phase: view.phase,
    stands: view.pause && "parked",
    counts:
      (isActive(task) ? undefined : groupText(task, [])) ?? (view.counts && countsText(view.counts, task.group?.kind)),
    left: hasRemaining(task) || undefined,
    merging: view.merging,
    fetching: view.fetching,
    forked: task.fork !== undefined,
    place: task.place?.kind,
    unmerged: isUnmerged(task),
    boardTask: boardTaskOf(task),
    generation: run.generation,
    foreign,
    createdAt: run.createdAt,
    // Pauses of the run and of the tasks that it waited for do not count, so the start is moved by them.
    startedAt: run.startedAt === undefined ? undefined : run.startedAt + uncounted(run),
    endedAt: run.endedAt,
    toolCalls: view.whole.toolCalls,
    recentTools: view.recentTools,
    lastText: view.lastText.slice(-LAST_TEXT_CHARS),
    lastSignAt: view.signAge === undefined ? undefined : now - view.signAge,
    tokens: billedTokens(view.whole.usage),
    cachedTokens: view.whole.usage.cacheRead,
    cost: view.whole.usage.cost,
    atLeast: view.whole.usage.atLeast ?? false,
    dayCost: day.cost,
    dayAtLeast: day.atLeast ?? false,
    asks: view.asks.map(({ doing: _doing, ...ask }) => ask),
    retry: view.retry && `attempt ${view.retry.attempt}: ${oneLine(view.retry.message)}`,
    reason: outcome?.reason?.text,
    reasonCode: outcome?.reason?.code,
    timeLimit: run.timeout || undefined,
    costLimit: run.budget && run.budget.max + run.budget.before,
  }
}

/** Facts about a single task that lists do not need. */
export function agentFacts({ task: { run, outcome } }: TaskView): AgentFacts {
  const { receipt, work } = outcome ?? {}
  return {
    note: outcome?.note,
    filesChanged: work?.files ?? outcome?.filesChanged ?? [],
    filesMeanwhile: work ? [] : (outcome?.meanwhile?.files ?? []),
    merge: work?.merge,
    receipt: receipt && [receiptLine(receipt), ...receiptLines(receipt)],
    parts: partsOf(outcome?.group),
    check: run.check,
    checkOutput: receipt?.check?.output,
    openTodos: outcome?.openTodos ?? 0,
  }
}

const partsOf = (group: GroupResult | undefined): readonly string[] | undefined =>
  group && (group.kind === "tries" ? tryLines(group) : itemLines(group))

/** Number of the board task in whose thread this run works; undefined for any other run. */
export const boardTaskOf = (task: Task): string | undefined =>
  isUnattended(task) ? /^#(\d+) /.exec(task.description)?.[1] : undefined
