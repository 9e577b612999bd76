import type { Feature } from "../../core/feature.ts"
import { projectWins } from "../../options/rules.ts"
import { milliseconds, option, type ValuesOf } from "../../options/spec.ts"
import { CacheWarmUp } from "./warm-up.ts"

const options = {
  cacheHold: option(
    milliseconds,
    5000,
    "How long tasks with a common beginning wait for the first of them, so that the provider's cache is warm. 0: not at all.",
    projectWins,
  ),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

export const sharedCache: Feature = {
  name: "shared-cache",
  options,
  body: (runtime) => new CacheWarmUp(runtime),
}
