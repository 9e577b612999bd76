import { callTool } from "./drive.ts"
import type { ScriptedModel } from "./model.ts"
import type { Opencode } from "./opencode.ts"
import { launchedFrom, notified } from "./plugin.ts"

const LIMIT_MS = 90_000

/**
 * What the parent's model does in the tests of a file, and is told; each takes 90 s at most. `now`: the parent of the
 * present test; `place`: where its tasks work.
 */
export const callsOf = (now: () => { opencode: Opencode; model: ScriptedModel; session: string }, place: string) => {
  const tool = (name: string, args: Record<string, unknown>) => {
    const { opencode, model, session } = now()
    return callTool(opencode, model, session, name, args, { timeout: LIMIT_MS })
  }
  const said = async (name: string, args: Record<string, unknown>) => (await tool(name, args)).output ?? ""
  return {
    tool,
    launch: async (prompt: string, args: Record<string, unknown> = {}) =>
      launchedFrom(await tool("superagents_task", { description: prompt, prompt, agent: "general", place, ...args })),
    output: (id: string) => said("superagents_output", { task_id: id }),
    list: () => said("superagents_list", {}),
    merge: (id: string) => said("superagents_task", { merge: id }),
    told: (count = 1) => notified(now().opencode, now().session, count, LIMIT_MS),
  }
}
