import type { ToolContext, ToolDefinition } from "@opencode-ai/plugin"
import { CallError } from "../../core/errors.ts"
import type { Permit } from "../../engine/launch/checks.ts"
import type { Tool } from "../../tools/tool.ts"
import { commandsIn } from "./commands.ts"

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
        permit: (what) => ask(questionFor(what)),
      })
    },
  }
}

/**
 * What OpenCode's own tools ask for before they run a command or edit files. A command is asked for as a whole and in
 * its parts, as the shell tells them apart, so that what is allowed of one part allows nothing of another.
 */
function questionFor(what: Permit): Parameters<ToolContext["ask"]>[0] {
  if (what.kind === "run") {
    const { command } = what
    return { permission: "bash", patterns: commandsIn(command), always: [command], metadata: { command } }
  }
  const patterns = what.files.length > 0 ? [...what.files] : ["*"]
  return { permission: "edit", patterns, always: ["*"], metadata: { files: patterns } }
}
