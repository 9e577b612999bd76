import { z } from "zod"
import type { Feature } from "../../core/feature.ts"
import { count, group, option, projectWins, stricter, type ValuesOf } from "../../options/spec.ts"
import { forkBody } from "./body.ts"

const zeroOrFrom = (least: number) =>
  count().refine((value) => value === 0 || value >= least, `must be 0 or at least ${least}`)

const options = {
  fork: group("What a forked task takes over from its parent.", {
    maxTokens: option(
      () => zeroOrFrom(1000),
      100_000,
      "Most tokens that a trimmed fork begins with, preamble included, counted by the tokenizer o200k; never more than 60 % of its model's context.",
      stricter,
    ),
    maxToolResultChars: option(
      () => zeroOrFrom(100),
      1500,
      "Longest tool result in a trimmed fork's history; agents' answers stay whole up to 20,000 characters.",
      projectWins,
    ),
    whole: option(
      () => z.enum(["asked", "cheaper", "never"]),
      "asked",
      'Forks that begin with their parent\'s own bytes, which the provider\'s cache has: where they are "asked" for, wherever they are "cheaper", or "never".',
      projectWins,
    ),
  }),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

const TRIMMED = "true: it has this conversation as its past, long tool results cut."
const WHOLE =
  '"whole": uncut, for your own agent and model (leave both out); read from the cache, so cheaper for a few steps.'

export const forks: Feature = {
  name: "forks",
  options,
  arguments: {
    fork: {
      schema: ({ fork }) =>
        fork.whole === "never"
          ? z.boolean().optional().describe(TRIMMED)
          : z
              .union([z.boolean(), z.enum(["whole"])], 'true, false or "whole"')
              .optional()
              .describe(`${TRIMMED} ${WHOLE}`),
      excludes: {
        resume: "a resumed task keeps its own history, a fork starts from yours",
        tell: "a running task is told, a fork is a new one",
      },
    },
  },
  refuses: (given, { fork }) =>
    given.fork === "whole" && fork.whole === "never"
      ? 'Argument `fork`: "whole" is turned off (option fork.whole is "never"). Use `fork: true`.'
      : undefined,
  body: (runtime) =>
    forkBody(runtime, async (prefixes) => (await import("./opencode/forks.ts")).openForks(runtime, prefixes)),
}
