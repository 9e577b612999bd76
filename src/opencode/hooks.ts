import type { Hooks, ToolContext, ToolDefinition } from "@opencode-ai/plugin"
import type { Part } from "@opencode-ai/sdk/v2/types"
import type { App } from "../app.ts"
import { CallError } from "../core/errors.ts"
import type { RequestObserver } from "../core/feature.ts"
import type { OpencodeApi, OpencodeEvent } from "../core/ports.ts"
import { systemClock } from "../lib/clock.ts"
import type { Options } from "../options/options.ts"
import { isPlainObject } from "../options/spec.ts"
import { renderForCompaction } from "../present/list.ts"
import type { RequestHandler } from "../runtime/connection.ts"
import type { Permit } from "../runtime/launch/checks.ts"
import { briefingOf, TASK_TOOL } from "../tools/index.ts"
import { withAgents } from "../tools/task.ts"
import type { Tool } from "../tools/tool.ts"
import { Suitability } from "./compatibility.ts"
import { type OpencodeConnection, type Peer, peerOf } from "./connect.ts"
import { LAUNCHING_TOOL } from "./convert.ts"
import { EventReader, type RawEvent } from "./events.ts"
import {
  addRequestText,
  cacheKeyInHeaders,
  cacheKeyInOptions,
  leaveOutStale,
  modelIn,
  NativeTask,
  type RequestMessages,
  sessionOf,
  turnOf,
} from "./request.ts"

/** Runs a hook's work and catches errors, because an error thrown by a hook would stop OpenCode or the turn. */
export type HookRunner = (work: () => void | Promise<void>) => Promise<void>

const createHookRunner =
  (opencode: Pick<OpencodeApi, "log">): HookRunner =>
  async (work) => {
    try {
      await work()
    } catch (error) {
      opencode.log("error", "a hook failed", { error: String(error) })
    }
  }

/**
 * OpenCode's agent for compactions. Its model becomes known only just before the request, so the request is held there.
 */
const COMPACTION = "compaction"

/** Hooks for requests to models: they add texts, and hold a request that must not be sent. */
export function requestHooks(
  connection: OpencodeConnection,
  { manager, threads }: App,
  { options, native }: { readonly options: Options; readonly native: NativeTask | undefined },
  runSafely: HookRunner,
) {
  const { observers } = manager
  const handlerHere = () => connection.requestHandler(manager)
  const briefingFor = briefingsBy(handlerHere, options, observers)
  const compacting = new Set<string>()
  return {
    "experimental.chat.messages.transform": async (_input, output) =>
      runSafely(async () => {
        const request = output as unknown as RequestMessages
        const sessionID = sessionOf(request)
        leaveOutStale(request)
        // A compaction's summary must not contain a text that is meant for a single request.
        if (!sessionID) return compacting.clear()
        if (compacting.delete(sessionID)) return
        await handlerHere().holdRequest(sessionID, modelIn(request))
        native?.asked(request)
        const turn = turnOf(request)
        const changed = await Promise.all(threads.map((each) => each.conversations.changed(sessionID, turn)))
        const addition = handlerHere().inRequest(sessionID)
        for (const each of observers) each.asking(sessionID, request)
        addRequestText(request, [...changed, addition?.text].filter(isText), addition?.withoutTools)
      }),
    "chat.params": async ({ sessionID, agent, model }, output) =>
      runSafely(async () => {
        const asked = { provider: model.providerID, id: model.id }
        if (agent === COMPACTION) await handlerHere().holdRequest(sessionID, asked, true)
        const cacheSession = handlerHere().cacheSessionOf(sessionID)
        if (cacheSession) cacheKeyInOptions(output.options, sessionID, cacheSession)
        for (const each of observers) await each.sending(sessionID, agent)
      }),
    "chat.headers": async ({ sessionID, model }, output) =>
      runSafely(() => {
        const cacheSession = handlerHere().cacheSessionOf(sessionID)
        if (cacheSession) cacheKeyInHeaders(output.headers, model.providerID, cacheSession)
      }),
    ...((briefingOf(options) !== undefined || threads.length > 0 || observers.length > 0) && {
      "experimental.chat.system.transform": async ({ sessionID = "" }, output) =>
        runSafely(async () => {
          const system = threads.map((each) => each.conversations.system(sessionID))
          const texts = [briefingFor(sessionID), ...(await Promise.all(system))]
          output.system.push(...texts.filter(isText))
          for (const each of observers) each.making(sessionID, output)
        }),
    }),
    "experimental.session.compacting": async ({ sessionID }, output) =>
      runSafely(async () => {
        // The session's next request is the compaction: OpenCode asks for the summary right after this hook.
        compacting.add(sessionID)
        const handler = handlerHere()
        await handler.ready(sessionID)
        const text = renderForCompaction(handler.list(sessionID))
        if (text !== "") output.context.push(text)
      }),
  } satisfies Hooks
}

