import { readdirSync, readFileSync } from "node:fs"
import { basename, join } from "node:path"
import { fileURLToPath } from "node:url"
import ts from "typescript"
import WORDS from "./words.json" with { type: "json" }

/** Checks the words of `src` (`npm run words`) against words.json: names that are gone, and counts that may only fall. */

const ROOT = fileURLToPath(new URL("..", import.meta.url))
const OPENING = /^\/\*\*[\s*]*(What|Who|Whose|The same|It|That|Which)\b/

export type Words = {
  readonly goneNames: readonly string[]
  readonly goneFiles: readonly string[]
  readonly ceilings: { readonly openings: number; readonly sharedTypes: number }
}

export type Source = { readonly path: string; readonly text: string }

/** Each fault of `sources` in one line; empty where they keep to the list. */
export function faultsIn(sources: readonly Source[], { goneNames, goneFiles, ceilings }: Words): string[] {
  const read = sources.map(({ path, text }) => ({ path, ...parse(path, text) }))
  const back = read.flatMap(({ path, names }) => [
    ...goneFiles
      .filter((gone) => basename(path).replace(/\..*/, "") === gone)
      .map(() => `${path}: the file name is gone`),
    ...goneNames.filter((gone) => names.has(gone)).map((gone) => `${path}: the name ${gone} is gone`),
  ])
  const types = read.flatMap((each) => [...each.types])
  const shared = [...new Set(types.filter((type, index) => types.indexOf(type) !== index))].sort()
  const openings = read.reduce((sum, each) => sum + each.openings, 0)
  return [
    ...back,
    ...(openings > ceilings.openings
      ? [
          `${openings} doc comments begin with What, Who, Whose, The same, It, That or Which; at most ${ceilings.openings}`,
        ]
      : []),
    ...(shared.length > ceilings.sharedTypes
      ? [`${shared.length} exported types share a name, at most ${ceilings.sharedTypes}: ${shared.join(", ")}`]
      : []),
  ]
}

function parse(path: string, text: string) {
  const names = new Set<string>()
  const types = new Set<string>()
  const visit = (node: ts.Node): void => {
    if (ts.isIdentifier(node)) names.add(node.text)
    if (ts.isPrivateIdentifier(node)) names.add(node.text.slice(1))
    if ((ts.isTypeAliasDeclaration(node) || ts.isInterfaceDeclaration(node)) && isExported(node))
      types.add(node.name.text)
    ts.forEachChild(node, visit)
  }
  visit(ts.createSourceFile(path, text, ts.ScriptTarget.Latest))
  return { names, types, openings: openingsIn(text) }
}

/** Doc comments that leave open who does what. */
export const openingsIn = (text: string): number =>
  (text.match(/\/\*\*[\s\S]*?\*\//g) ?? []).filter((comment) => OPENING.test(comment)).length

const isExported = (node: ts.HasModifiers): boolean =>
  node.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) === true

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const sources = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })
    .filter((path) => /\.tsx?$/.test(path))
    .map((path) => ({ path: join("src", path), text: readFileSync(join(ROOT, "src", path), "utf8") }))
  const faults = faultsIn(sources, WORDS)
  for (const fault of faults) console.error(fault)
  if (faults.length > 0) process.exitCode = 1
}
