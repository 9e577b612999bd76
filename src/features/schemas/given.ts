import {
  dereference,
  type Schema as JsonSchema,
  schemaArrayKeyword,
  schemaKeyword,
  schemaMapKeyword,
} from "@cfworker/json-schema"
import { CallError, messageOf } from "../../core/errors.ts"
import type { Schema } from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"
import { isPlainObject } from "../../options/spec.ts"
import { jsonIn, type MayRead, textInFile } from "../../runtime/launch/argument-file.ts"

/**
 * Checks a JSON Schema before a launch. The validator ignores what it does not understand, or fails only later, so
 * likely mistakes are reported here with their path.
 */

const MOST_SCHEMA_CHARS = 20_000
/** Limit of nesting, because later steps and the validator are recursive. */
const MOST_DEPTH = 200

const TYPES = ["null", "boolean", "object", "array", "number", "integer", "string"]
/** Keywords whose value is an object of schemas. */
const isOfNamed = (key: string): boolean => Object.hasOwn(schemaMapKeyword, key)
/** Keyword whose value is a schema or a list of schemas. */
const ITEMS = "items"
/** Old keyword with schemas or lists of names. */
const DEPENDENCIES = "dependencies"
/** Keywords that apply a schema to the same value. */
const IN_PLACE = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"]
const NAMED_IN_PLACE = ["dependentSchemas", DEPENDENCIES]

/** Keywords that the validator would silently ignore. */
const UNSUPPORTED = ["$dynamicRef", "$recursiveRef"]
const NUMBERS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]
const COUNTS = [
  "minLength",
  "maxLength",
  "minItems",
  "maxItems",
  "minProperties",
  "maxProperties",
  "minContains",
  "maxContains",
]

/** Nested schemas with their JSON pointers. */
type Places = Map<Schema, string>
/** The validator's table of references: schemas by URI. */
type Known = Readonly<Record<string, unknown>>

/** Fault in a schema, as `at /properties/x/type: …`; undefined where none is found. */
export function problemIn(given: unknown): string | undefined {
  if (!isPlainObject(given)) return "it is no object"
  const size = ofSize(given)
  if (size) return size
  const length = JSON.stringify(given).length
  if (length > MOST_SCHEMA_CHARS) return `it has ${length} characters; at most ${MOST_SCHEMA_CHARS} are taken`
  // Work on a copy, because the validator modifies its input.
  const schema = structuredClone(given)
  const places: Places = new Map()
  const wrong = walk(schema, "", places)
  if (wrong) return wrong
  const known = knownIn(schema)
  if (typeof known === "string") return at("", `it cannot be used: ${known}`)
  // A target below an unknown keyword, such as `components`, becomes a place itself, and is looked at in its turn.
  for (const [place, pointer] of places) {
    const problem =
      ofRef(place, pointer, known) ?? walk(targetOf(place, known) ?? true, String(place.$ref).slice(1), places)
    if (problem) return problem
  }
  return ofCircle(places, known)
}

/** Why a schema is too deep or too large. Uses no recursion, and stops at the limits. */
function ofSize(schema: Schema): string | undefined {
  const open: { readonly value: object; readonly depth: number }[] = [{ value: schema, depth: 0 }]
  let seen = 0
  for (const { value, depth } of open) {
    if (depth > MOST_DEPTH) return `it is nested deeper than ${MOST_DEPTH} levels`
    for (const key in value) {
      if (++seen > MOST_SCHEMA_CHARS) return `it has more than ${MOST_SCHEMA_CHARS} values`
      const next = (value as Schema)[key]
      if (typeof next === "object" && next !== null) open.push({ value: next, depth: depth + 1 })
    }
  }
  return undefined
}

/** The validator's table, or the reason why the validator cannot build it. */
function knownIn(schema: Schema): Known | string {
  try {
    return dereference(schema as JsonSchema)
  } catch (error) {
    return oneLine(messageOf(error))
  }
}

const at = (pointer: string, what: string): string => `at ${pointer === "" ? "/" : oneLine(pointer)}: ${what}`

const below = (pointer: string, key: string | number): string =>
  `${pointer}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`

function walk(schema: unknown, pointer: string, places: Places): string | undefined {
  if (typeof schema === "boolean" || places.has(schema as Schema)) return undefined
  if (!isPlainObject(schema)) return at(pointer, "a schema was expected: an object, true or false")
  places.set(schema, pointer)
  const own = ofType(schema, pointer) ?? ofPatterns(schema, pointer) ?? ofLists(schema, pointer)
  if (own) return own
  for (const [child, where] of childrenOf(schema, pointer)) {
    const problem = walk(child, where, places)
    if (problem) return problem
  }
  return undefined
}

function* childrenOf(schema: Schema, pointer: string): Iterable<readonly [unknown, string]> {
  for (const [key, value] of Object.entries(schema)) {
    const where = below(pointer, key)
    if (Object.hasOwn(schemaArrayKeyword, key) && Array.isArray(value))
      for (const [index, child] of value.entries()) yield [child, below(where, index)]
    else if (Object.hasOwn(schemaKeyword, key)) yield [value, where]
    else if (isOfNamed(key) || key === DEPENDENCIES)
      for (const [name, child] of Object.entries(value as Schema))
        if (key !== DEPENDENCIES || !isNames(child)) yield [child, below(where, name)]
  }
}

function ofType({ type }: Schema, pointer: string): string | undefined {
  if (type === undefined) return undefined
  const types = Array.isArray(type) ? type : [type]
  const unknown = types.find((each) => !TYPES.includes(each as string))
  if (types.length > 0 && unknown === undefined) return undefined
  return at(`${pointer}/type`, `${shown(unknown ?? type)} is no type. There are: ${TYPES.join(", ")}`)
}

