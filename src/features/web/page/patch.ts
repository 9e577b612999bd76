import { highlightLines } from "./highlight.ts"

/** A line of a patch. `html`: highlighted text. */
export type PatchLine = {
  readonly kind: "+" | "-" | " " | "@"
  readonly text: string
  readonly html?: string
  /** Line numbers before and after the change. */
  readonly before?: number
  readonly after?: number
}

const MOST_LINES = 2000
const PLACE = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)$/

/** Lines of a unified patch without headers, and the number of lines left out. `language`: for highlighting. */
export function patchLines(
  patch: string,
  language = "",
): { readonly lines: readonly PatchLine[]; readonly more: number } {
  const all = patch.split("\n")
  const first = all.findIndex((line) => line.startsWith("@@"))
  const body = first < 0 ? [] : all.slice(first)
  if (body.at(-1) === "") body.pop()
  const shown = numbered(body.filter((line) => !line.startsWith("\\")).slice(0, MOST_LINES))
  return { lines: marked(shown, language), more: Math.max(0, body.length - MOST_LINES) }
}

function numbered(lines: readonly string[]): PatchLine[] {
  let [before, after] = [0, 0]
  return lines.map((line) => {
    const place = PLACE.exec(line)
    if (place) {
      ;[before, after] = [Number(place[1]), Number(place[2])]
      return { kind: "@", text: place[3] || `line ${after}` }
    }
    const text = line.slice(1)
    if (line[0] === "+") return { kind: "+", text, after: after++ }
    if (line[0] === "-") return { kind: "-", text, before: before++ }
    return { kind: " ", text, before: before++, after: after++ }
  })
}

/** Highlights old and new text separately, because a comment may begin lines before. */
function marked(lines: readonly PatchLine[], language: string): readonly PatchLine[] {
  const html = new Map<PatchLine, string>()
  for (const left of ["+", "-"]) {
    const side = lines.filter(({ kind }) => kind !== left)
    const done = highlightLines(
      side.map(({ kind, text }) => (kind === "@" ? "" : text)),
      language,
    )
    for (const [index, line] of side.entries()) if (done?.[index]) html.set(line, done[index])
  }
  return lines.map((line) => (line.kind === "@" ? line : { ...line, html: html.get(line) }))
}
