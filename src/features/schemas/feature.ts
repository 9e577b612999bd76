import { z } from "zod"
import type { Feature } from "../../core/feature.ts"
import type { Schema } from "../../core/task.ts"
import { systemClock } from "../../lib/clock.ts"
import { startWorker } from "../../lib/thread.ts"
import { fewer } from "../../options/rules.ts"
import { count, option, text, type ValuesOf } from "../../options/spec.ts"
import { type Validate, validator } from "./verify.ts"

const options = {
  schemaRetries: option(
    count,
    2,
    "How often an agent is asked again when its answer does not match its schema.",
    fewer,
  ),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

/** Built next to the plugin. */
const THREAD = new URL(import.meta.url.endsWith(".ts") ? "./validator-thread.ts" : "./validator.js", import.meta.url)

const validate: Validate = async (schema, answer) => {
  const { Validation } = await import("./validation.ts")
  return new Validation(systemClock, () => startWorker(THREAD)).check(schema, answer)
}

export const schemas: Feature = {
  name: "schemas",
  options,
  verifies: ({ run }) => run.schema !== undefined,
  body: (runtime) => validator(runtime, validate),
  arguments: {
    schema: {
      schema: () =>
        z
          .union([z.looseObject({}), text(1000)])
          .optional()
          .describe("JSON Schema of the answer, or its .json file."),
      read: async (given, { folder, mayRead }) =>
        (await import("./given.ts")).schemaGiven(given as Schema | string, folder, mayRead),
      resumes: true,
      asGiven: true,
    },
  },
}
