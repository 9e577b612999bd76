import { z } from "zod"
import { CallError } from "../../../core/errors.ts"
import type { Tool, ToolResult } from "../../../tools/tool.ts"
import { purseText } from "../purse/purses.ts"
import type { Board } from "../service.ts"
import { type AgentActor, type BoardToolPorts, boardTool } from "./define.ts"

type PurseArgs = { readonly max?: number; readonly until?: string; readonly close?: boolean }

export function purseTools(ports: BoardToolPorts): Record<string, Tool> {
  const { board } = ports
  return {
    purse: boardTool(ports, {
      description:
        "Have the board worked on without a pause until the money or the time is used up; then one report comes here. Without arguments: how it stands.",
      args: {
        max: z.number().optional().describe("US dollars."),
        until: z.string().optional().describe('"07:00", or an ISO time.'),
        close: z.boolean().optional().describe("End it now."),
      },
      run: (args, by) => runPurse(board, args, by),
    }),
  }
}

/** Opens, closes or shows the purse. */
async function runPurse(
  { purse }: Board,
  { max, until, close = false }: PurseArgs,
  by: AgentActor,
): Promise<ToolResult> {
  if (close) {
    if (max !== undefined || until !== undefined)
      throw new CallError("With `close`, leave out `max` and `until`: it ends the purse that is open.")
    await purse.close(by)
    return { title: "purse closed", output: "The purse is closed: what it runs is stopped, and its report follows." }
  }
  if (max === undefined && until === undefined) {
    const [last] = await purse.reports()
    return { title: "purse", output: purseText(await purse.view(), last) }
  }
  const view = await purse.open({ max, until }, by)
  const output = `The purse is open: ${view.text}. Each active task that waits for nobody is worked on until either ends. One report comes here then: do not wait or poll.`
  return { title: "purse open", output }
}
