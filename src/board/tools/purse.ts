import { CallError } from "../../core/errors.ts"
import type { ToolResult } from "../../tools/tool.ts"
import { purseText } from "../purse/door.ts"
import type { Board } from "../service.ts"
import type { AgentActor } from "./define.ts"

type PurseArgs = { readonly max?: number; readonly until?: string; readonly close?: boolean }

/** Opens the board's purse, closes it, or tells how it stands. */
export async function runPurse(
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
