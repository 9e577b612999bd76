import { ask, openSession, type ToolCall } from "../../test/support/drive.ts"
import { type ScriptedModel, startModel } from "../../test/support/model.ts"
import { type Opencode, startOpencode } from "../../test/support/opencode.ts"
import { startPlugged } from "../../test/support/plugin.ts"
import { type CallLog, countedOn } from "./call-log.ts"
import type { Side } from "./case.ts"

/** What a parent's model hands over. */
export type Job = { readonly description: string; readonly prompt: string; readonly place?: "here" | "worktree" }

/** A way to hand over work in the background: OpenCode's own, the plugin's, or the least that any plugin does. */
export type Contender = {
  readonly name: Side
  start(model: ScriptedModel): Promise<Opencode>
  /** The tool call with which a parent's model hands the job over. */
  call(job: Job): ToolCall
}

/** A contender at work: an OpenCode of its own, warmed up, with a model of its own. */
export type Bench = {
  readonly contender: Contender
  readonly model: ScriptedModel
  readonly opencode: Opencode
  stop(): Promise<void>
}

/** OpenCode's own tasks know no limits of number and rate: so the plugin has none either. */
const UNLIMITED = { maxConcurrentTasks: 0, maxLaunchesPerMinute: 0 } as const

export const native: Contender = {
  name: "native",
  start: (model) => startOpencode({ model, env: { OPENCODE_EXPERIMENTAL_BACKGROUND_SUBAGENTS: "true" } }),
  call: ({ description, prompt }) => ({
    name: "task",
    args: { description, prompt, subagent_type: "general", background: true },
  }),
}

/** `plugin` names the package to load, as a user would in opencode.json. */
export const superagents = (plugin: string, options: Record<string, unknown> = {}): Contender => ({
  name: "plugin",
  start: (model) => startPlugged(model, { ...UNLIMITED, ...options }, { plugin }),
  call: (job) => ({ name: "superagents_task", args: { ...job, agent: "general" } }),
})

export const least: Contender = {
  name: "least",
  start: (model) => startOpencode({ model, plugin: [new URL("../least-plugin.ts", import.meta.url).href] }),
  call: ({ description, prompt }) => ({ name: "least_task", args: { description, prompt } }),
}

/** The plugin with its calls to OpenCode written down. `entry` is the URL of the built server module. */
export const counted = (entry: string, options: Record<string, unknown> = {}): Contender & { log: CallLog } => {
  const { log, plugin, wrapped } = countedOn(entry, { ...UNLIMITED, ...options })
  return { ...superagents(plugin), start: (model) => startPlugged(model, wrapped, { plugin }), log }
}

/** Neither is always the first. */
export const inTurn = (contenders: Contender[], run: number) => (run % 2 === 0 ? contenders.toReversed() : contenders)

export const startBench = async (contender: Contender): Promise<Bench> => {
  const model = await startModel()
  try {
    const opencode = await contender.start(model)
    const stop = async () => {
      await opencode.stop()
      await model.close()
    }
    await ask(opencode, await openSession(opencode), "warm up")
    return { contender, model, opencode, stop }
  } catch (error) {
    await model.close()
    throw error
  }
}

/** Starts both, runs `work` and stops both, whatever happens. */
export const withBenches = async <Result>(
  contenders: readonly Contender[],
  work: (benches: readonly Bench[]) => Promise<Result>,
): Promise<Result> => {
  const benches: Bench[] = []
  try {
    for (const contender of contenders) benches.push(await startBench(contender))
    return await work(benches)
  } finally {
    await Promise.all(benches.map((bench) => bench.stop()))
  }
}
