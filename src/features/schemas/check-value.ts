import { type Schema as JsonSchema, type OutputUnit, Validator } from "@cfworker/json-schema"
import type { Schema } from "../../core/task.ts"
import type { ValidationResult } from "../../core/value.ts"
import { oneLine } from "../../lib/text.ts"
import { extract } from "./extract.ts"

/** Most problems reported. */
const MOST_PROBLEMS = 10
const MOST_PLACE_CHARS = 200
const MOST_ERROR_CHARS = 300
/** Keywords whose errors repeat those of nested ones. */
const APPLICATORS = new Set([
  "properties",
  "items",
  "prefixItems",
  "additionalItems",
  "additionalProperties",
  "patternProperties",
  "allOf",
  "$ref",
  "then",
  "else",
  "dependentSchemas",
])

/** Better texts for the validator's bare or wrong ones. */
const REWORDED: Readonly<Record<string, readonly [RegExp, string]>> = {
  minimum: [/^\S+/, "The number"],
  maximum: [/^\S+/, "The number"],
  exclusiveMinimum: [/^\S+ is less than/, "The number is not greater than"],
  exclusiveMaximum: [/^\S+/, "The number"],
  multipleOf: [/^\S+/, "The number"],
  maxProperties: [/does not have at least/, "has more than"],
}

/** Finds and validates a value in an answer. May take long and much stack: run it in a worker thread. */
export function checkValue(schema: Schema, text: string): ValidationResult {
  const found = extract(text)
  if ("problem" in found) return { valid: false, problems: [found.problem] }
  const validator = new Validator(schema as JsonSchema, "2020-12", false)
  const { valid, errors } = validator.validate(found.value)
  return valid ? { valid, at: found.at, length: found.length } : { valid: false, problems: problemsOf(errors) }
}

/** One line for each path, with the most specific error; names in a value may be long. */
function problemsOf(errors: readonly OutputUnit[]): readonly string[] {
  const inner = errors.filter(({ keyword }) => !APPLICATORS.has(keyword))
  const byPlace = new Map<string, string>()
  for (const { instanceLocation, keyword, error } of inner.length > 0 ? inner : errors) {
    const place = oneLine(instanceLocation.slice(1) || "/", MOST_PLACE_CHARS)
    const [said, instead] = REWORDED[keyword] ?? ["", ""]
    if (!byPlace.has(place)) byPlace.set(place, oneLine(error.replace(said, instead), MOST_ERROR_CHARS))
    if (byPlace.size === MOST_PROBLEMS) break
  }
  return [...byPlace].map(([place, error]) => `at ${place}: ${error}`)
}