/**
 * Returns the briefing for a fresh agent's session and for a probe of such a session; undefined for any other session.
 */
const briefingsBy =
  (handlerHere: () => RequestHandler, options: Options, observers: readonly RequestObserver[]) =>
  (sessionID: string): string | undefined => {
    const handler = handlerHere()
    const isTold = handler.isFresh(sessionID) || observers.some((each) => each.isBriefed(sessionID))
    return isTold ? briefingOf(options, handler.answersInJSON(sessionID)) : undefined
  }

const isText = (text: string | undefined): text is string => text !== undefined && text !== ""

/**
 * The plugin's hooks for OpenCode 1.x. Only `tool.execute.before` may throw: an error in any other hook stops OpenCode
 * or the turn.
 */
export function hooksOf(connection: OpencodeConnection, app: App, options: Options): Hooks {
  const { opencode, directory } = connection
  const { manager, threads } = app
  const runSafely = createHookRunner(opencode)
  const native = options.nativeTask ? undefined : new NativeTask()
  const handleEvent = eventRouter(connection, app, native)
  const peer: Peer = {
    tools: app.tools,
    handler: manager,
    handleEvent: (event, folder) => void runSafely(() => handleEvent(event, folder)),
  }
  connection.listen(peer)
  const suitability = new Suitability(connection)
  systemClock.after(0, () => void runSafely(() => suitability.examine()))
  const { tools, ...toolHooks } = toolHooksOf(connection, app, suitability, runSafely)
  return {
    // OpenCode reads this at the first model request. By then it is known whether the tools work.
    get tool() {
      return suitability.refusal === undefined ? tools : {}
    },
    ...toolHooks,
    ...requestHooks(connection, app, { options, native }, runSafely),
    config: async (config) =>
      runSafely(() => {
        opencode.config = config as typeof opencode.config
        askFor(
          app.manager.features.flatMap(({ permissions = [] }) => permissions),
          config as { permission?: unknown },
        )
        for (const each of threads) each.configure(config)
      }),
    "chat.message": async ({ sessionID }, { message, parts }) =>
      runSafely(async () => {
        if (opencode.isPersons(sessionID, message.id)) manager.parts.presence.wrote()
        native?.written(message, parts as readonly Part[])
        for (const each of threads) await each.conversations.written(sessionID, message.id)
      }),
    event: async ({ event }) =>
      runSafely(() => {
        peerOf(directory)?.handleEvent(event as RawEvent, directory)
        handleEvent(event as RawEvent, directory)
      }),
    dispose: async () => {
      await runSafely(() => app.stop())
      await runSafely(() => connection.leave())
      // From here on another instance may take the tasks over, even if the following steps fail.
      connection.unregister()
      await runSafely(() => app.closePage())
    },
  }
}

function eventRouter({ opencode }: OpencodeConnection, { manager }: App, native: NativeTask | undefined) {
  const events = new EventReader()
  return (event: RawEvent, folder: string): void => {
    opencode.handleEvent(event, folder)
    const converted: OpencodeEvent | undefined = events.read(event, Date.now())
    if (converted?.type === "idle") native?.idle(converted.sessionID)
    if (converted) manager.handle(converted)
  }
}

/** Hooks for the tools: they change the definitions and decide which tools a model may call. */
function toolHooksOf(connection: OpencodeConnection, app: App, suitability: Suitability, runSafely: HookRunner) {
  const { opencode, directory } = connection
  const own = toolsHere(app.tools, directory)
  const all = [own, ...app.threads.map((each) => each.tools)]
  const tools = Object.fromEntries(
    all.flatMap(Object.entries<Tool>).map(([name, tool]) => [
      name,
      toOpencodeTool(tool, {
        refusal: () => suitability.refusal,
        picksAgents: (agent, sessionID) => opencode.picksAgents(agent, sessionID),
      }),
    ]),
  )
  return {
    tools,
    // This hook runs at the first model request, when a screen for the warnings is available.
    "tool.definition": async ({ toolID }, output) =>
      runSafely(async () => {
        suitability.show()
        if (Object.hasOwn(tools, toolID)) shorten(output)
        const tool = toolID === TASK_TOOL ? own[toolID] : undefined
        if (tool) output.description = withAgents(tool.description, await opencode.agents())
      }),
    // A hook refuses a tool call in OpenCode by throwing an error.
    "tool.execute.before": async ({ sessionID, tool }) => {
      const refusal = connection.requestHandler(app.manager).refusesTools(sessionID, tool)
      if (refusal) throw new Error(refusal)
    },
  } satisfies Hooks & { tools: unknown }
}

