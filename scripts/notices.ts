import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

/** Writes NOTICES.md: what others have written and `dist` contains, each with its licence, as these ask for. */

const ROOT = fileURLToPath(new URL("..", import.meta.url))
export const NOTICES_FILE = join(ROOT, "NOTICES.md")

const HEAD = `# Notices

<!-- Written by \`npm run notices\` from what src imports. -->

The files in \`dist\` contain code of these packages, under their own licences.
`

/** What OpenCode's terminal gives to its plugins: no code of it is in the companion. The page has its own Solid. */
const OF_THE_HOST = /^(node:|@opentui\/)/
/** Types, and what only markdown-it's command reads its arguments with. */
const NOT_BUNDLED = /^(@types\/|argparse$)/
/** Types alone, or given by OpenCode. */
const TYPES = /^import type |^export type /
const IMPORT = /^(?:(?:import|export)\b.*\bfrom |.*\bimport\()"([@\w][^"\s]*)"/

type Manifest = { readonly name: string; readonly dependencies?: Readonly<Record<string, string>> }

/** The packages that `src` imports, and what these need in turn. */
export function bundled(): readonly string[] {
  const found = new Map<string, string>()
  const take = (name: string, from: string) => {
    if (found.has(name)) return
    const folder = folderOf(name, from)
    const { dependencies = {} } = manifestIn(folder)
    found.set(name, folder)
    // Of Solid's, the code that a server renders with; of the SDK's, what starts a server.
    if (/^(solid-js|@opencode-ai\/sdk)$/.test(name)) return
    for (const each of Object.keys(dependencies)) if (!NOT_BUNDLED.test(each)) take(each, folder)
  }
  for (const name of imported()) take(name, ROOT)
  return [...found].toSorted(([one], [other]) => (one < other ? -1 : 1)).map(([name, folder]) => notice(name, folder))
}

function imported(): readonly string[] {
  const files = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" }).filter((file) =>
    /\.tsx?$/.test(file),
  )
  const texts = files.map((file) => readFileSync(join(ROOT, "src", file), "utf8"))
  // A list of imported names may go over several lines.
  const lines = texts.flatMap((text) => text.replace(/\{[^}]*\}/g, "{}").split("\n"))
  const specifiers = lines.filter((line) => !TYPES.test(line)).flatMap((line) => IMPORT.exec(line)?.[1] ?? [])
  const names = specifiers.map((each) =>
    each
      .split("/")
      .slice(0, each.startsWith("@") ? 2 : 1)
      .join("/"),
  )
  return [...new Set(names)].filter((name) => !OF_THE_HOST.test(name))
}

function folderOf(name: string, from: string): string {
  for (let at = from; ; at = dirname(at)) {
    const folder = join(at, "node_modules", name)
    try {
      manifestIn(folder)
      return folder
    } catch {
      if (at === dirname(at)) throw new Error(`${name} is not installed.`)
    }
  }
}

const manifestIn = (folder: string): Manifest => JSON.parse(readFileSync(join(folder, "package.json"), "utf8"))

function notice(name: string, folder: string): string {
  const file = readdirSync(folder).find((each) => /^licen[cs]e(\.md|\.txt)?$/i.test(each))
  const { license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { license?: string }
  const text = file ? readFileSync(join(folder, file), "utf8").trim() : `Licence: ${license}.`
  return `## ${name}\n\n\`\`\`text\n${text}\n\`\`\``
}

export const notices = (): string => `${HEAD}\n${bundled().join("\n\n")}\n`

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(NOTICES_FILE, notices())
