import { thereAre } from "../../core/errors.ts"
import { modelKey } from "../../core/limits.ts"
import { type AgentInfo, isListed } from "../../core/ports.ts"
import type { Model } from "../../core/task.ts"
import { PlaceError } from "../../runtime/places/place.ts"

export type Wanted = {
  readonly agent: string
  readonly model?: Model
  /** The launching call named the model: use no other. */
  readonly isModelNamed?: boolean
}

/** Agents and models of a host; `spare`: the option's substitute for a missing model, or "". */
export type Offered = {
  readonly name: string
  readonly agents: readonly Pick<AgentInfo, "name" | "model" | "mode" | "hidden">[]
  readonly models: readonly string[]
  readonly spare: string
}

/**
 * Model for a task on a host; undefined for the agent's own. Throws where the host lacks the agent or every usable
 * model.
 */
export function fitting({ agent, model, isModelNamed }: Wanted, { name, agents, models, spare }: Offered) {
  const found = agents.find((each) => each.name === agent)
  if (!found) {
    const names = agents.filter(isListed).map((each) => each.name)
    throw new PlaceError(`${name} has no agent "${agent}". ${thereAre(names, 10)}`, "place")
  }
  if (!model || models.includes(modelKey(model))) return model
  if (found.model && !isModelNamed) return undefined
  if (!isModelNamed && models.includes(spare)) {
    const slash = spare.indexOf("/")
    return { provider: spare.slice(0, slash), id: spare.slice(slash + 1) }
  }
  throw new PlaceError(`${name} has no model ${modelKey(model)}. ${thereAre(models, 10)}`, "place")
}
