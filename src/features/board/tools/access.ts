import type { z } from "zod"
import { CallError, listed } from "../../../core/errors.ts"
import type { ToolResult } from "../../../core/ports.ts"
import { type CallContext, defineTool, type Tool } from "../../../tools/tool.ts"
import { BOARD_TOOLS } from "../options.ts"
import { type Actor, type Board, BoardError } from "../service.ts"

export type AgentActor = Extract<Actor, { kind: "agent" }>

export type BoardToolPorts = {
  readonly board: Board
  /** Whether the session belongs to a background task, or lies below such a session. */
  readonly isBackground: (sessionID: string) => Promise<boolean>
}

/**
 * A tool that only the board's agents may call, and not in background tasks. Other callers get an error with the
 * reason.
 */
export function boardTool<Shape extends z.ZodRawShape>(
  { board, isBackground }: BoardToolPorts,
  tool: {
    readonly description: string
    readonly args: z.ZodObject<Shape>
    readonly run: (args: z.infer<z.ZodObject<Shape>>, by: AgentActor) => Promise<ToolResult>
  },
): Tool {
  const run = async (args: z.infer<z.ZodObject<Shape>>, context: CallContext) => {
    try {
      return await tool.run(args, await actorOf(context))
    } catch (error) {
      throw error instanceof BoardError ? new CallError(error.message) : error
    }
  }
  const actorOf = async ({ agent, sessionID, messageID }: CallContext): Promise<AgentActor> => {
    const agents = (await board.agents()).map(({ name }) => name)
    if (agent === undefined || !agents.includes(agent)) {
      const whose =
        agents.length === 0
          ? "The option board.agents names no agent that there is."
          : `Its agents are: ${listed(agents, 20)}.`
      throw new CallError(`The board is not for the agent "${agent}". ${whose} Leave the board; tell the user.`)
    }
    if (await isBackground(sessionID))
      throw new CallError("The board is not for background tasks. Say in your answer what is to be put there.")
    return { kind: "agent", agent, sessionID, messageID }
  }
  return defineTool({ description: tool.description, args: tool.args.shape, schema: tool.args, run })
}

type Rules = string | Record<string, unknown>
type Agent = { hidden?: boolean; disable?: boolean; permission?: Rules } & Record<string, unknown>
/** OpenCode's configuration of agents and permissions. */
export type AgentConfig = { permission?: Rules; agent?: Record<string, Agent | undefined> }

/** OpenCode's visible built-in agents. They exist even where the configuration does not name them. */
const BUILT_IN = ["build", "plan", "general", "explore"]
/** OpenCode's agent whose rules deny everything they do not name. */
const DENIES_ALL = "explore"

/**
 * Offers the board's tools to its agents only, by permission rules in OpenCode's configuration. Must run before
 * OpenCode creates its agents.
 */
export function restrictTools(config: AgentConfig, allowed: readonly string[] | null): void {
  config.agent ??= {}
  const agents = config.agent
  for (const name of new Set([...BUILT_IN, ...Object.keys(agents)])) {
    const agent = agents[name]
    const isAllowed = !agent?.hidden && (allowed === null || allowed.includes(name))
    const rules = asRules(agent?.permission)
    if (!isAllowed) {
      const { [BOARD_TOOLS]: _ours, ...others } = rules
      agents[name] = { ...agent, permission: { ...others, [BOARD_TOOLS]: "deny" } }
    } else if (name === DENIES_ALL || rules["*"] === "deny" || asRules(config.permission)["*"] === "deny") {
      const { "*": all, ...others } = rules
      agents[name] = {
        ...agent,
        permission: { ...(all !== undefined && { "*": all }), [BOARD_TOOLS]: "allow", ...others },
      }
    }
  }
}

/** Rules as a table. The short form, a single word, becomes the rule for everything. */
const asRules = (rules: Rules | undefined): Record<string, unknown> =>
  typeof rules === "string" ? { "*": rules } : { ...rules }
