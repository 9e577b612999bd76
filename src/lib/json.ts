import { oneLine } from "./text.ts"

/** Strict JSON reader that reports faults with their position. Pure, single pass, no recursion. */

/** End of a value, or position and reason of a fault. */
export type JsonScanResult = { readonly end: number } | Flaw

type Flaw = {
  readonly at: number
  readonly why: string
  /** True if the text up to the fault was surely meant as JSON, not as prose with a bracket. */
  readonly begun: boolean
}

const SPACE = /[ \t\r\n]+/y
/**
 * Characters of a string without escapes. A pattern with branches would use stack for each character of a long string.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON forbids them within a text
const PLAIN = /[^"\\\u0000-\u001f]+/y
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
const WORD = /true|false|null/y
const MOST_KEY_CHARS = 60

/** Reads the value after optional white space at `start`. */
export function scanJson(text: string, start: number): JsonScanResult {
  const reader = new Reader(text, start)
  try {
    reader.read()
    return { end: reader.at }
  } catch (error) {
    if (error instanceof Broken) return error.flaw
    throw error
  }
}

/** Example: `line 3, column 14: a value was expected`. */
export const problemOf = (text: string, { at, why }: Pick<Flaw, "at" | "why">): string =>
  `${textPosition(text, at)}: ${why}`

/** Example: `line 3, column 14`, both from 1. */
export function textPosition(text: string, at: number): string {
  const lines = text.slice(0, at).split("\n")
  return `line ${lines.length}, column ${(lines.at(-1)?.length ?? 0) + 1}`
}

class Broken extends Error {
  readonly flaw: Flaw

  constructor(flaw: Flaw) {
    super(flaw.why)
    this.flaw = flaw
  }
}

/** An unclosed array, or an object with its keys so far. */
type Open = { readonly at: number; readonly close: "}" | "]"; readonly keys?: Set<string> }

class Reader {
  readonly #text: string
  readonly #start: number
  readonly #open: Open[] = []
  at: number

  constructor(text: string, start: number) {
    this.#text = text
    this.#start = start
    this.at = start
  }

  read(): void {
    do this.#value()
    while (this.#hasMore())
  }

  /** Reads opening brackets and the scalar after them, or the start of an empty container. */
  #value(): void {
    for (;;) {
      this.#take(SPACE)
      const sign = this.#text[this.at]
      if (sign !== "{" && sign !== "[") return this.#scalar(sign)
      const keys = sign === "{" ? new Set<string>() : undefined
      const close = keys ? "}" : "]"
      this.#open.push({ at: this.at++, close, ...(keys && { keys }) })
      this.#take(SPACE)
      if (this.#text[this.at] === close) return
      if (keys) this.#key(keys)
    }
  }

  #scalar(sign: string | undefined): void {
    if (sign === '"') return this.#string()
    if (!this.#number() && this.#take(WORD) === undefined) this.#fail("a value was expected")
  }

  /** Closes finished containers. True where another value must follow. */
  #hasMore(): boolean {
    for (let top = this.#open.at(-1); top; top = this.#open.at(-1)) {
      this.#take(SPACE)
      const sign = this.#text[this.at]
      if (sign !== top.close && sign !== ",") this.#fail(`"," or "${top.close}" was expected`)
      this.at++
      if (sign === ",") {
        if (top.keys) this.#key(top.keys)
        return true
      }
      this.#open.pop()
    }
    return false
  }

  #key(keys: Set<string>): void {
    this.#take(SPACE)
    const start = this.at
    if (this.#text[start] !== '"') this.#fail("a key in double quotes was expected")
    this.#string()
    const key: string = JSON.parse(this.#text.slice(start, this.at))
    if (keys.has(key)) this.#fail(`the key "${oneLine(key, MOST_KEY_CHARS)}" stands twice in one object`, start)
    keys.add(key)
    this.#take(SPACE)
    if (this.#text[this.at] !== ":") this.#fail('":" was expected')
    this.at++
  }

  #string(): void {
    const start = this.at++
    while (this.#text[this.at] !== '"') {
      if (this.#take(PLAIN) !== undefined || this.#take(ESCAPE) !== undefined) continue
      const sign = this.#text[this.at]
      if (sign === undefined) this.#fail("a text that begins here has no end", start)
      if (sign !== "\\") this.#fail("a line break, a tab or another control character stands in a text as it is")
      this.#fail(`${oneLine(this.#text.slice(this.at, this.at + 2))} is no escape of JSON`)
    }
    this.at++
  }

  #number(): boolean {
    const start = this.at
    const digits = this.#take(NUMBER)
    if (digits === undefined) return false
    if (!isRepresented(digits)) this.#fail("a number that no program can represent exactly, or at all", start)
    return true
  }

  #take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at
    const found = pattern.exec(this.#text)?.[0]
    this.at += found?.length ?? 0
    return found
  }

  #fail(what: string, at = this.at): never {
    const rest = this.#text.length > this.at ? undefined : this.#open.at(-1)
    const cut =
      rest &&
      `; the text breaks off, and the "${this.#text[rest.at]}" of ${textPosition(this.#text, rest.at)} is not closed`
    const begun = rest !== undefined || /[^\s{[]/.test(this.#text.slice(this.#start, this.at)) || this.#open.length > 1
    throw new Broken({ at, why: `${what}${cut ?? ""}`, begun })
  }
}

/** False for overflow, underflow, and integers with more digits than programs can read. */
function isRepresented(digits: string): boolean {
  const number = Number(digits)
  if (!Number.isFinite(number)) return false
  if (number === 0) return !/^[^eE]*[1-9]/.test(digits)
  return !/^-?\d+$/.test(digits) || BigInt(digits) === BigInt(number)
}
