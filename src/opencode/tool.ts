import type { ToolContext, ToolDefinition } from "@opencode-ai/plugin"
import { CallError } from "../core/errors.ts"
import type { Permit } from "../runtime/launch/checks.ts"
import type { Tool } from "../tools/tool.ts"
import { commandsIn } from "./commands.ts"

/** The permissions that a launch asks for: our own tool's, and that of OpenCode's own one. */
const OWN = "superagents_task"
const NATIVE = "task"
/** For more items than the option each.ask; asked for unless the user's own rules say otherwise. */
const EACH = "superagents_each"

/** Has the host ask for it: nothing is asked where no rule says so. The user's own rules come after it, and win. */
export function askForEach(config: { permission?: unknown }): void {
  const { permission = {} } = config
  const theirs = typeof permission === "string" ? { "*": permission } : (permission as object)
  config.permission = { [EACH]: "ask", ...theirs }
}

/** What a tool has to know of its host. */
export type ToolSurroundings = {
  /** Why no tool can work on this host; undefined where they can. */
  readonly refusal: () => string | undefined
  /** Whether the rules of an agent, or of its session, say of single agents that work may or may not go to them. */
  readonly picksAgents: (agent: string, sessionID: string) => Promise<boolean>
}

/**
 * A tool as OpenCode takes it. A launch asks for the permission of our own tool, with the agent's name as pattern. Where
 * the rules of OpenCode's own `task` name single agents, it asks for that one, too: what they say of an agent holds here
 * as well. One that turns `task` off altogether says nothing of us: who wants these tools in its place writes just that.
 */
export function toHostTool(tool: Tool, { refusal, picksAgents }: ToolSurroundings): ToolDefinition {
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
        authorize: async (wanted, description) => {
          const question = { patterns: [wanted], always: ["*"], metadata: { description, subagent_type: wanted } }
          await ask({ permission: OWN, ...question })
          if (await picksAgents(agent, sessionID)) await ask({ permission: NATIVE, ...question })
        },
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
  if (what.kind === "read") return { permission: "read", patterns: [what.file], always: ["*"], metadata: {} }
  if (what.kind === "each") return { permission: EACH, patterns: [what.what], always: ["*"], metadata: {} }
  const patterns = what.files.length > 0 ? [...what.files] : ["*"]
  return { permission: "edit", patterns, always: ["*"], metadata: { files: patterns } }
}
