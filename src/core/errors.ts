import { formatInteger } from "../lib/text.ts"

/**
 * An error whose text is for the caller: what happened, what was expected, what to do next. Tools throw it unchanged
 * and wrap every other error.
 */
export class CallError extends Error {
  override readonly name = "CallError"
}

export class UnknownTaskError extends CallError {}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** Joins names, with the number of those left out. `others`: number of further ones whose names are not known. */
export function listed(names: readonly string[], most = 8, others = 0): string {
  const more = Math.max(0, names.length - most) + others
  return `${names.slice(0, most).join(", ")}${more > 0 ? ` and ${formatInteger(more)} more` : ""}`
}

export const candidatesText = (names: readonly string[], most?: number): string =>
  names.length > 0 ? `There are: ${listed(names, most)}.` : "There are none."

/** Names that contain `wanted`, are contained in it, or differ from it by few edits. */
export function nearest(wanted: string, names: readonly string[], most = 3): readonly string[] {
  const target = wanted.toLowerCase()
  const scored = names.map((name) => ({ name, score: likeness(target, name.toLowerCase()) }))
  const close = scored.filter(({ score, name }) => score <= Math.max(2, Math.ceil(name.length / 3)))
  return close
    .sort((a, b) => a.score - b.score)
    .slice(0, most)
    .map(({ name }) => name)
}

function likeness(a: string, b: string): number {
  if (a === "" || b === "") return Number.POSITIVE_INFINITY
  if (a.includes(b) || b.includes(a)) return 0
  return editDistance(a, b)
}

/** Levenshtein distance, computed row by row. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const substitution = at(row, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(at(row, j) + 1, at(next, j - 1) + 1, substitution))
    }
    row = next
  }
  return at(row, b.length)
}

const at = (row: readonly number[], index: number): number => row[index] as number
