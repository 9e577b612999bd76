import { z } from "zod"
import { messageOf } from "../../core/errors.ts"
import type { Feature, FeatureBody, Runtime } from "../../core/feature.ts"
import { AUTOMATIC } from "../../core/run/prompts.ts"
import type { Reason, Schema } from "../../core/task.ts"
import { systemClock } from "../../lib/clock.ts"
import { startWorker } from "../../lib/thread.ts"
import { count, fewer, option, text, type ValuesOf } from "../../options/spec.ts"
import type { ValidationResult } from "./check-value.ts"

/** Finds a valid value in a text. */
export type Validate = (schema: Schema, text: string) => Promise<ValidationResult>

/** Judges whether an answer holds a value that is valid against the task's schema, and stores the value in a file. */
export const validator = (runtime: Runtime, validate: Validate): FeatureBody => ({
  readsTextAlone: true,
  async verify({ id, member, run: { schema } }, { text, earlier: { value }, signal }) {
    if (!schema) return undefined
    const found = await validate(schema, text).catch(unchecked)
    if (signal.aborted) return undefined
    // After a valid answer the agent was asked again by another verifier, not for a valid value.
    const asked = value?.valid ? value.asked : (value?.asked ?? 0) + 1
    const longest = Math.max(value?.refused ?? 0, found.valid ? 0 : text.length)
    const counted = { asked, ...(longest > 0 && { refused: longest }) }
    if (!found.valid)
      return {
        ok: false,
        finding: { value: { valid: false, ...counted } },
        again: asked <= runtime.options.schemaRetries,
        ask: { kind: "schema", text: invalidText(found.problems) },
        failure: invalidReason(asked, found.problems),
      }
    // Members store no file: a group of tries stores only its winner's value, and a map stores its items' values in
    // rows.
    const file = member ? undefined : await runtime.keep(id, text.slice(found.at, found.at + found.length))
    return { ok: true, finding: { value: { ...found, ...(file !== undefined && { file }), ...counted } } }
  },
})

const unchecked = (error: unknown): ValidationResult => ({
  valid: false,
  problems: [`it could not be checked: ${messageOf(error)}`],
})

const invalidText = (problems: readonly string[]): string =>
  `${AUTOMATIC} Your answer is not valid: ${problems.join("; ")}. Answer again, with the JSON alone.`

const MOST_TOLD = 3

/** Reason for the end of a run that gave no valid answer in any attempt. */
export function invalidReason(asked: number, problems: readonly string[]): Reason {
  const times = asked === 1 ? "asked once" : `asked ${asked} times; the last time`
  const text = `Its answer did not match the schema (${times}: ${problems.slice(0, MOST_TOLD).join("; ")}).`
  return { code: "schema", text }
}

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

/** Code of the worker thread, built next to the plugin. */
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
          .describe("JSON Schema of the answer, or its .json file. A resume needs it again."),
      read: async (given, { folder, mayRead }) =>
        (await import("./given.ts")).schemaGiven(given as Schema | string, folder, mayRead),
      resumes: true,
      asGiven: true,
    },
  },
}
