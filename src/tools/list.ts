import { z } from "zod"
import { needsBill, type SpendingLimits } from "../core/spending.ts"
import { STATUSES } from "../core/task.ts"
import { oneLine } from "../lib/text.ts"
import type { TaskManager } from "../runtime/task-manager.ts"
import { MOST_BATCH_CHARS } from "./arguments.ts"
import { renderList, renderNone } from "./render-list.ts"
import { defineTool, type Tool } from "./tool.ts"

const DESCRIPTION =
  "List this session's background tasks with status, time and cost: to find an id or see what is left."

/** `limits`: spending limits shown with their usage. */
export function listTool(manager: TaskManager, limits: SpendingLimits): Tool {
  return defineTool({
    description: DESCRIPTION,
    args: {
      status: z.enum(STATUSES).optional().describe("One at work again is `resumed`."),
      batch: z.string().trim().max(MOST_BATCH_CHARS).optional(),
    },
    async run({ status, batch }, context) {
      const { sessionID } = context
      const views = manager.list(sessionID, { status, batch: batch ? oneLine(batch) : undefined })
      const isWhole = status === undefined && batch === undefined
      const all = views.length === 0 && !isWhole ? manager.list(sessionID).length : 0
      if (all > 0) return renderNone({ status, batch }, all)
      const copied = views.length === 0 ? await manager.copied(context) : undefined
      const bill = isWhole && needsBill(limits) ? { ...manager.spentBy(sessionID), limits } : undefined
      const list = renderList(views, manager.droppedUnread(sessionID), bill)
      return copied === undefined ? list : { ...list, output: `${list.output}. ${copied}` }
    },
  })
}
