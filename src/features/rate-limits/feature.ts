import { z } from "zod"
import type { Feature, Runtime } from "../../core/feature.ts"
import type { Task } from "../../core/task.ts"
import { type MergeRule, projectWins, stricter } from "../../options/rules.ts"
import { milliseconds, option, type ValuesOf } from "../../options/spec.ts"
import { Breakers } from "./breakers.ts"
import { createRefusalReader, type RefusalReader, type SessionLookup } from "./opencode/answers.ts"

/** "exact" wraps a function of the host's: where the user has set another value, a project cannot turn it on. */
const exactByUser: MergeRule = {
  meet: (own, theirs) => (theirs === "exact" ? own : theirs),
  turnsOn: (own, theirs, name) => (own === undefined && theirs === "exact" ? `${name}: exact` : undefined),
}

const options = {
  gate: option(
    () => z.union([z.boolean(), z.literal("exact")], 'must be true, false or "exact"'),
    true,
    'Park tasks whose provider is at its limit, and let them go on when it opens. "exact": reads the headers and bodies of refusals as well, for which OpenCode\'s fetch is wrapped. false: they end as failed.',
    exactByUser,
  ),
  fallbackModels: option(
    () => z.record(z.string(), z.array(z.string().regex(/^[^/\s]+\/\S+$/, "must be a model, as provider/model"))),
    {},
    'Models that a task goes on with while its own is at its limit for over a minute, in this order: by agent, else by provider/model. {"general": ["openai/gpt-5-mini"]}',
    projectWins,
  ),
  maxParked: option(
    milliseconds,
    86_400_000,
    "How long a task may be parked in all before it ends as failed.",
    stricter,
  ),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

/**
 * Sessions at work that may send requests under the cache key of `named`: itself and forks sharing it. A session
 * without a parent shares none.
 */
const askingIn =
  ({ store }: Runtime): SessionLookup =>
  (named, parentID) => {
    const isNamed = ({ sessionID, fork }: Task) =>
      sessionID === named || (parentID !== undefined && fork?.rides === named)
    return store.active().flatMap((task) => (isNamed(task) && !store.isForeign(task.id) ? [task.sessionID] : []))
  }

/** Reads refusals until the plugin stops. */
function refusalsFor(runtime: Runtime): RefusalReader["refusal"] {
  const { refusal, close } = createRefusalReader(askingIn(runtime))
  runtime.stopped.addEventListener("abort", close)
  return refusal
}

export const rateLimits: Feature = {
  name: "rate-limits",
  options,
  body: (runtime) => new Breakers(runtime, runtime.options.gate === "exact" ? refusalsFor(runtime) : () => undefined),
}
