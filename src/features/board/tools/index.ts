import type { Tool } from "../../../tools/tool.ts"
import type { BoardToolPorts } from "./define.ts"
import { purseTools } from "./purse.ts"
import { readingTools } from "./reading.ts"
import { resourceTools } from "./resources.ts"
import { stepTools } from "./steps.ts"
import { taskTools } from "./tasks.ts"

/** The board's tools, named like those of an MCP server `tasks`. */
export function boardTools(ports: BoardToolPorts): Readonly<Record<string, Tool>> {
  const kinds = [taskTools, readingTools, purseTools, stepTools, resourceTools]
  const tools = Object.assign({}, ...kinds.map((toolsOf) => toolsOf(ports))) as Record<string, Tool>
  return Object.fromEntries(Object.entries(tools).map(([name, tool]) => [`tasks_${name}`, tool]))
}
