import { Rig, type RigOptions } from "./rig.ts"

/** Agents that spend. A step costs a cent. */

export const CENT = { usage: { input: 10_000 } }
export const STEP = { tools: [{ name: "read", args: { ms: 200 } }], ...CENT }

/** A rig in which an agent whose prompt begins with SPEND takes so many steps. */
export const spendingRig = (options: object = {}, steps = 4, more: RigOptions = {}): Rig => {
  const rig = new Rig({ ...more, options: { lastWord: 0, ...options } })
  rig.script(({ prompt, toolResults }) => {
    if (!prompt.startsWith("SPEND")) return undefined
    return toolResults.length + 1 < steps ? STEP : { text: "done", ...CENT }
  })
  return rig
}

export const spend = { prompt: "SPEND" }
