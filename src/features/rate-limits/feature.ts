import { z } from "zod"
import type { Feature } from "../../core/feature.ts"
import { DAY_MS } from "../../lib/format.ts"
import { milliseconds, option, projectWins, stricter, type ValuesOf } from "../../options/spec.ts"
import { Breakers } from "./breakers.ts"

const options = {
  gate: option(
    () => z.boolean(),
    true,
    "Park tasks whose provider is at its limit, overloaded or not reached: they wait, and go on by themselves. false: OpenCode retries for about a minute, then they end as failed.",
    projectWins,
  ),
  fallbackModels: option(
    () => z.record(z.string(), z.array(z.string().regex(/^[^/\s]+\/\S+$/, "must be a model, as provider/model"))),
    {},
    'Models that a task goes on with while its own is at its limit for over a minute, in this order: by agent, else by provider/model. A whole fork keeps its model. {"general": ["openai/gpt-5-mini"]}',
    projectWins,
  ),
  maxParked: option(milliseconds, DAY_MS, "How long a task may be parked in all before it ends as failed.", stricter),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

export const rateLimits: Feature = { name: "rate-limits", options, body: (runtime) => new Breakers(runtime) }
