import MarkdownIt from "markdown-it"
import { highlight } from "./highlight.ts"

/**
 * Models' text as safe HTML: embedded HTML is escaped, only http and https links without referrer, and images become
 * links, so that nothing is loaded.
 */
export function markdown(text: string): string {
  return renderer.render(text)
}

const renderer = new MarkdownIt({
  html: false,
  linkify: true,
  // An empty result makes the library escape the code itself.
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

/** Headings of an answer are nested below the page's own. */
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
