import { z } from "zod"
import type { TaskManager } from "../manager/task-manager.ts"
import { MOST_ID_CHARS } from "./arguments.ts"
import { renderOutput } from "./render.ts"
import { defineTool, type Tool } from "./tool.ts"

const DEFAULT_BLOCK_MS = 60_000
const MOST_BLOCK_MS = 600_000

const DESCRIPTION = `Fetch the answer of a background task, or see how far it is. Answers at once.

Call it when you were told that a task has ended. Do not call it in a loop to wait: you will be told. \`block: true\` waits for the end (up to \`timeout\` ms); use it only when you cannot go on without this answer. A long answer is cut; read on with \`offset\`.`

export function outputTool(manager: TaskManager): Tool {
  return defineTool({
    description: DESCRIPTION,
    args: {
      task_id: z.string().max(MOST_ID_CHARS).describe("The task's id, or enough of its beginning."),
      block: z.boolean().optional().describe("Wait until the task has ended. Default: false."),
      timeout: z
        .int()
        .min(1)
        .max(MOST_BLOCK_MS)
        .optional()
        .describe(`With block: how long to wait, in ms. Default: ${DEFAULT_BLOCK_MS}.`),
      offset: z.int().min(0).optional().describe("First character of the answer to show. Default: 0."),
    },
    async run({ task_id, block = false, timeout = DEFAULT_BLOCK_MS, offset = 0 }, context) {
      const report = await manager.output(task_id, context, block ? timeout : 0, context.abort)
      return renderOutput(report, offset)
    },
  })
}
