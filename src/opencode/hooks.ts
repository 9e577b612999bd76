import type { Hooks } from "@opencode-ai/plugin"
import type { Part } from "@opencode-ai/sdk/v2/types"
import type { App } from "../app.ts"
import type { OpencodeEvent } from "../core/ports.ts"
import { systemClock } from "../lib/clock.ts"
import type { Options } from "../options/options.ts"
import { TASK_TOOL } from "../tools/index.ts"
import { withAgents } from "../tools/task.ts"
import type { Tool } from "../tools/tool.ts"
import type { OpencodeConnection } from "./connect.ts"
import { shorten } from "./definition.ts"
import { EventReader, type RawEvent } from "./events.ts"
import { NativeTask } from "./native-task.ts"
import { type Peer, peerOf } from "./peers.ts"
import { createHookGuard, type HookGuard, requestHooks } from "./request-hooks.ts"
import { Suitability } from "./routes.ts"
import { askForEach, toOpencodeTool } from "./tool.ts"

/** Hooks for OpenCode 1.x. Only `tool.execute.before` may throw: any other throw stops OpenCode or the turn. */
export function hooksOf(connection: OpencodeConnection, app: App, options: Options): Hooks {
  const { host, directory } = connection
  const { manager, board } = app
  const guard = createHookGuard(host)
  const native = options.nativeTask ? undefined : new NativeTask()
  const hear = eventRouter(connection, app, native)
  const peer: Peer = {
    tools: app.tools,
    handler: manager,
    hear: (event, folder) => void guard(() => hear(event, folder)),
  }
  connection.listen(peer)
  const suitability = new Suitability(connection)
  systemClock.after(0, () => void guard(() => suitability.examine()))
  const { tools, ...toolHooks } = toolHooksOf(connection, app, suitability, guard)
  return {
    // Read at the first model request, when it is known whether the tools work.
    get tool() {
      return suitability.refusal === undefined ? tools : {}
    },
    ...toolHooks,
    ...requestHooks(connection, app, { options, native }, guard),
    config: async (config) =>
      guard(() => {
        host.config = config as typeof host.config
        askForEach(config as { permission?: unknown })
        board?.configure(config as Parameters<typeof board.configure>[0])
      }),
    "chat.message": async ({ sessionID }, { message, parts }) =>
      guard(async () => {
        if (host.isPersons(sessionID, message.id)) manager.wrote()
        native?.written(message, parts as readonly Part[])
        await board?.conversations.written(sessionID, message.id)
      }),
    event: async ({ event }) =>
      guard(() => {
        peerOf(directory)?.hear(event as RawEvent, directory)
        hear(event as RawEvent, directory)
      }),
    dispose: async () => {
      await guard(() => app.stop())
      await guard(() => connection.leave())
      // From here on another instance may take the tasks over, even if the rest fails.
      connection.unregister()
      await guard(() => app.closePage())
    },
  }
}

function eventRouter({ host }: OpencodeConnection, { manager }: App, native: NativeTask | undefined) {
  const events = new EventReader()
  return (event: RawEvent, folder: string): void => {
    host.hear(event, folder)
    const heard: OpencodeEvent | undefined = events.read(event, Date.now())
    if (heard?.type === "idle") native?.idle(heard.sessionID)
    if (heard) manager.handle(heard)
  }
}

/** Hooks for the tools: definitions, and which of them a model may call. */
function toolHooksOf(connection: OpencodeConnection, app: App, suitability: Suitability, guard: HookGuard) {
  const { host, directory } = connection
  const own = toolsHere(app.tools, directory)
  const tools = Object.fromEntries(
    Object.entries({ ...own, ...app.board?.tools }).map(([name, tool]) => [
      name,
      toOpencodeTool(tool, {
        refusal: () => suitability.refusal,
        picksAgents: (agent, sessionID) => host.picksAgents(agent, sessionID),
      }),
    ]),
  )
  return {
    tools,
    // At the first model request there is a screen for warnings.
    "tool.definition": async ({ toolID }, output) =>
      guard(async () => {
        suitability.show()
        if (Object.hasOwn(tools, toolID)) shorten(output)
        const tool = toolID === TASK_TOOL ? own[toolID] : undefined
        if (tool) output.description = withAgents(tool.description, await host.agents())
      }),
    // Throwing is OpenCode's way to refuse a tool call.
    "tool.execute.before": async ({ sessionID, tool }) => {
      const refusal = connection.requestHandler(app.manager).refusesTools(sessionID, tool)
      if (refusal) throw new Error(refusal)
    },
  } satisfies Hooks & { tools: unknown }
}

/** In a task's own folder, the instance that owns the task answers tool calls. */
const toolsHere = (own: Readonly<Record<string, Tool>>, directory: string): Record<string, Tool> =>
  Object.fromEntries(
    Object.entries(own).map(([name, tool]): [string, Tool] => [
      name,
      { ...tool, execute: (args, context) => (peerOf(directory)?.tools[name] ?? tool).execute(args, context) },
    ]),
  )
