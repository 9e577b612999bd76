import { z } from "zod"
import { CallError } from "../core/errors.ts"
import { oneLine } from "../lib/text.ts"
import type { TaskManager } from "../runtime/task-manager.ts"
import { MOST_ID_CHARS } from "./arguments.ts"
import { renderOutput } from "./render.ts"
import { renderOutputs } from "./render-several.ts"
import { defineTool, type Tool } from "./tool.ts"

const DEFAULT_BLOCK_MS = 60_000
const MOST_BLOCK_MS = 600_000
/** Larger than any answer; without it the schema would name the largest integer. */
const MOST_OFFSET = 1_000_000_000

const DESCRIPTION = `Fetch the answer of a background task, with what it ran and changed, or see how far it is.

Use it when the notification did not contain the full answer (\`offset\` reads on); do not poll. Returns at once; \`block: true\` waits for the end: only when you cannot go on without this answer.`

export function outputTool(manager: TaskManager): Tool {
  return defineTool({
    description: DESCRIPTION,
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
      return renderOutputs(reports)
    },
  })
}
