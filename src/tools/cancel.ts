import { z } from "zod"
import { CallError } from "../core/errors.ts"
import { oneLine } from "../lib/text.ts"
import type { TaskManager } from "../runtime/task-manager.ts"
import type { CancelSelector } from "../runtime/tasks/lookup.ts"
import { MOST_BATCH_CHARS, MOST_ID_CHARS } from "./arguments.ts"
import { renderCancelled } from "./render-list.ts"
import { defineTool, type Tool } from "./tool.ts"

const DESCRIPTION = "Stop background tasks. Give exactly one argument. What they had written stays readable."

export function cancelTool(manager: TaskManager): Tool {
  return defineTool({
    description: DESCRIPTION,
    args: {
      task_id: z.string().max(MOST_ID_CHARS).optional().describe("Id, or enough of its beginning."),
      batch: z.string().trim().max(MOST_BATCH_CHARS).optional(),
      all: z.boolean().optional(),
    },
    async run(args, context) {
      return renderCancelled(await manager.cancel(selectorOf(args), context))
    },
  })
}

function selectorOf({ task_id, batch, all }: { task_id?: string; batch?: string; all?: boolean }): CancelSelector {
  const selectors: CancelSelector[] = []
  // Models send empty texts for absent arguments.
  if (task_id) selectors.push({ type: "task", reference: task_id })
  if (batch) selectors.push({ type: "batch", name: oneLine(batch) })
  if (all) selectors.push({ type: "all" })
  const [selector, ...more] = selectors
  if (selector && more.length === 0) return selector
  throw new CallError(
    `Give exactly one of \`task_id\`, \`batch\` and \`all: true\`; ${selector ? `${selectors.length} were given` : "none was given"}. Nothing was cancelled.`,
  )
}
