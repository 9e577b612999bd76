import { isDeepStrictEqual } from "node:util"
import { CallError } from "../../core/errors.ts"
import type { AgentInfo, Persona, Rule } from "../../core/ports.ts"
import { isBriefed } from "../../core/task.ts"
import type { WholeRequest } from "../../features/forks/fork.ts"
import type { Parts } from "../parts.ts"
import { HERE } from "../places/here.ts"
import { kindOf } from "../places/kinds.ts"
import type { PlaceKind } from "../places/place.ts"
import { type Caller, chooseModel, defaultsOf, findAgent, modelNamed, modelOf } from "./checks.ts"
import type { LaunchRequest } from "./request.ts"

/** The agent and model of a task that does not begin with its parent's own bytes. Throws a `CallError` for an unknown one. */
export async function chosenBy(
  parts: Parts,
  kinds: readonly PlaceKind[],
  { agent: name = "", model, place }: LaunchRequest,
  agents: readonly AgentInfo[],
  persona: Persona | undefined,
): Promise<Persona> {
  // On another machine are other agents and models: that is looked at there.
  if (place !== undefined && kindOf(kinds, place).outlives) {
    const own = agents.find((each) => each.name === name)?.model ?? persona?.model
    return { agent: name, model: model === undefined ? own : modelNamed(parts, model) }
  }
  const agent = findAgent(name, agents)
  if (model) return { agent: agent.name, model: await chooseModel(parts, model) }
  const { model: set } = defaultsOf(parts.options, agent.name)
  const own = set === undefined ? agent.model : await modelOf(parts, set, `option agents.${agent.name}.model`)
  return { agent: agent.name, model: own ?? persona?.model }
}

/** Throws a `CallError` for a model of a ladder that is not there. On another machine are others: that is looked at there. */
export async function refuseUnknownRungs(
  parts: Parts,
  kinds: readonly PlaceKind[],
  { tries, place }: LaunchRequest,
): Promise<void> {
  if (typeof tries !== "object") return
  const isElsewhere = place !== undefined && kindOf(kinds, place).outlives === true
  for (const rung of tries) await (isElsewhere ? modelNamed(parts, rung) : chooseModel(parts, rung))
}

/** Who is to do it, and on whose behalf. */
type Chosen = Persona & {
  readonly persona?: Persona
  readonly denied: readonly string[]
  readonly rules: readonly Rule[]
}

/** How a fork begins with its parent's own bytes; undefined where it is not to. */
export function wholeOf(
  { store, options }: Parts,
  { fork, place }: LaunchRequest,
  { sessionID }: Caller,
  { agent, model, persona, denied, rules }: Chosen,
): WholeRequest | undefined {
  const isOwn = agent === persona?.agent && isDeepStrictEqual({ ...model }, { ...persona.model })
  const isChoice = fork === true && options.fork.whole === "cheaper" && isOwn && place === undefined
  if (fork !== "whole" && !isChoice) return undefined
  const task = store.bySession(sessionID)
  return {
    choice: fork === "whole" ? "asked" : "cheaper",
    rules,
    refused: denied,
    rides: task?.fork?.rides ?? sessionID,
    briefed: task !== undefined && isBriefed(task),
  }
}

/** The name of a place of its own, if it is to have one. Throws a `CallError` where there is none of that name. */
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
