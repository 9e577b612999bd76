import { z } from "zod"
import type { Feature } from "../../core/feature.ts"
import { fewer, stricter } from "../../options/rules.ts"
import { count, milliseconds, option, text, type ValuesOf } from "../../options/spec.ts"
import { HERE } from "../../runtime/places/here.ts"
import { verify } from "./verify.ts"

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

const MOST_CHECK_CHARS = 2000
const MOST_GLOBS = 20
const MOST_GLOB_CHARS = 200

export const checks: Feature = {
  name: "checks",
  options,
  verifies: ({ run }) => run.check !== undefined,
  body: (runtime) => ({ verify: (task, submission) => verify(runtime, task, submission) }),
  arguments: {
    check: {
      schema: () =>
        text(MOST_CHECK_CHARS)
          .optional()
          .describe("Command that must pass before it counts as completed. A resume needs it again."),
      resumes: true,
    },
    guard: {
      schema: () =>
        z
          .array(text(MOST_GLOB_CHARS))
          .min(1)
          .max(MOST_GLOBS)
          .optional()
          .describe("With `check`: globs of files it may not change."),
    },
  },
  refuses({ guard, check, place, tries }) {
    if (!guard) return undefined
    if (!check && !tries) return "`guard` needs `check`: who changes a guarded file does not pass it."
    if (tries || (place && place !== HERE)) return undefined
    return '`guard` needs `place: "worktree"` (or `tries`): in your own folder nobody can tell who changed a file.'
  },
}
