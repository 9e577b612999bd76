import hljs from "highlight.js/lib/common"
import MarkdownIt from "markdown-it"
import { oneLine } from "../../../lib/text.ts"

/** Longer code is not highlighted: in some languages the time for it grows with the square of its length. */
const MOST_CHARS = 20_000

/** Escaped HTML of code with highlighting. Undefined for an unknown language or very long code. */
function highlight(code: string, language: string): string | undefined {
  if (code.length > MOST_CHARS || !hljs.getLanguage(language)) return undefined
  return hljs.highlight(code, { language, ignoreIllegals: true }).value
}

/** Language of a file by the ending of its name; empty without an ending. */
export const languageOf = (file: string): string => /\.(\w+)$/.exec(file)?.[1]?.toLowerCase() ?? ""

/** Highlighted lines, each of which is valid HTML by itself. Undefined where the code is not highlighted. */
export function highlightLines(lines: readonly string[], language: string): readonly string[] | undefined {
  const html = highlight(lines.join("\n"), language)
  if (html === undefined) return undefined
  let open: string[] = []
  return html.split("\n").map((line) => {
    const before = open.join("")
    for (const [tag] of line.matchAll(/<span[^>]*>|<\/span>/g))
      open = tag === "</span>" ? open.slice(0, -1) : [...open, tag]
    return before + line + "</span>".repeat(open.length)
  })
}

/**
 * Converts text of models to safe HTML. Embedded HTML is escaped, links are limited to http and https and send no
 * referrer, and images become links, so that nothing is loaded.
 */
export function markdown(text: string): string {
  const html = isSoonDrawn(text) ? renderer.render(text) : undefined
  if (html !== undefined && html.length <= MOST_DRAWN_HTML) return html
  return `<pre tabindex="0"><code>${renderer.utils.escapeHtml(text)}</code></pre>`
}

/** Longer texts are shown as they are: for nested quotes, the library's time grows with the square of the length. */
const MOST_DRAWN_CHARS = 50_000
/** Most cells of tables. A row of one character gets as many cells as its table's head has. */
const MOST_DRAWN_CELLS = 20_000
/** Longest HTML. Links that share an address each repeat it. */
const MOST_DRAWN_HTML = 2_000_000
/** A line that cannot be the one below a table's head, whose bars tell the number of columns. */
const NO_RULER = /[^-:|\s>*+.)\d]/

/** Whether a text can be drawn without a noticeable halt of the page. */
function isSoonDrawn(text: string): boolean {
  if (text.length > MOST_DRAWN_CHARS) return false
  let [columns, cells] = [0, 0]
  for (const line of text.split(/[\r\n]/)) {
    if (line.trim() === "") columns = 0
    else if (!NO_RULER.test(line)) columns = Math.max(columns, line.split("|").length)
    cells += columns
  }
  return cells <= MOST_DRAWN_CELLS
}

const renderer = new MarkdownIt({
  html: false,
  linkify: true,
  // For an empty result, the library itself escapes the code.
  highlight: (code, language) => highlight(code, language) ?? "",
})
renderer.validateLink = isSafeLink
renderer.linkify.set({ fuzzyLink: false, fuzzyEmail: false })

export function isSafeLink(address: string): boolean {
  return /^https?:\/\/[^\s]/i.test(address.trim())
}

const { rules } = renderer.renderer

rules.link_open = (tokens, index, options, _env, self) => {
  const token = tokens[index]
  token?.attrSet("rel", "noreferrer noopener")
  token?.attrSet("target", "_blank")
  return self.renderToken(tokens, index, options)
}

rules.image = (tokens, index) => {
  const token = tokens[index]
  const { escapeHtml } = renderer.utils
  const address = String(token?.attrGet("src") ?? "")
  const label = escapeHtml(token?.content || address)
  if (!isSafeLink(address)) return `[image: ${label}]`
  return `<a href="${escapeHtml(address)}" rel="noreferrer noopener" target="_blank">[image: ${label}]</a>`
}

/** Headings of an answer become smaller, so that they are below the page's own headings. */
for (const rule of ["heading_open", "heading_close"] as const)
  rules[rule] = (tokens, index, options, _env, self) => {
    const token = tokens[index]
    if (token) token.tag = `h${Math.min(6, Number(token.tag.slice(1)) + 3)}`
    return self.renderToken(tokens, index, options)
  }

/** Long code scrolls, also by keyboard. */
const fence = rules.fence
rules.fence = (...given) => fence?.(...given).replace("<pre>", '<pre tabindex="0">') ?? ""

/** Wide tables scroll, also by keyboard. */
rules.table_open = () => '<div class="scroll" tabindex="0" role="group" aria-label="table"><table>'
rules.table_close = () => "</table></div>"

/** A line of a patch. `html`: its text with highlighting. */
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

/** Lines of a unified patch without its headers. `more`: number of lines that were left out. */
export function patchLines(patch: string, language = "") {
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

/** Old and new text are highlighted separately and as a whole: a comment may begin some lines before. */
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

/** Text of agents or providers in marks, so that its writing direction does not change the sentence around it. */
export const isolated = (text: string): string => `\u2068${oneLine(text)}\u2069`

/** Hue for a name, one of six. These hues differ from the colours of states. */
export const hueOf = (name: string): number =>
  [...name].reduce((sum, letter) => (sum * 31 + (letter.codePointAt(0) ?? 0)) % 997, 7) % 6
