import { z } from "zod"
import type { Feature } from "../../core/feature.ts"
import { count, group, option, stricter, text, type ValuesOf } from "../../options/spec.ts"
import type { GroupRequest } from "../../runtime/launch/request.ts"
import { nextItems } from "./next.ts"

const options = {
  each: group("One prompt for many items.", {
    ask: option(count, 25, "With more items than this, the user is asked before. 0: never.", stricter),
    most: option(() => z.int().min(1).max(10_000), 1000, "Most items of one task.", stricter),
  }),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

/** Most items of a map whose sessions lie directly below the caller's session. */
const MOST_NEAR = 25

export const maps: Feature = {
  name: "maps",
  options,
  group: ({ group: plan, model }) =>
    plan?.kind === "each"
      ? {
          member: (nth) => ({
            name: `item ${nth + 1} of ${plan.total}`,
            ...(model && { model }),
            ...(plan.place && { place: plan.place }),
            isBelowGroup: plan.total > MOST_NEAR,
          }),
          next: (members, state) => nextItems(plan, members, state),
          prompt: async (text, item) => (await import("./items.ts")).fillPrompt(text, item),
        }
      : undefined,
  arguments: {
    each: {
      schema: () =>
        z
          .union([z.array(z.union([z.string(), z.number(), z.looseObject({})])), text(1000)])
          .optional()
          .describe(
            "Items, or a file of them (.json, .jsonl, lines): one run of `prompt` each, with {{item}} or {{item.field}}.",
          ),
      asGiven: true,
      async read(given, { folder, prompt, options: { each }, mayRead }): Promise<GroupRequest> {
        const { splitPrompts: apart, itemsGiven } = await import("./items.ts")
        const request = { folder, most: each.most, prompt }
        const all = await itemsGiven(given as readonly unknown[] | string, request, mayRead)
        return {
          plan: (common) => ({ group: { kind: "each", prompt, total: all.length, ...common } }),
          items: { all, ask: each.ask > 0 && all.length > each.ask, texts: () => apart(prompt, all) },
        }
      },
      excludes: { fork: "each item starts fresh" },
    },
  },
}
