import { setTimeout as sleep } from "node:timers/promises"
import { ask, openSession } from "../../test/support/drive.ts"
import { type ScriptedModel, startModel } from "../../test/support/model.ts"
import { type Opencode, startOpencode } from "../../test/support/opencode.ts"
import { startPlugged } from "../../test/support/plugin.ts"
import { type Case, collector } from "../support/case.ts"
import { memoryMB } from "../support/proc.ts"
import { atMostPlus } from "../support/rows.ts"

/** Until OpenCode has done what it does after its start, in ms. */
const REST_MS = 4000

/** An OpenCode with the plugin against one without any: from its start to its first answer, and its memory at rest. */
export const startCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  // With the catalogue of models that a user's OpenCode reads.
  const env = { OPENCODE_MODELS_PATH: undefined }
  const starts = {
    native: (model: ScriptedModel) => startOpencode({ model, env }),
    plugin: (model: ScriptedModel) => startPlugged(model, {}, { plugin: built.folder, env }),
  }
  const times = short ? 1 : runs * 2
  for (let run = 1; run <= times; run++) {
    progress(`start: run ${run} of ${times}`)
    for (const side of run % 2 === 0 ? (["plugin", "native"] as const) : (["native", "plugin"] as const)) {
      const { ms, mb } = await measure(starts[side])
      found.add("start", side, ms)
      found.add("memory", side, mb)
    }
  }
  const against = "an OpenCode without plugins"
  return [
    {
      case: "start",
      figure: "start of OpenCode → its first answer",
      unit: "ms",
      against,
      ...found.of("start"),
      goal: atMostPlus(150, "ms"),
    },
    { case: "start", figure: "memory at rest", unit: "MB", against, ...found.of("memory"), goal: atMostPlus(20, "MB") },
  ]
}

async function measure(start: (model: ScriptedModel) => Promise<Opencode>) {
  const model = await startModel()
  const begin = performance.now()
  const opencode = await start(model)
  try {
    await ask(opencode, await openSession(opencode), "hello")
    const ms = performance.now() - begin
    await sleep(REST_MS)
    return { ms, mb: memoryMB(opencode.pid, "VmRSS") }
  } finally {
    await opencode.stop()
    await model.close()
  }
}
