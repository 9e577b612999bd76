import { isDeepStrictEqual } from "node:util"
import { type Flaw, placeIn, readJson } from "./json.ts"

/** Finds the one JSON value in what an agent said. Pure, and linear in the length of the text. */

export type Extracted =
  | { readonly value: unknown; readonly at: number; readonly length: number }
  | { readonly problem: string }

const FENCE_MARK = /^[ \t]*(`{3,}|~{3,})([^`\n]*)$/gm

/**
 * The value of an answer: all of it, or the only one in its fences and its prose. What begins as JSON and breaks off is
 * broken, and several values that differ are not one: nothing is ever taken out of the inside of another.
 */
export function extract(text: string): Extracted {
  const start = text.length - text.trimStart().length
  const whole = readJson(text, start)
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

const problemOf = (text: string, { at, why }: Pick<Flaw, "at" | "why">): string => `${placeIn(text, at)}: ${why}`

/** Goes through the fences of a text and the prose between them, until something is wrong. */
class Search {
  readonly #text: string
  #at = 0
  /** The next bracket that opens something, where it was looked for already. */
  #opening = -1
  #found: { readonly value: unknown; readonly at: number; readonly length: number } | undefined
  #problem: string | undefined

  constructor(text: string) {
    this.#text = text
  }

  /** The one value, or what is wrong; undefined where nothing looks like JSON. */
  run(): Extracted | undefined {
    for (const fence of fencesIn(this.#text)) {
      this.#prose(fence.start)
      if (this.#problem === undefined) this.#fence(fence)
      this.#at = Math.max(this.#at, fence.end)
    }
    this.#prose(this.#text.length)
    return this.#problem === undefined ? this.#found : { problem: this.#problem }
  }

  /** What a bracket opens is a value, or broken JSON, or a few words of prose without another bracket in them. */
  #prose(until: number): void {
    while (this.#problem === undefined) {
      const at = this.#nextOpening()
      if (at >= until) return
      const read = readJson(this.#text, at)
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

  /** A fence that is called JSON, or begins like it, is JSON through and through; another may be one value, or is none. */
  #fence({ body, bodyEnd, label }: Fence): void {
    const content = this.#text.slice(body, bodyEnd)
    const start = body + content.length - content.trimStart().length
    const read = readJson(this.#text, start)
    if ("end" in read && read.end <= bodyEnd && this.#text.slice(read.end, bodyEnd).trim() === "")
      return this.#take(start, read.end)
    if (!/^json/i.test(label) && !/[{[]/.test(this.#text.charAt(start))) return
    const flaw = "end" in read ? { at: read.end, why: "something stands behind the value" } : read
    this.#problem = problemOf(this.#text, flaw)
  }

  #take(at: number, end: number): void {
    const taken = parsedAt(this.#text, at, end)
    if (this.#found && !isDeepStrictEqual(this.#found.value, taken.value)) {
      const [one, other] = [this.#found.at, at].map((each) => placeIn(this.#text, each))
      this.#problem = `it holds several JSON values that differ, at ${one} and at ${other}`
    }
    this.#found ??= taken
  }

  #nextOpening(): number {
    if (this.#opening < this.#at) this.#opening = bracketFrom(this.#text, this.#at, /[{[]/g)
    return this.#opening
  }
}

/** The next of these brackets; the text's end where there is none. */
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

/** The fenced blocks of a text. One that nothing closes is none. */
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
