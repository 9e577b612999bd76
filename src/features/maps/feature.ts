import { z } from "zod"
import type { Feature, GroupKind } from "../../core/feature.ts"
import { count, group, option, stricter, text, type ValuesOf } from "../../options/spec.ts"
import type { GroupRequest } from "../../runtime/launch/request.ts"
import { nextItems } from "./next.ts"
import { type ItemsPlan, type ItemsResult, itemTexts, planSchema, resultSchema } from "./results.ts"

const options = {
  each: group("One prompt for many items.", {
    ask: option(count, 25, "With more items than this, the user is asked before. 0: never.", stricter),
    most: option(() => z.int().min(1).max(10_000), 1000, "Most items of one task.", stricter),
  }),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

/** Permission for more items than the option `each.ask`. */
const MANY_ITEMS = "superagents_each"
/** Most items of a map whose sessions lie directly below the caller's session. */
const MOST_NEAR = 25

const items: GroupKind<ItemsPlan, ItemsResult> = {
  kind: "each",
  plan: planSchema,
  result: resultSchema,
  noun: { one: "item", a: "an item", many: "items" },
  ends: ["valid", "failed"],
  rows: ({ file }) => file,
  next: nextItems,
  member: ({ group: { total, place }, model }, nth) => ({
    name: `item ${nth + 1} of ${total}`,
    ...(model && { model }),
    ...(place && { place }),
    isBelowGroup: total > MOST_NEAR,
  }),
  whyNothingRemains({ id, outcome }) {
    const result = outcome?.group as ItemsResult | undefined
    if (!result || result.valid < result.total) return undefined
    return `Every item of task ${id} is valid: there is nothing to go on with. superagents_output(task_id="${id}") shows the rows; for other items or another prompt, launch a new task.`
  },
  texts: itemTexts,
  work: async () => (await import("./items.ts")).itemsWork,
}

export const maps: Feature = {
  name: "maps",
  permissions: [MANY_ITEMS],
  options,
  group: items,
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
      isGroup: true,
      async read(given, { folder, prompt, options: { each }, mayRead }): Promise<GroupRequest> {
        const { itemsGiven, permitItems } = await import("./items.ts")
        const request = { folder, most: each.most, prompt }
        const all = await itemsGiven(given as readonly unknown[] | string, request, mayRead)
        const asks = each.ask > 0 && all.length > each.ask
        return {
          plan: (common) => ({ group: { kind: "each", prompt, total: all.length, ...common } }),
          state: { items: all },
          ...(asks && { permit: (call) => permitItems({ permission: MANY_ITEMS, prompt, items: all }, call) }),
        }
      },
      excludes: { fork: "each item starts fresh" },
    },
  },
}
