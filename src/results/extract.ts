/** Finds JSON in what an agent said. Pure. */

const FENCE = /^[ \t]*(```+|~~~+)[^\n]*\n([\s\S]*?)\n?^[ \t]*\1[ \t]*$/gm
/** How often a bracket that nothing closes is passed over before the search ends. */
const MOST_STRAY = 1000

/** The texts that may be the value, best first: all of it, the last fenced block, the last balanced `{…}` or `[…]`. */
export function* candidatesIn(text: string): Iterable<string> {
  yield text.trim()
  const block = [...text.matchAll(FENCE)].at(-1)?.[2]
  if (block !== undefined) yield block.trim()
  const span = lastBalanced(text)
  if (span !== undefined) yield span
}

/** The last outermost piece of the text whose brackets close each other; quotes count within brackets alone. */
export function lastBalanced(text: string): string | undefined {
  let found: string | undefined
  let strays = 0
  for (let at = nextBracket(text, 0); at >= 0 && strays < MOST_STRAY; ) {
    const end = closing(text, at)
    if (end === undefined) strays++
    else found = text.slice(at, end)
    at = nextBracket(text, end ?? at + 1)
  }
  return found
}

function nextBracket(text: string, from: number): number {
  const found = /[{[]/g
  found.lastIndex = from
  return found.exec(text)?.index ?? -1
}

/** The index behind the bracket that closes the one at `start`; undefined where none does. */
function closing(text: string, start: number): number | undefined {
  const open: string[] = []
  const marks = /["{}[\]]|\\./g
  marks.lastIndex = start
  let quoted = false
  for (let mark = marks.exec(text); mark; mark = marks.exec(text)) {
    const [sign] = mark
    if (sign === '"') quoted = !quoted
    if (quoted || sign.length > 1) continue
    if (sign === "{") open.push("}")
    else if (sign === "[") open.push("]")
    else if (sign !== '"' && open.pop() !== sign) return undefined
    if (sign !== '"' && open.length === 0) return mark.index + 1
  }
  return undefined
}