function ofPatterns({ pattern, patternProperties }: Schema, pointer: string): string | undefined {
  const named = isPlainObject(patternProperties) ? Object.keys(patternProperties) : []
  for (const [text, where] of [
    ...(pattern === undefined ? [] : [[pattern, below(pointer, "pattern")] as const]),
    ...named.map((name) => [name, below(below(pointer, "patternProperties"), name)] as const),
  ]) {
    if (typeof text !== "string") return at(where, "a regular expression was expected, as a text")
    try {
      new RegExp(text, "u")
    } catch (error) {
      return at(where, `no regular expression: ${oneLine(String((error as Error).message))}`)
    }
  }
  return undefined
}

/** Finds keywords whose value has a wrong form that the validator would accept. */
function ofLists(schema: Schema, pointer: string): string | undefined {
  for (const [key, value] of Object.entries(schema)) {
    const where = below(pointer, key)
    if (isOfNamed(key) && !isPlainObject(value)) return at(where, "an object of schemas was expected")
    if (Object.hasOwn(schemaArrayKeyword, key) && key !== ITEMS && !Array.isArray(value))
      return at(where, "a list of schemas was expected")
    if (key === "enum" && !Array.isArray(value)) return at(where, "a list of values was expected")
    if (key === "required" && !isNames(value)) return at(where, "a list of property names was expected")
    if (key === "dependentRequired" && !(isPlainObject(value) && Object.values(value).every(isNames)))
      return at(where, "an object of lists of property names was expected")
    if (key === DEPENDENCIES && !(isPlainObject(value) && Object.values(value).every(isNamesOrSchema)))
      return at(where, "an object of schemas or of lists of property names was expected")
    if (UNSUPPORTED.includes(key)) return at(where, "this keyword is not supported; use $ref")
    const problem = ofNumber(key, value)
    if (problem) return at(where, problem)
  }
  return undefined
}

const isNames = (value: unknown): boolean => Array.isArray(value) && value.every((each) => typeof each === "string")
const isNamesOrSchema = (value: unknown): boolean => !Array.isArray(value) || isNames(value)

function ofNumber(key: string, value: unknown): string | undefined {
  if (COUNTS.includes(key) && !(Number.isInteger(value) && (value as number) >= 0))
    return "a whole number from 0 was expected"
  if (!NUMBERS.includes(key)) return undefined
  if (typeof value !== "number") return "a number was expected"
  return key === "multipleOf" && value <= 0 ? "a number above 0 was expected" : undefined
}

function ofRef(schema: Schema, pointer: string, known: Known): string | undefined {
  const { $ref } = schema
  if ($ref === undefined) return undefined
  const where = below(pointer, "$ref")
  if (typeof $ref !== "string") return at(where, "a text was expected, like #/$defs/name")
  if (!$ref.startsWith("#")) return at(where, `${shown($ref)} leads outside; only # and #/… are followed`)
  const isFollowed = $ref === "#" || $ref.startsWith("#/")
  return isFollowed && targetOf(schema, known) !== undefined ? undefined : at(where, `${shown($ref)} leads nowhere`)
}

/** Schema that a `$ref` leads to, as the validator has resolved it; undefined without one. */
const targetOf = (schema: Schema, known: Known): unknown => known[String(schema.__absolute_ref__)]

/** Finds a schema that refers to itself for the same value: its validation would never end. Visits each schema once. */
function ofCircle(places: Places, known: Known): string | undefined {
  const done = new Set<unknown>()
  for (const schema of places.keys()) {
    const path = new Set<unknown>()
    const open: { readonly schema: unknown; readonly left: unknown[] }[] = []
    const enter = (next: Schema) => {
      path.add(next)
      open.push({ schema: next, left: inPlace(next, known) })
    }
    if (!done.has(schema)) enter(schema)
    for (let top = open.at(-1); top; top = open.at(-1)) {
      const next = top.left.pop()
      if (path.has(next)) return at(places.get(next as Schema) ?? "", "it refers to itself in a circle")
      if (next !== undefined) {
        if (isPlainObject(next) && !done.has(next)) enter(next)
        continue
      }
      open.pop()
      path.delete(top.schema)
      done.add(top.schema)
    }
  }
  return undefined
}

function inPlace(schema: Schema, known: Known): unknown[] {
  const direct = IN_PLACE.flatMap((key) => schema[key])
  const named = NAMED_IN_PLACE.flatMap((key) => (isPlainObject(schema[key]) ? Object.values(schema[key]) : []))
  return [...direct, ...named, targetOf(schema, known)].filter(isPlainObject)
}

const shown = (value: unknown): string => oneLine(JSON.stringify(value) ?? String(value), 60)

/** Schema given inline, or as a `.json` file of the project. Throws a `CallError` where it is unusable. */
export async function schemaGiven(given: Schema | string, folder: string, mayRead: MayRead): Promise<Schema> {
  const schema = typeof given === "string" ? await inFile(given, folder, mayRead) : given
  const problem = problemIn(schema)
  if (problem) throw refused(`${problem}.`)
  return schema as Schema
}

/** Longest schema file that is read, in bytes. The limit leaves room for white space around the longest schema. */
const MOST_FILE_BYTES = 200_000

const refused = (why: string): CallError => new CallError(`Argument \`schema\`: ${why} Nothing was launched.`)

async function inFile(name: string, folder: string, mayRead: MayRead): Promise<unknown> {
  const shown = oneLine(name)
  if (!name.endsWith(".json"))
    throw refused(`a JSON Schema was expected, or the name of a .json file with one. Got "${shown}".`)
  return jsonIn(await textInFile(name, folder, mayRead, refused, MOST_FILE_BYTES), shown, refused)
}
