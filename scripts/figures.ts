import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { countTokens } from "gpt-tokenizer/encoding/o200k_base"
import { callPath } from "./call-path.ts"
import { openingsIn } from "./words.ts"

/** Prints the size of the product (`npm run figures`): lines as the formatter writes them, generated ones included. */

const ROOT = fileURLToPath(new URL("..", import.meta.url))

const files = readdirSync(join(ROOT, "src"), { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath, entry.name))
  .map((path) => ({ path: path.slice(ROOT.length), text: readFileSync(path, "utf8") }))
const linesOf = (text: string): number => text.split("\n").length - 1
const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0)
const lines = files.map(({ text }) => linesOf(text)).toSorted((one, other) => one - other)
const core = files.filter(({ path }) => !/^src\/features\/./.test(path))
const comments = sum(files.map(({ text }) => (text.match(/\/\*\*[\s\S]*?\*\//g) ?? []).length))
const openings = sum(files.map(({ text }) => openingsIn(text)))
const architecture = readFileSync(join(ROOT, "docs/architecture.md"), "utf8")

const path = await callPath()

console.table({
  "lines of src": sum(lines),
  "of it without features": sum(core.map(({ text }) => linesOf(text))),
  "tokens of src (o200k)": sum(files.map(({ text }) => countTokens(text))),
  files: files.length,
  "median of lines a file": lines[Math.floor(lines.length / 2)],
  "doc comments that open with What, Who, Whose, The same, It, That, Which": `${((100 * openings) / comments).toFixed(1)} %`,
  "functions from a call to its notification": path.length,
  "words of docs/architecture.md": architecture.split(/\s+/).filter((word) => /\w/.test(word)).length,
})
console.log(path.map(({ name, file }) => `${name} (${file})`).join(", "))
