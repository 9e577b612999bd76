import { z } from "zod"
import { CallError, UnknownTaskError } from "../core/errors.ts"
import { needsBill, type SpendingLimits } from "../core/spending.ts"
import { STATUSES } from "../core/task.ts"
import { oneLine } from "../lib/text.ts"
import type { Options } from "../options/options.ts"
import { renderCancelled, renderCleared, renderList, renderNone, renderOutputs } from "../present/list.ts"
import { renderOutput } from "../present/output.ts"
import type { TaskManager } from "../runtime/task-manager.ts"
import type { CancelSelector } from "../runtime/tasks/view.ts"
import { taskTool } from "./task.ts"
import { defineTool, MOST_BATCH_CHARS, MOST_ID_CHARS, type Tool } from "./tool.ts"

const CANCEL_DESCRIPTION = "Stop background tasks. Give exactly one argument. What they had written stays readable."

function cancelTool(manager: TaskManager): Tool {
  return defineTool({
    description: CANCEL_DESCRIPTION,
    args: {
      task_id: z.string().max(MOST_ID_CHARS).optional().describe("Id, or enough of its beginning."),
      batch: z.string().trim().max(MOST_BATCH_CHARS).optional(),
      all: z.boolean().optional(),
    },
    async run(args, context) {
      const selector = selectorOf(args)
      const cancelled = await manager.cancel(selector, context)
      const batch = selector.type === "batch" ? selector.name : undefined
      const running = manager.list(context.sessionID, { status: "running" })
      const selected = batch === undefined ? running : manager.list(context.sessionID, { status: "running", batch })
      const foreign = selected.filter(({ task }) => manager.parts.reports.isForeign(task.id))
      return renderCancelled(cancelled, { batch, running, left: selector.type === "task" ? 0 : foreign.length })
    },
  })
}

function selectorOf({ task_id, batch, all }: { task_id?: string; batch?: string; all?: boolean }): CancelSelector {
  const selectors: CancelSelector[] = []
  // Models send an empty text for an absent argument, so an empty text does not count.
  if (task_id) selectors.push({ type: "task", reference: task_id })
  if (batch) selectors.push({ type: "batch", name: oneLine(batch) })
  if (all) selectors.push({ type: "all" })
  const [selector, ...more] = selectors
  if (selector && more.length === 0) return selector
  throw new CallError(
    `Give exactly one of \`task_id\`, \`batch\` and \`all: true\`; ${selector ? `${selectors.length} were given` : "none was given"}. Nothing was cancelled.`,
  )
}

const CLEAR_DESCRIPTION =
  "Forget this session's background tasks. What runs is stopped first; answers not fetched are lost. Work not merged stays in git."

export function clearTool(manager: TaskManager): Tool {
  return defineTool({
    description: CLEAR_DESCRIPTION,
    args: {},
    async run(_args, { sessionID }) {
      return renderCleared(await manager.clear(sessionID))
    },
  })
}

const LIST_DESCRIPTION =
  "List this session's background tasks with status, time and cost: to find an id or see what is left."

/** `limits`: the spending limits that are shown beside the usage. */
function listTool(manager: TaskManager, limits: SpendingLimits): Tool {
  return defineTool({
    description: LIST_DESCRIPTION,
    args: {
      status: z.enum(STATUSES).optional().describe("`resumed`: running again."),
      batch: z.string().trim().max(MOST_BATCH_CHARS).optional(),
    },
    async run({ status, batch }, context) {
      const { sessionID } = context
      const views = manager.list(sessionID, { status, batch: batch ? oneLine(batch) : undefined })
      const isWhole = status === undefined && batch === undefined
      const all = views.length === 0 && !isWhole ? manager.list(sessionID).length : 0
      if (all > 0) return renderNone({ status, batch }, all)
      const copied = views.length === 0 ? await manager.copied(context) : undefined
      const bill = isWhole && needsBill(limits) ? { ...(await manager.bill(sessionID)), limits } : undefined
      const list = renderList(views, manager.parts.store.parentState(sessionID).droppedUnread, bill)
      return copied === undefined ? list : { ...list, output: `${list.output}. ${copied}` }
    },
  })
}

