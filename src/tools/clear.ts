import type { TaskManager } from "../engine/task-manager.ts"
import { renderCleared } from "./render-list.ts"
import { defineTool, type Tool } from "./tool.ts"

const DESCRIPTION = `Forget all background tasks of this session. What still runs is stopped first, without a message about it. Answers that were not fetched are lost.`

export function clearTool(manager: TaskManager): Tool {
  return defineTool({
    description: DESCRIPTION,
    args: {},
    async run(_args, { sessionID }) {
      return renderCleared(await manager.clear(sessionID))
    },
  })
}
