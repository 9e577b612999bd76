import { z } from "zod"
import type { Feature } from "../../core/feature.ts"
import type { TriesPlan } from "../../core/group.ts"
import { modelKey } from "../../core/limits.ts"
import type { Model } from "../../core/task.ts"
import { text } from "../../options/spec.ts"
import type { GroupRequest } from "../../runtime/launch/request.ts"
import { HERE } from "../../runtime/places/here.ts"
import { withDigest } from "./digest.ts"
import { nextTries } from "./next.ts"

const MOST_TRIES = 5

/** Model of a ladder's step. */
function rungOf({ ladder }: TriesPlan, nth: number): Model | undefined {
  const rung = ladder?.[nth]
  if (rung === undefined) return undefined
  const slash = rung.indexOf("/")
  return { provider: rung.slice(0, slash), id: rung.slice(slash + 1) }
}

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
      read: async (given, { prompt }): Promise<GroupRequest> => {
        const ladder = Array.isArray(given) ? (given as readonly string[]) : undefined
        const own = ladder ? { count: ladder.length, ladder } : { count: given as number }
        return {
          plan: ({ timeout, place }) => ({
            group: { kind: "tries", prompt, timeout, ...own },
            ...(place && { place }),
          }),
        }
      },
      excludes: { each: "each item is done once", fork: "each try starts from the same files and nothing else" },
    },
  },
  group: (task) => {
    const { id, group: plan, place } = task
    if (plan?.kind !== "tries") return undefined
    return {
      member: (nth) => {
        const model = rungOf(plan, nth) ?? task.model
        return {
          name: `try ${nth + 1} of ${plan.count}${model ? `, ${modelKey(model)}` : ""}`,
          ...(model && { model }),
          ...(place && { place: { ...place, merge: false } }),
          sharesFiles: true,
        }
      },
      next: (members, { coming, generation }) => nextTries(plan, members, coming, generation),
      prompt: (text, _item, earlier) => (plan.ladder ? withDigest(text, id, earlier()) : text),
    }
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