/** The plugin's tools in this folder. In a task's own folder, the instance that owns the task answers the calls. */
const toolsHere = (own: Readonly<Record<string, Tool>>, directory: string): Record<string, Tool> =>
  Object.fromEntries(
    Object.entries(own).map(([name, tool]): [string, Tool] => [
      name,
      { ...tool, execute: (args, context) => (peerOf(directory)?.tools[name] ?? tool).execute(args, context) },
    ]),
  )

/** Argument of the hook `tool.definition`. OpenCode's type for it lacks the schema. */
export type Definition = { description: string; jsonSchema?: unknown }

const known = new WeakMap<object, object>()

/**
 * Removes parts of a tool's schema that models do not need, because every request pays for them: the schema dialect,
 * and empty property lists of inner objects.
 */
export function shorten(definition: Definition): void {
  const { jsonSchema } = definition
  if (!isPlainObject(jsonSchema)) return
  const short = known.get(jsonSchema) ?? shortOf(jsonSchema)
  known.set(jsonSchema, short)
  definition.jsonSchema = short
}

/** Shortens a schema. The outermost property list stays, because some providers require it. */
function shortOf({ $schema: _language, properties, ...rest }: Record<string, unknown>): object {
  return { ...rest, properties: isPlainObject(properties) ? mapped(properties, inner) : {} }
}

function inner(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(inner)
  if (!isPlainObject(schema)) return schema
  const { properties, ...rest } = schema
  const isEmpty = isPlainObject(properties) && Object.keys(properties).length === 0
  return mapped(isEmpty ? rest : schema, inner)
}

const mapped = (object: Record<string, unknown>, change: (value: unknown) => unknown): Record<string, unknown> =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]))

/** Separators of shell commands, quoted ones too: splitting too often is safe, too seldom is not. */
const BORDERS = /&&|\|\||[;&|\n()`{}]|\$\(|<\(|>\(/

/** Commands that a shell line may run, without duplicates. A line of several commands is itself the first entry. */
export function commandsIn(line: string): string[] {
  const parts = line.split(BORDERS).map((part) => part.trim())
  return [...new Set([line.trim(), ...parts.filter((part) => part !== "")])]
}

/**
 * Sets permissions of features to "ask", because OpenCode allows whatever no rule names. The user's own rules come later
 * and win.
 */
function askFor(permissions: readonly string[], config: { permission?: unknown }): void {
  const { permission = {} } = config
  const theirs = typeof permission === "string" ? { "*": permission } : (permission as object)
  const asks = permissions.map((name) => [name, "ask"])
  config.permission = { ...Object.fromEntries(asks), ...theirs }
}

type ToolSurroundings = {
  /** Why no tool works with this OpenCode; undefined where the tools work. */
  readonly refusal: () => string | undefined
  /** Whether permission rules allow or deny OpenCode's `task` tool for single agents. */
  readonly picksAgents: (agent: string, sessionID: string) => Promise<boolean>
}

/**
 * Converts a tool for OpenCode. A launch asks for this plugin's permission with the agent's name, and for OpenCode's
 * `task` permission only where rules name single agents: users who replace the tool `task` by this plugin deny it
 * altogether.
 */
export function toOpencodeTool(tool: Tool, { refusal, picksAgents }: ToolSurroundings): ToolDefinition {
  return {
    description: tool.description,
    args: tool.args,
    execute: async (args: unknown, { sessionID, messageID, agent, abort, ask }: ToolContext) => {
      const reason = refusal()
      if (reason) throw new CallError(reason)
      return tool.execute(args, {
        sessionID,
        messageID,
        agent,
        abort,
        authorize: async (wanted, description) => {
          const question = { patterns: [wanted], always: ["*"], metadata: { description, subagent_type: wanted } }
          await ask({ permission: TASK_TOOL, ...question })
          if (await picksAgents(agent, sessionID)) await ask({ permission: LAUNCHING_TOOL, ...question })
        },
        permit: (what) => ask(questionFor(what)),
      })
    },
  }
}

/**
 * Asks for permissions as OpenCode's own tools do. A command is asked for as a whole and in its parts, so that a user
 * who allows one part allows no other part.
 */
function questionFor(what: Permit): Parameters<ToolContext["ask"]>[0] {
  if (what.kind === "run") {
    const { command } = what
    return { permission: "bash", patterns: commandsIn(command), always: [command], metadata: { command } }
  }
  if (what.kind === "read") return { permission: "read", patterns: [what.file], always: ["*"], metadata: {} }
  if (what.kind === "own") return { permission: what.permission, patterns: [what.what], always: ["*"], metadata: {} }
  const patterns = what.files.length > 0 ? [...what.files] : ["*"]
  return { permission: "edit", patterns, always: ["*"], metadata: { files: patterns } }
}
