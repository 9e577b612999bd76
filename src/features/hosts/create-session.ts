import { CallError, candidatesText } from "../../core/errors.ts"
import { modelKey } from "../../core/limits.ts"
import { type AgentInfo, isListed } from "../../core/ports.ts"
import type { Model } from "../../core/task.ts"
import { QUESTIONS } from "../../runtime/launch/checks.ts"
import { PlaceError } from "../../runtime/places/place.ts"
import type { Contact } from "./connection.ts"
import type { Machine } from "./hosts.ts"
import type { RemoteSessionInfo } from "./remote.ts"
import { type RemoteSession, skewOfIDs } from "./remote-session.ts"

/** Tools denied to remote agents: this plugin's, the board's, and OpenCode's for tasks. */
const NOT_OFFERED = ["superagents_*", "tasks_*", "task"]

type SessionRequest = {
  readonly folder: string
  readonly contact: Contact
  /** An earlier run had a session. */
  readonly again: boolean
}

/**
 * Creates or finds a task's session on its host, with an agent and model that exist there. Throws where that is
 * impossible.
 */
export async function ensureRemoteSession(
  { name, server, settings }: Machine,
  remote: RemoteSession,
  { folder, contact, again }: SessionRequest,
): Promise<RemoteSessionInfo> {
  const { taskID, title, agent, rules = [] } = remote
  const known = await server.sessionOf(folder, taskID)
  if (known) return known
  // A busy server may not list a session in a new folder: ask for the session itself.
  const kept = again ? remote.far?.session : undefined
  if (kept && (await server.lastMessage(kept.id))) return kept
  if (again)
    throw new CallError(
      `The session of task ${taskID} on ${name} no longer exists, so it cannot be resumed. Start a new superagents_task instead.`,
    )
  const [agents, models] = await Promise.all([server.agents(folder), server.models(folder)])
  const model = modelOnHost(remote, { name, agents, models, spare: settings.model })
  remote.model = model
  const refusals = NOT_OFFERED.map((permission) => ({ permission, pattern: "*", action: "deny" as const }))
  return server.createSession({
    folder,
    title,
    agent,
    model,
    // What is allowed in local folders means nothing there.
    rules: [...rules.filter((rule) => rule.action === "deny" || rule.permission === QUESTIONS), ...refusals],
    taskID,
    skew: skewOfIDs(contact.skew),
  })
}

export type AgentAndModel = {
  readonly agent: string
  readonly model?: Model
  /** The launching call named the model: use no other. */
  readonly isModelNamed?: boolean
}

/** Agents and models of a host; `spare`: the option's substitute for a missing model, or "". */
export type HostCapabilities = {
  readonly name: string
  readonly agents: readonly Pick<AgentInfo, "name" | "model" | "mode" | "hidden">[]
  readonly models: readonly string[]
  readonly spare: string
}

/**
 * Model for a task on a host; undefined for the agent's own. Throws where the host lacks the agent or every usable
 * model.
 */
export function modelOnHost(
  { agent, model, isModelNamed }: AgentAndModel,
  { name, agents, models, spare }: HostCapabilities,
) {
  const found = agents.find((each) => each.name === agent)
  if (!found) {
    const names = agents.filter(isListed).map((each) => each.name)
    throw new PlaceError(`${name} has no agent "${agent}". ${candidatesText(names, 10)}`, "place")
  }
  if (!model || models.includes(modelKey(model))) return model
  if (found.model && !isModelNamed) return undefined
  if (!isModelNamed && models.includes(spare)) {
    const slash = spare.indexOf("/")
    return { provider: spare.slice(0, slash), id: spare.slice(slash + 1) }
  }
  throw new PlaceError(`${name} has no model ${modelKey(model)}. ${candidatesText(models, 10)}`, "place")
}
