import { fileURLToPath } from "node:url"
import {
  type CallOptions,
  callTools,
  eventually,
  messages,
  newsOf,
  openSession,
  type ToolOutcome,
  unwrap,
} from "./drive.ts"
import type { ModelRequest, ScriptedModel } from "./model.ts"
import { type Opencode, type OpencodeOptions, type Plugin, startOpencode } from "./opencode.ts"

/** The package's folder, as a user would name it in opencode.json. */
export const PACKAGE = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "")

export type TaskArguments = {
  description?: string
  prompt: string
  agent?: string
  model?: string
  batch?: string
  timeout?: number
  max_cost?: number
  after?: readonly string[] | string
  place?: "here" | "worktree"
  fork?: boolean | "whole"
  schema?: object | string
}

export type Launched = {
  /** The task's id, from the text that the model reads. */
  id: string
  /** The child's session. */
  child: string
  output: string
  durationMs: number
}

export type Notification = {
  id: string
  visible: string
  hidden: string
  agent: string
  model: { providerID: string; modelID: string; variant?: string }
}

/** An OpenCode with the built plugin, under these options. Fails where OpenCode has not taken the plugin. */
export const startPlugged = async (
  model: ScriptedModel,
  options: Record<string, unknown> = {},
  hostOptions: Omit<OpencodeOptions, "model" | "plugin" | "usersPlugin"> & { plugin?: string; others?: Plugin[] } = {},
) => {
  const { plugin = PACKAGE, others = [], ...rest } = hostOptions
  const entry: Plugin = [plugin, options]
  // What only its user may set is not believed of a project.
  const where = options.hosts ? { usersPlugin: [entry], plugin: others } : { plugin: [entry, ...others] }
  const opencode = await startOpencode({ model, ...where, ...rest })
  const ids = await unwrap(opencode.client.tool.ids())
  if (ids.includes("superagents_task") || options.enabled === false) return opencode
  const logs = opencode.logs()
  await opencode.stop()
  throw new Error(`OpenCode did not load ${plugin}\n${logs}`)
}

const TASK_ID = /\bbg_[a-z0-9]{8}\b/

export const launchedFrom = (outcome: ToolOutcome): Launched => {
  const { output, error, metadata, durationMs } = outcome
  const id = TASK_ID.exec(output ?? "")?.[0]
  if (!id || !output) throw new Error(`not launched: ${error ?? output}`)
  return { id, child: String(metadata?.sessionId), output, durationMs }
}

/** Has the parent's model launch these tasks, all in one message; they go to the agent "general" unless they say. */
export const launchAll = async (
  opencode: Opencode,
  model: ScriptedModel,
  sessionID: string,
  tasks: readonly TaskArguments[],
  options?: CallOptions,
) => {
  const calls = tasks.map((task) => {
    const args = { description: `do ${task.prompt}`.slice(0, 200), agent: "general", ...task }
    return { name: "superagents_task", args }
  })
  return (await callTools(opencode, model, sessionID, calls, options)).map(launchedFrom)
}

/** Has the parent's model launch one task. */
export const launch = async (
  opencode: Opencode,
  model: ScriptedModel,
  sessionID: string,
  task: TaskArguments,
  options?: CallOptions,
): Promise<Launched> => {
  const [launched] = await launchAll(opencode, model, sessionID, [task], options)
  if (!launched) throw new Error("nothing was launched")
  return launched
}

/** The session's messages of two text parts, of which the user sees only the first. */
export const notifications = async (opencode: Opencode, sessionID: string): Promise<Notification[]> => {
  const found: Notification[] = []
  for (const { info, parts } of await messages(opencode, sessionID)) {
    if (info.role !== "user" || parts.length !== 2) continue
    const [first, second] = parts
    if (first?.type !== "text" || second?.type !== "text" || first.synthetic || !second.synthetic) continue
    const { id, agent, model } = info
    found.push({ id, visible: first.text, hidden: second.text, agent, model })
  }
  return found
}

/** News of a hidden part in this session alone. */
const partsIn = (opencode: Opencode, sessionID: string) =>
  newsOf(opencode, ({ type, properties }) => {
    if (type !== "message.part.updated" || properties.part.sessionID !== sessionID) return false
    return properties.part.type === "text" && properties.part.synthetic === true
  })

/** Resolves when the session has at least so many notifications. */
export const notified = (opencode: Opencode, sessionID: string, count = 1, timeout = 30_000) =>
  eventually(
    async () => {
      const found = await notifications(opencode, sessionID)
      return found.length >= count && found
    },
    {
      timeout,
      news: partsIn(opencode, sessionID),
      message: () => `${count} notifications in ${sessionID}\n${opencode.logs()}`,
    },
  )

export const isNotification = (text: string) => text.includes("\nTask Progress: ")

/** The requests with which a notification started the parent's model, or was read by it at a further step. */
export const wakes = (model: ScriptedModel, sessionID: string): ModelRequest[] =>
  model.requests.filter(
    (request) => request.sessionID === sessionID && request.sinceUser.length === 0 && isNotification(request.lastUser),
  )

/** A door that scripts wait at until the test opens it. */
export const gate = () => {
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

/** How many sessions OpenCode has, of any kind. */
export const countSessions = async (opencode: Opencode) =>
  (await unwrap(opencode.client.session.list({ limit: 10_000 }))).length

/**
 * Has a whole task run and be told of in a session of its own. For tests that something does not happen: what was to
 * come in another session has come meanwhile.
 */
export const meanwhile = async (opencode: Opencode, model: ScriptedModel) => {
  const session = await openSession(opencode)
  await launch(opencode, model, session, { prompt: "and now for something completely different" })
  await notified(opencode, session)
}
