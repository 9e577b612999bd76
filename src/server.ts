import type { Plugin } from "@opencode-ai/plugin"
import { customAlphabet } from "nanoid"
import type { HostEvent } from "./core/ports.ts"
import { systemClock } from "./host/clock.ts"
import { type RawEvent, toHostEvent } from "./host/events.ts"
import { clientOn } from "./host/opencode.ts"
import { OpencodeHost } from "./host/opencode-host.ts"
import { thisProcess } from "./host/owner.ts"
import { TaskManager } from "./manager/task-manager.ts"
import { parseOptions } from "./options.ts"
import { cancelTool } from "./tools/cancel.ts"
import { clearTool } from "./tools/clear.ts"
import { listTool } from "./tools/list.ts"
import { outputTool } from "./tools/output.ts"
import { usageLine } from "./tools/render.ts"
import { taskTool, withAgents } from "./tools/task.ts"

const randomID = customAlphabet("abcdefghijklmnopqrstuvwxyz0123456789", 8)
const TASK_TOOL = "superagents_task"

const server: Plugin = async (input, given) => {
  const { options, problems } = parseOptions(given)
  const host = new OpencodeHost(clientOn(input.client), thisProcess)
  for (const problem of problems) {
    host.log("warn", problem)
    host.toast({ title: "superagents: check your options", message: problem, variant: "warning" })
  }
  if (!options.enabled) return {}
  const manager = new TaskManager({
    host,
    clock: systemClock,
    options,
    randomID,
    development: isDevelopment(),
    usageLine,
  })
  const task = taskTool(manager, options.taskTimeout)
  return {
    tool: {
      [TASK_TOOL]: task,
      superagents_output: outputTool(manager),
      superagents_list: listTool(manager),
      superagents_cancel: cancelTool(manager),
      superagents_clear: clearTool(manager),
    },
    event: async ({ event }) => guard(() => hear(manager, event as RawEvent)),
    "tool.definition": async ({ toolID }, output) =>
      guardAsync(async () => {
        if (toolID === TASK_TOOL) output.description = withAgents(task.description, await host.agents())
      }),
    dispose: async () => guard(() => manager.stop()),
  }

  function hear(listener: { handle(event: HostEvent): void }, event: RawEvent) {
    const heard = toHostEvent(event, Date.now())
    if (heard) listener.handle(heard)
  }

  /** Nothing may leave a hook: a throw in one stops the host or the turn. */
  function guard(work: () => void) {
    try {
      work()
    } catch (error) {
      host.log("error", "a hook failed", { error: String(error) })
    }
  }

  async function guardAsync(work: () => Promise<void>) {
    try {
      await work()
    } catch (error) {
      host.log("error", "a hook failed", { error: String(error) })
    }
  }
}

/** Read through a copy: the host's Bun replaces the plain expression with "development" when it loads a plugin. */
function isDevelopment(): boolean {
  const { NODE_ENV } = { ...process.env }
  return NODE_ENV === "development"
}

export default { id: "superagents", server }
