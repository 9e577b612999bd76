import { CallError } from "../../core/errors.ts"
import type { AgentInfo, Persona } from "../../core/ports.ts"
import type { Parts } from "../parts.ts"
import { HERE } from "../places/here.ts"
import { kindOf, type PlaceKind } from "../places/place.ts"
import { chooseModel, defaultsOf, findAgent, findModel, modelNamed } from "./checks.ts"
import type { LaunchRequest } from "./request.ts"

/** Agent and model of a task that is not a whole fork. Throws a `CallError` for an unknown one. */
export async function chosenBy(
  parts: Parts,
  kinds: readonly PlaceKind[],
  { agent: name = "", model, place }: LaunchRequest,
  agents: readonly AgentInfo[],
  persona: Persona | undefined,
): Promise<Persona> {
  // A remote place checks its own agents and models.
  if (place !== undefined && kindOf(kinds, place).outlives) {
    const own = agents.find((each) => each.name === name)?.model ?? persona?.model
    return { agent: name, model: model === undefined ? own : modelNamed(parts, model) }
  }
  const agent = findAgent(name, agents)
  if (model) return { agent: agent.name, model: await chooseModel(parts, model) }
  const { model: set } = defaultsOf(parts.options, agent.name)
  const own = set === undefined ? agent.model : await findModel(parts, set, `option agents.${agent.name}.model`)
  return { agent: agent.name, model: own ?? persona?.model }
}

/** Throws a `CallError` for an unknown model of a ladder. A remote place checks its own models. */
export async function refuseUnknownRungs(
  parts: Parts,
  kinds: readonly PlaceKind[],
  { tries, place }: LaunchRequest,
): Promise<void> {
  if (typeof tries !== "object") return
  const isElsewhere = place !== undefined && kindOf(kinds, place).outlives === true
  for (const rung of tries) await (isElsewhere ? modelNamed(parts, rung) : chooseModel(parts, rung))
}

/** Name of the launch's place, undefined for the parent's folder. Throws a `CallError` for an unknown one. */
export function placeIn(
  kinds: readonly PlaceKind[],
  { place: asked, tries, guard, fork }: LaunchRequest,
): string | undefined {
  const place = asked ?? (tries === undefined ? HERE : kinds.find(({ isShared }) => isShared)?.names[0])
  if (place === undefined || place === HERE) return undefined
  const what = tries === undefined ? guard && "guard" : "tries"
  const { isShared, guards } = kindOf(kinds, place)
  if (what && !(what === "guard" ? guards : isShared))
    throw new CallError(`\`${what}\` cannot be had in the place "${place}". Nothing was launched.`)
  if (kindOf(kinds, place).outlives && fork) throw new CallError(NO_FORK)
  return place
}

const NO_FORK =
  "An agent on another machine cannot start from this conversation: leave out `fork`, and say in the prompt what it needs to know."
