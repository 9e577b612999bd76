import type { TaskManager } from "../runtime/task-manager.ts"
import { renderCleared } from "./render-list.ts"
import { defineTool, type Tool } from "./tool.ts"

const DESCRIPTION =
  "Forget this session's background tasks. What runs is stopped first; answers not fetched are lost. Work not merged stays in git."

export function clearTool(manager: TaskManager): Tool {
  return defineTool({
    description: DESCRIPTION,
    args: {},
    async run(_args, { sessionID }) {
      return renderCleared(await manager.clear(sessionID))
    },
  })
}
