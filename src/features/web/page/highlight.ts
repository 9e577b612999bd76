import hljs from "highlight.js/lib/core"
import bash from "highlight.js/lib/languages/bash"
import c from "highlight.js/lib/languages/c"
import css from "highlight.js/lib/languages/css"
import diff from "highlight.js/lib/languages/diff"
import go from "highlight.js/lib/languages/go"
import ini from "highlight.js/lib/languages/ini"
import java from "highlight.js/lib/languages/java"
import javascript from "highlight.js/lib/languages/javascript"
import json from "highlight.js/lib/languages/json"
import markdown from "highlight.js/lib/languages/markdown"
import python from "highlight.js/lib/languages/python"
import ruby from "highlight.js/lib/languages/ruby"
import rust from "highlight.js/lib/languages/rust"
import sql from "highlight.js/lib/languages/sql"
import typescript from "highlight.js/lib/languages/typescript"
import xml from "highlight.js/lib/languages/xml"
import yaml from "highlight.js/lib/languages/yaml"

const LANGUAGES = {
  ...{ bash, c, css, diff, go, ini, java, javascript, json },
  ...{ markdown, python, ruby, rust, sql, typescript, xml, yaml },
}
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language)
hljs.registerAliases(["mts", "cts"], { languageName: "typescript" })
hljs.registerAliases(["cpp", "cc", "hpp", "cs"], { languageName: "c" })

/** Longer code is not highlighted. */
const MOST_CHARS = 200_000

/** Escaped HTML with highlighting; undefined for an unknown language. */
export function highlight(code: string, language: string): string | undefined {
  if (code.length > MOST_CHARS || !hljs.getLanguage(language)) return undefined
  return hljs.highlight(code, { language, ignoreIllegals: true }).value
}

/** Language by file name; empty if unknown. */
export const languageOf = (file: string): string => /\.(\w+)$/.exec(file)?.[1]?.toLowerCase() ?? ""

/** Highlighted lines, each valid by itself; undefined for an unknown language. */
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
