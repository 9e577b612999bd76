import { z } from "zod"
import type { Tool } from "../../../tools/tool.ts"
import { MOST_HISTORY } from "../service.ts"
import { type BoardToolPorts, boardTool } from "./define.ts"
import { renderHistory, renderList, renderWhole } from "./render.ts"
import { taskID } from "./tasks.ts"

/** Tools that read board and history. */
export function readingTools(ports: BoardToolPorts): Record<string, Tool> {
  const { board } = ports
  return {
    get_task: boardTool(ports, {
      description: "Read any task of the board whole, with its steps, resources and state; ended ones too.",
      args: { task_id: taskID },
      async run({ task_id }) {
        return renderWhole(board, await board.get(task_id))
      },
    }),
    list_tasks: boardTool(ports, {
      description: "List your own open tasks with their progress and state.",
      args: { all: z.boolean().optional().describe("Those of all agents.") },
      async run({ all = false }, { agent }) {
        const tasks = await board.list()
        if (all) return renderList(board, tasks)
        const own = tasks.filter(({ owner }) => owner === agent)
        return renderList(board, own, agent)
      },
    }),
    list_history: boardTool(ports, {
      description: "List ended tasks of all agents, newest first.",
      args: { limit: z.int().min(1).max(MOST_HISTORY).optional().describe("Default 20.") },
      async run({ limit }) {
        return renderHistory(await board.history(limit))
      },
    }),
  }
}