const DEFAULT_BLOCK_MS = 60_000
const MOST_BLOCK_MS = 600_000
/** Larger than any answer; without it the schema would name the largest integer. */
const MOST_OFFSET = 1_000_000_000

const OUTPUT_DESCRIPTION = `Fetch the answer of a background task, with what it ran and changed, or see how far it is.

Use it when the notification did not contain the full answer (\`offset\` reads on); do not poll. Returns at once; \`block: true\` waits for the end: only when you cannot go on without this answer.`

function outputTool(manager: TaskManager): Tool {
  return defineTool({
    description: OUTPUT_DESCRIPTION,
    args: {
      task_id: z
        .string()
        .max(MOST_ID_CHARS)
        .describe("Id, or enough of its beginning; a batch; or id/1, the first try or item."),
      block: z.boolean().optional(),
      timeout: z.int().min(1).max(MOST_BLOCK_MS).optional().describe(`Most ms to wait, default ${DEFAULT_BLOCK_MS}.`),
      offset: z.int().min(0).max(MOST_OFFSET).optional(),
    },
    async run({ task_id, block = false, timeout = DEFAULT_BLOCK_MS, offset = 0 }, context) {
      const reports = await manager.outputs(task_id, context, block ? timeout : 0, context.abort)
      const [only, ...others] = reports
      if (only && others.length === 0) return renderOutput(only, offset)
      if (offset > 0)
        throw new CallError(`\`offset\` goes with one task; "${oneLine(task_id)}" is a batch of ${reports.length}.`)
      const { result, shown } = renderOutputs(reports)
      manager.parts.reports.retrieved(shown)
      return result
    },
  })
}

export const TASK_TOOL = "superagents_task"

/** The five tools. Each first recovers the session's tasks from before a restart. */
export function toolsFor(manager: TaskManager, options: Options): Readonly<Record<string, Tool>> {
  const prepared = (tool: Tool): Tool => ({
    ...tool,
    async execute(args, context) {
      const { recovery } = manager.parts
      await recovery.ready(context.sessionID)
      await recovery.settled(context.sessionID)
      try {
        return await tool.execute(args, context)
      } catch (error) {
        if (!(error instanceof UnknownTaskError)) throw error
        const copied = await manager.copied(context)
        throw copied === undefined ? error : new UnknownTaskError(`${error.message} ${copied}`)
      }
    },
  })
  return {
    [TASK_TOOL]: prepared(taskTool(manager, options)),
    superagents_output: prepared(outputTool(manager)),
    superagents_list: prepared(listTool(manager, options)),
    superagents_cancel: prepared(cancelTool(manager)),
    superagents_clear: prepared(clearTool(manager)),
  }
}

/**
 * Briefing for an agent. An answer that is pure JSON has no room for assumptions and line numbers, so they are not
 * asked for.
 */
const briefing = (inJSON: boolean): string =>
  `You work in the background for another agent, which wrote your task. Nobody follows along: a call that asks the user may wait an hour, and the user may be away. So decide for yourself${inJSON ? "" : ", and say what you assumed"}. Unless your task names a place of its own, you work in the user's files, and others may be working in them too. Your last message is your whole report; the other agent reads nothing else of yours. Answer in the language in which you are asked.${inJSON ? "" : " Be concise, and name files with line numbers (path:line)."}`

/** System prompt text for a fresh agent; undefined where the option `childPrompt` is off. */
export const briefingOf = ({ childPrompt }: Pick<Options, "childPrompt">, inJSON = false): string | undefined =>
  typeof childPrompt === "string" ? childPrompt : childPrompt ? briefing(inJSON) : undefined
