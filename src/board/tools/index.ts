import type { Tool } from "../../tools/tool.ts"
import type { BoardToolPorts } from "./define.ts"
import { stepTools } from "./steps.ts"
import { taskTools } from "./tasks.ts"

/** The board's tools, named as OpenCode would name those of a server called `tasks`. */
export function boardTools(ports: BoardToolPorts): Readonly<Record<string, Tool>> {
  const tools = { ...taskTools(ports), ...stepTools(ports) }
  return Object.fromEntries(Object.entries(tools).map(([name, tool]) => [`tasks_${name}`, tool]))
}
