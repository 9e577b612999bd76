import type { Feature } from "../../core/feature.ts"
import { fewer, stricter } from "../../options/rules.ts"
import { count, milliseconds, option, type ValuesOf } from "../../options/spec.ts"

const options = {
  checkTimeout: option(
    milliseconds,
    600_000,
    "Longest duration of a task's check, in ms. 0: that of its run.",
    stricter,
  ),
  checkRetries: option(
    count,
    2,
    "How often an agent is asked again when its check does not pass, before its task ends as failed.",
    fewer,
  ),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

export const checks: Feature = { name: "checks", options }
