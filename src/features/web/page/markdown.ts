import MarkdownIt from "markdown-it"
import { highlight } from "./highlight.ts"

/**
 * Text of models as HTML. What they wrote as HTML is shown as text; links lead to http and https alone, tell nobody
 * where they were followed from, and nothing is fetched: an image becomes a link to it.
 */
export function markdown(text: string): string {
  return renderer.render(text)
}

const renderer = new MarkdownIt({
  html: false,
  linkify: true,
  // Empty: shown as it is, escaped.
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

/** The page has its own headings above: those of an answer go below them. */
for (const rule of ["heading_open", "heading_close"] as const)
  rules[rule] = (tokens, index, options, _env, self) => {
    const token = tokens[index]
    if (token) token.tag = `h${Math.min(6, Number(token.tag.slice(1)) + 3)}`
    return self.renderToken(tokens, index, options)
  }

/** Long code scrolls within itself, by keyboard too. */
const fence = rules.fence
rules.fence = (...given) => fence?.(...given).replace("<pre>", '<pre tabindex="0">') ?? ""

/** Wide tables scroll within themselves, by keyboard too. */
rules.table_open = () => '<div class="scroll" tabindex="0" role="group" aria-label="table"><table>'
rules.table_close = () => "</table></div>"
