import { z } from "zod"
import type { Feature, GroupKind } from "../../core/feature.ts"
import { chosenIn } from "../../core/group.ts"
import { modelKey, modelOfName } from "../../core/limits.ts"
import { text } from "../../options/spec.ts"
import type { GroupRequest } from "../../runtime/launch/request.ts"
import { HERE } from "../../runtime/places/place.ts"
import { nextTries } from "./next.ts"
import { planSchema, resultSchema, type TriesPlan, type TriesResult, tryTexts } from "./results.ts"

const MOST_TRIES = 5

const kind: GroupKind<TriesPlan, TriesResult> = {
  kind: "tries",
  plan: planSchema,
  result: resultSchema,
  noun: { one: "try", a: "a try", many: "tries" },
  picksOne: true,
  ends: ["passed", "did not pass"],
  next: (plan, members, { coming, generation }) => nextTries(plan, members, coming, generation),
  member({ group: plan, model: own, place }, nth) {
    const rung = plan.ladder?.[nth]
    const model = rung === undefined ? own : modelOfName(rung)
    return {
      name: `try ${nth + 1} of ${plan.count}${model ? `, ${modelKey(model)}` : ""}`,
      ...(model && { model }),
      ...(place && { place: { ...place, merge: false } }),
    }
  },
  whyNothingRemains({ id, group, outcome }) {
    const { group: result, reason } = outcome ?? {}
    if (!result || reason?.code !== "check" || chosenIn(group) !== undefined) return undefined
    const { rows } = result as TriesResult
    return `All ${rows.length} tries of task ${id} have failed: there is nothing to go on with. Launch a new task with another prompt, other models or higher limits.`
  },
  texts: tryTexts,
  work: async () => (await import("./work.ts")).triesWork,
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
      isGroup: true,
      read: async (given, { prompt }): Promise<GroupRequest> => {
        const ladder = Array.isArray(given) ? (given as readonly string[]) : undefined
        const own = ladder ? { count: ladder.length, ladder } : { count: given as number }
        return {
          plan: ({ timeout, place }) => ({
            group: { kind: "tries", prompt, timeout, ...own },
            ...(place && { place }),
          }),
          models: ladder,
        }
      },
      excludes: { each: "each item is done once", fork: "each try starts from the same files and nothing else" },
    },
  },
  group: kind,
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
