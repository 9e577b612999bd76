import { z } from "zod"
import type { Feature } from "../../core/feature.ts"
import { text } from "../../options/spec.ts"
import { HERE } from "../../runtime/places/here.ts"

const MOST_TRIES = 5

export const tries: Feature = {
  name: "tries",
  arguments: {
    tries: {
      schema: () =>
        z
          .union(
            [z.int().min(2).max(MOST_TRIES), z.array(text(200)).min(2).max(MOST_TRIES)],
            `2 to ${MOST_TRIES}, or a list of 2 to ${MOST_TRIES} models`,
          )
          .optional()
          .describe(
            "How many at once, in worktrees, or models to try in turn, cheap first: the first to pass `check` becomes the task's result, `merge: true` brings it into your files.",
          ),
      excludes: { each: "each item is done once", fork: "each try starts from the same files and nothing else" },
    },
  },
  refuses({ tries: asked, check, place, model }) {
    if (!asked) return undefined
    if (!check) return "`tries` needs `check`: nothing else tells which of them is good."
    if (place === HERE)
      return '`tries` and `place: "here"` do not go together: each try has a worktree of its own. Leave `place` out.'
    return Array.isArray(asked) && model
      ? "`model` and a list of models in `tries` do not go together. Leave `model` out."
      : undefined
  },
}
