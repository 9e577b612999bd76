import { isDeepStrictEqual } from "node:util"
import { type Schema as JsonSchema, type OutputUnit, Validator } from "@cfworker/json-schema"
import type { Schema } from "../../core/task.ts"
import { problemOf, scanJson, textPosition } from "../../lib/json.ts"
import { oneLine } from "../../lib/text.ts"

/** Validation result of an answer. `problems`: path and fault, never the value itself. */
export type ValidationResult =
  | { readonly valid: true; readonly at: number; readonly length: number; readonly file?: string }
  | { readonly valid: false; readonly problems: readonly string[] }

/** Finds the one JSON value in an agent's answer. Pure, and linear in the text's length. */

export type Extracted =
  | { readonly value: unknown; readonly at: number; readonly length: number }
  | { readonly problem: string }

/** A mark of tildes is taken whole: given back one by one, a long line of them would take quadratic time. */
const FENCE_MARK = /^[ \t]*(`{3,}|~{3,}(?!~))([^`\n]*)$/gm

/**
 * Value of an answer: the whole answer, or the only value in its fences and prose. Incomplete JSON is an error, as are
 * several different values; nested values are never taken out.
 */
export function extract(text: string): Extracted {
  const start = text.length - text.trimStart().length
  const whole = scanJson(text, start)
  if ("end" in whole && text.slice(whole.end).trim() === "") return parsedAt(text, start, whole.end)
  const found = new Search(text).run()
  if (found) return found
  const isText = text[start] === '"'
  return { problem: "why" in whole && (isText || whole.begun) ? problemOf(text, whole) : "it holds no JSON" }
}

function parsedAt(text: string, at: number, end: number) {
  const json = text.slice(at, end)
  return { value: JSON.parse(json), at, length: json.length }
}

/** Scans a text's fenced blocks and the prose between them, until a fault is found. */
class Search {
  readonly #text: string
  #at = 0
  /** Cached index of the next opening bracket. */
  #opening = -1
  #found: { readonly value: unknown; readonly at: number; readonly length: number } | undefined
  #problem: string | undefined

  constructor(text: string) {
    this.#text = text
  }

  /** The only value, or a fault; undefined where nothing looks like JSON. */
  run(): Extracted | undefined {
    for (const fence of fencesIn(this.#text)) {
      this.#prose(fence.start)
      if (this.#problem === undefined) this.#fence(fence)
      this.#at = Math.max(this.#at, fence.end)
    }
    this.#prose(this.#text.length)
    return this.#problem === undefined ? this.#found : { problem: this.#problem }
  }

  /**
   * Reads the prose before `until`. A bracket in prose opens a value, or broken JSON, or a few words without another
   * bracket, which are skipped.
   */
  #prose(until: number): void {
    while (this.#problem === undefined) {
      const at = this.#nextOpening()
      if (at >= until) return
      const read = scanJson(this.#text, at)
      if ("end" in read) {
        this.#take(at, read.end)
        this.#at = read.end
        continue
      }
      const next = bracketFrom(this.#text, at + 1, /[{}[\]]/g)
      if (read.begun || /[{[]/.test(this.#text.charAt(next))) this.#problem = problemOf(this.#text, read)
      this.#at = next + 1
    }
  }

  /**
   * Reads a fenced block. A block that is labelled as JSON, or begins like JSON, must be one JSON value; any other
   * block counts only if it is a JSON value.
   */
  #fence({ body, bodyEnd, label }: Fence): void {
    const content = this.#text.slice(body, bodyEnd)
    const start = body + content.length - content.trimStart().length
    const read = scanJson(this.#text, start)
    if ("end" in read && read.end <= bodyEnd && this.#text.slice(read.end, bodyEnd).trim() === "")
      return this.#take(start, read.end)
    if (!/^json/i.test(label) && !/[{[]/.test(this.#text.charAt(start))) return
    const flaw = "end" in read ? { at: read.end, why: "something stands behind the value" } : read
    this.#problem = problemOf(this.#text, flaw)
  }

  #take(at: number, end: number): void {
    const taken = parsedAt(this.#text, at, end)
    if (this.#found && !isDeepStrictEqual(this.#found.value, taken.value)) {
      const [one, other] = [this.#found.at, at].map((each) => textPosition(this.#text, each))
      this.#problem = `it holds several JSON values that differ, at ${one} and at ${other}`
    }
    this.#found ??= taken
  }

  #nextOpening(): number {
    if (this.#opening < this.#at) this.#opening = bracketFrom(this.#text, this.#at, /[{[]/g)
    return this.#opening
  }
}

/** Index of the next bracket; the text's end without one. */
function bracketFrom(text: string, from: number, brackets: RegExp): number {
  brackets.lastIndex = from
  return brackets.exec(text)?.index ?? text.length
}

type Fence = {
  readonly start: number
  readonly label: string
  readonly body: number
  readonly bodyEnd: number
  readonly end: number
}

/** Fenced blocks of a text; unclosed ones are ignored. */
function* fencesIn(text: string): Iterable<Fence> {
  let open: { readonly start: number; readonly mark: string; readonly label: string; readonly body: number } | undefined
  for (const { 0: line, 1: mark = "", 2: info = "", index } of text.matchAll(FENCE_MARK)) {
    const end = index + line.length
    if (!open) open = { start: index, mark, label: info.trim(), body: end }
    else if (mark.startsWith(open.mark) && info.trim() === "") {
      yield { ...open, bodyEnd: index, end }
      open = undefined
    }
  }
}

/** Most problems reported. */
const MOST_PROBLEMS = 10
const MOST_PLACE_CHARS = 200
const MOST_ERROR_CHARS = 300
/** Keywords whose errors only repeat the errors of nested keywords. */
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

/** By keyword: a bare or wrong part of the validator's error text, and a better text for this part. */
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

/** One line for each path, with the most specific error. Lines are cut, because names in a value may be long. */
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
