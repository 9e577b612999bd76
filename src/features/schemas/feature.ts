import { z } from "zod"
import type { Feature } from "../../core/feature.ts"
import { fewer } from "../../options/rules.ts"
import { count, option, text, type ValuesOf } from "../../options/spec.ts"

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

export const schemas: Feature = {
  name: "schemas",
  options,
  arguments: {
    schema: {
      schema: () =>
        z
          .union([z.looseObject({}), text(1000)])
          .optional()
          .describe("JSON Schema of the answer, or its .json file."),
      resumes: true,
      asGiven: true,
    },
  },
}
