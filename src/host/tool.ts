import type { ToolContext, ToolDefinition } from "@opencode-ai/plugin"
import { CallError } from "../core/errors.ts"
import type { Tool } from "../tools/tool.ts"

/**
 * A tool as OpenCode takes it. A launch asks for the permission that OpenCode's own `task` tool asks for, so that what
 * the user or an agent's definition says about subagents holds here too. `refusal` is why no tool can work on this host.
 */
export function toHostTool(tool: Tool, refusal: () => string | undefined): ToolDefinition {
  return {
    description: tool.description,
    args: tool.args,
    execute: async (args: unknown, { sessionID, messageID, agent, abort, ask }: ToolContext) => {
      const reason = refusal()
      if (reason) throw new CallError(reason)
      return tool.execute(args, {
        sessionID,
        messageID,
        agent,
        abort,
        authorize: (agent, description) =>
          ask({
            permission: "task",
            patterns: [agent],
            always: ["*"],
            metadata: { description, subagent_type: agent },
          }),
      })
    },
  }
}
