import { UnknownTaskError } from "../core/errors.ts"
import type { Options } from "../options/options.ts"
import type { TaskManager } from "../runtime/task-manager.ts"
import { cancelTool } from "./cancel.ts"
import { clearTool } from "./clear.ts"
import { listTool } from "./list.ts"
import { outputTool } from "./output.ts"
import { taskTool } from "./task.ts"
import type { Tool } from "./tool.ts"

export const TASK_TOOL = "superagents_task"

/** The five tools. Each first recovers the session's tasks from before a restart. */
export function toolsFor(manager: TaskManager, options: Options): Readonly<Record<string, Tool>> {
  const prepared = (tool: Tool): Tool => ({
    ...tool,
    async execute(args, context) {
      await manager.ready(context.sessionID)
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
