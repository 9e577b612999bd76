import { readFileSync, writeFileSync } from "node:fs"
import { GONE, TABLE, type Target } from "../src/core/run/machine.ts"

/** Draws the machine from its table, between two marks in a page. Run by `npm run diagram`. */

const PAGE = "docs/machine.md"
const BEGIN = "<!-- the machine: drawn by npm run diagram -->"
const END = "<!-- the machine ends -->"

/** A line for each two stages; what leaves a run at its stage is left out. */
export function diagram(): string {
  const lines = Object.entries(TABLE).flatMap(([from, row]) => {
    const targets = [...new Set(Object.values(row).flat() as Target[])].filter((to) => to !== from)
    return targets.map((to) => {
      const inputs = Object.entries(row).flatMap(([input, reached]) => (reached.includes(to) ? [input] : []))
      return `  ${from} --> ${to === GONE ? "[*]" : to}: ${inputs.join(", ")}`
    })
  })
  return ["```mermaid", "stateDiagram-v2", "  [*] --> creating", "  [*] --> waiting", ...lines, "```"].join("\n")
}

/** The page with the diagram as it is now. */
export function drawn(page: string): string {
  const [before, rest] = page.split(BEGIN)
  const after = rest?.split(END)[1]
  if (before === undefined || after === undefined) throw new Error(`${PAGE} has no place for the diagram.`)
  return `${before}${BEGIN}\n\n${diagram()}\n\n${END}${after}`
}

if (process.argv[1]?.endsWith("diagram.ts")) writeFileSync(PAGE, drawn(readFileSync(PAGE, "utf8")))
