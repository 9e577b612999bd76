import type { z } from "zod"
import { CallError, listed } from "../../../core/errors.ts"
import { type CallContext, defineTool, type Tool, type ToolResult } from "../../../tools/tool.ts"
import { type Actor, type Board, BoardError } from "../service.ts"

export type AgentActor = Extract<Actor, { kind: "agent" }>

export type BoardToolPorts = {
  readonly board: Board
  /** Whether the session is that of a background task, or below one. */
  readonly isBackground: (sessionID: string) => Promise<boolean>
}

/** A tool of the board. Other callers get an error that explains why they may not use it. */
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
      throw new CallError(`The board is not for the agent "${agent}". ${whose}`)
    }
    if (await isBackground(sessionID))
      throw new CallError("The board is not for background tasks. Say in your answer what is to be put there.")
    return { kind: "agent", agent, sessionID, messageID }
  }
  return defineTool({ description: tool.description, args: tool.args.shape, schema: tool.args, run })
}
