import type { Hooks } from "@opencode-ai/plugin"
import type { Part } from "@opencode-ai/sdk/v2/types"
import type { App } from "../../app.ts"
import type { AgentConfig } from "../../board/gate.ts"
import type { HostEvent } from "../../core/ports.ts"
import { systemClock } from "../../lib/clock.ts"
import type { Options } from "../../options.ts"
import { briefingOf } from "../../tools/briefing.ts"
import { TASK_TOOL } from "../../tools/index.ts"
import { renderForCompaction } from "../../tools/render-list.ts"
import { withAgents } from "../../tools/task.ts"
import type { Tool } from "../../tools/tool.ts"
import type { OpencodeConnection } from "./connect.ts"
import { shorten } from "./definition.ts"
import { EventReader, type RawEvent } from "./events.ts"
import { type Guest, guestOf } from "./hub.ts"
import { NativeTask } from "./native-task.ts"
import { leaveOutStale, modelIn, type Request, sessionOf, tellWith, turnOf } from "./request.ts"
import { rideInHeaders, rideInOptions } from "./ride.ts"
import { examineHost } from "./routes.ts"
import { askForEach, type ToolSurroundings, toHostTool } from "./tool.ts"
import { isFirstOf } from "./version.ts"

const WRONG_HOST = "superagents: another OpenCode is needed"
const NEVER = new Promise<never>(() => {})
const UNTRIED_HOST = "superagents: a version that was not tried"

/** The plugin as OpenCode 1.x calls it. Nothing may leave a hook: a throw in one stops the host or the turn. */
export function hooksOf(connection: OpencodeConnection, app: App, options: Options): Hooks {
  const { host, directory } = connection
  const { manager, board } = app
  const events = new EventReader()
  const briefing = briefingOf(options)
  const native = options.nativeTask ? undefined : new NativeTask()
  /** Sessions whose next request is one that compacts them. */
  const compacting = new Set<string>()
  const guest: Guest = {
    tools: app.tools,
    keeper: manager,
    hear: (event, folder) => void guard(() => hear(event, folder)),
  }
  connection.listen(guest)
  let unsuitable: string | undefined
  let told = false
  systemClock.after(0, () => {
    void guard(async () => {
      const { refusal, note, version } = await examineHost(connection.transport)
      if (refusal) host.log("error", refusal)
      unsuitable = refusal
      if (!note || !version || !(await isFirstOf(version))) return
      host.log("warn", note)
      connection.notices.push({ title: UNTRIED_HOST, message: note })
    })
  })
  const keeperHere = () => connection.keeper(manager)
  const tools = toolsHere(app.tools, directory)
  const surroundings: ToolSurroundings = {
    refusal: () => unsuitable,
    picksAgents: (agent, sessionID) => host.picksAgents(agent, sessionID),
  }
  const hostTools = Object.entries({ ...tools, ...board?.tools }).map(
    ([name, tool]) => [name, toHostTool(tool, surroundings)] as const,
  )
  const ours = new Set(hostTools.map(([name]) => name))
  return {
    // Read by the host at the first request to a model, when it is known whether the tools can work.
    get tool() {
      return unsuitable ? {} : Object.fromEntries(hostTools)
    },
    config: async (config) =>
      guard(() => {
        if (options.each.ask > 0) askForEach(config as { permission?: unknown })
        board?.configure(config as AgentConfig)
      }),
    ...((board || native) && {
      "chat.message": async ({ sessionID }, { message, parts }) =>
        guard(async () => {
          native?.written(message, parts as readonly Part[])
          await board?.written(sessionID, message.id)
        }),
    }),
    event: async ({ event }) =>
      guard(() => {
        guestOf(directory)?.hear(event as RawEvent, directory)
        hear(event as RawEvent, directory)
      }),
    // The first request to a model: by now there is a screen that can show what is wrong.
    "tool.definition": async ({ toolID }, output) =>
      guard(async () => {
        for (const notice of connection.notices.splice(0)) host.toast({ ...notice, variant: "warning" })
        if (unsuitable && !told) host.toast({ title: WRONG_HOST, message: unsuitable, variant: "error" })
        told ||= unsuitable !== undefined
        if (ours.has(toolID)) shorten(output)
        const tool = toolID === TASK_TOOL ? tools[toolID] : undefined
        if (tool) output.description = withAgents(tool.description, await host.agents())
      }),
    "experimental.chat.messages.transform": async (_input, output) =>
      guard(async () => {
        const request = output as unknown as Request
        const sessionID = sessionOf(request)
        leaveOutStale(request)
        // What is said for one request alone is no part of what a compaction sums up.
        if (!sessionID) return compacting.clear()
        // Its turn is stopped where it stands, and goes on by the same prompt when the provider opens.
        if (keeperHere().holdsRequest(sessionID, modelIn(request))) await NEVER
        if (compacting.delete(sessionID)) return
        const changed = await board?.changed(sessionID, turnOf(request))
        const word = keeperHere().inRequest(sessionID)
        tellWith(request, [changed, word?.text].filter(isText), word?.withoutTools)
      }),
    // What a provider goes by to find a request's beginning in its cache.
    "chat.params": async ({ sessionID }, output) =>
      guard(() => {
        const ridden = keeperHere().rides(sessionID)
        if (ridden) rideInOptions(output.options, sessionID, ridden)
      }),
    "chat.headers": async ({ sessionID, model }, output) =>
      guard(() => {
        const ridden = keeperHere().rides(sessionID)
        if (ridden) rideInHeaders(output.headers, model.providerID, ridden)
      }),
    // The one hook that may throw: that is how a call of a tool is refused.
    "tool.execute.before": async ({ sessionID, tool }) => {
      const refusal = keeperHere().refusesTools(sessionID, tool)
      if (refusal) throw new Error(refusal)
    },
    ...((briefing !== undefined || board) && {
      "experimental.chat.system.transform": async ({ sessionID = "" }, output) =>
        guard(async () => {
          if (briefing !== undefined && keeperHere().isFresh(sessionID)) output.system.push(briefing)
          const block = await board?.system(sessionID)
          if (block) output.system.push(block)
        }),
    }),
    "experimental.session.compacting": async ({ sessionID }, output) =>
      guard(async () => {
        // The host hands the conversation over right after this, to be summed up.
        compacting.add(sessionID)
        const keeper = keeperHere()
        await keeper.ready(sessionID)
        const text = renderForCompaction(keeper.list(sessionID))
        if (text !== "") output.context.push(text)
      }),
    dispose: async () => {
      await guard(() => app.stop())
      await guard(() => host.answers?.close())
      await guard(() => connection.leave())
      // From here on another instance may take the tasks over, whatever becomes of the rest.
      connection.unregister()
      await guard(() => app.closePage())
    },
  }

  function hear(event: RawEvent, folder: string): void {
    host.hear(event, folder)
    const heard: HostEvent | undefined = events.read(event, Date.now())
    if (heard?.type === "idle") native?.idle(heard.sessionID)
    if (heard) manager.handle(heard)
  }

  async function guard(work: () => void | Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      host.log("error", "a hook failed", { error: String(error) })
    }
  }
}

const isText = (text: string | undefined): text is string => text !== undefined

/** Where a task works, the instance that looks after the task answers calls of the tools. */
const toolsHere = (own: Readonly<Record<string, Tool>>, directory: string): Record<string, Tool> =>
  Object.fromEntries(
    Object.entries(own).map(([name, tool]): [string, Tool] => [
      name,
      { ...tool, execute: (args, context) => (guestOf(directory)?.tools[name] ?? tool).execute(args, context) },
    ]),
  )
