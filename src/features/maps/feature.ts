import { z } from "zod"
import type { Feature } from "../../core/feature.ts"
import { stricter } from "../../options/rules.ts"
import { count, group, option, text, type ValuesOf } from "../../options/spec.ts"

const options = {
  each: group("One prompt for many items.", {
    ask: option(count, 25, "With more items than this, the user is asked before. 0: never.", stricter),
    most: option(() => z.int().min(1).max(10_000), 1000, "Most items of one task.", stricter),
  }),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

export const maps: Feature = {
  name: "maps",
  options,
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
      excludes: { fork: "each item starts fresh" },
    },
  },
}
