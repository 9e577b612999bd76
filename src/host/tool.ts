import type { ToolContext, ToolDefinition } from "@opencode-ai/plugin"
import type { Tool } from "../tools/tool.ts"

/**
 * A tool as OpenCode takes it. A launch asks for the permission that OpenCode's own `task` tool asks for, so that what
 * the user or an agent's definition says about subagents holds here too.
 */
export function toHostTool(tool: Tool): ToolDefinition {
  return {
    description: tool.description,
    args: tool.args,
    execute: (args: unknown, { sessionID, messageID, abort, ask }: ToolContext) =>
      tool.execute(args, {
        sessionID,
        messageID,
        abort,
        authorize: (agent, description) =>
          ask({
            permission: "task",
            patterns: [agent],
            always: ["*"],
            metadata: { description, subagent_type: agent },
          }),
      }),
  }
}
