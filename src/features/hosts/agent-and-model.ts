import { thereAre } from "../../core/errors.ts"
import { modelKey } from "../../core/limits.ts"
import { type AgentInfo, isListed } from "../../core/ports.ts"
import type { Model } from "../../core/task.ts"
import { PlaceError } from "../../runtime/places/place.ts"

export type Wanted = {
  readonly agent: string
  readonly model?: Model
  /** The call that launched it named the model: then it is that one or none. */
  readonly isModelNamed?: boolean
}

/** What a host has; `spare`: the model of the options for where it lacks the one that is wanted, or "". */
export type Offered = {
  readonly name: string
  readonly agents: readonly Pick<AgentInfo, "name" | "model" | "mode" | "hidden">[]
  readonly models: readonly string[]
  readonly spare: string
}

/**
 * The model that a task is to have on a host; undefined for the one of its agent there. Throws where the host lacks the
 * agent, or any model for it.
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
