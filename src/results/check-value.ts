import { type Schema as JsonSchema, type OutputUnit, Validator } from "@cfworker/json-schema"
import type { Schema } from "../core/task.ts"
import type { Checked } from "../core/value.ts"
import { oneLine } from "../lib/text.ts"
import { candidatesIn } from "./extract.ts"

/** Places that are told at most. */
const MOST_PROBLEMS = 10
const MOST_PLACE_CHARS = 200
const MOST_ERROR_CHARS = 300
/** What these say is said better by what is below them. */
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

/** What the validator says by the number itself, or wrongly. */
const REWORDED: Readonly<Record<string, readonly [RegExp, string]>> = {
  minimum: [/^\S+/, "The number"],
  maximum: [/^\S+/, "The number"],
  exclusiveMinimum: [/^\S+ is less than/, "The number is not greater than"],
  exclusiveMaximum: [/^\S+/, "The number"],
  multipleOf: [/^\S+/, "The number"],
  maxProperties: [/does not have at least/, "has more than"],
}

/** Looks for a valid value in an answer. May take long, and much of the stack: for a thread of its own. */
export function checkValue(schema: Schema, text: string): Checked {
  const validator = new Validator(schema as JsonSchema, "2020-12", false)
  let problems: readonly string[] | undefined
  for (const candidate of candidatesIn(text)) {
    const found = parsed(candidate)
    if (!found) continue
    const { valid, errors } = validator.validate(found.value)
    if (valid) return { valid: true, at: text.lastIndexOf(candidate), length: candidate.length }
    problems ??= problemsOf(errors)
  }
  return { valid: false, problems: problems ?? ["it holds no JSON"] }
}

function parsed(text: string): { value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) }
  } catch {
    return undefined
  }
}

/** One line a place, the innermost word on it; names within a value may be of any length. */
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
