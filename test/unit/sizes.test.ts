import { readdirSync, readFileSync } from "node:fs"
import ts from "typescript"
import { expect, test } from "vitest"

/** A function is short enough to be read at once. */

const MOST_LINES_OF_A_FUNCTION = 60

const sources = readdirSync("src", { recursive: true, encoding: "utf8" })
  .filter((name) => /\.tsx?$/.test(name))
  .map((name) => ({ file: `src/${name}`, text: readFileSync(`src/${name}`, "utf8") }))

test("no function is longer than 60 lines", () => {
  const long = sources.flatMap(({ file, text }) => longFunctions(file, text).map((name) => `${file} ${name}`))
  expect(long).toEqual([])
})

function longFunctions(file: string, text: string): string[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true)
  const lineOf = (at: number) => source.getLineAndCharacterOfPosition(at).line
  const found: string[] = []
  const visit = (node: ts.Node): void => {
    const isLong = lineOf(node.end) - lineOf(node.getStart()) + 1 > MOST_LINES_OF_A_FUNCTION
    if (!isLong) return
    if (ts.isFunctionLike(node) && "body" in node && node.body) found.push(nameOf(node))
    ts.forEachChild(node, visit)
  }
  visit(source)
  return found
}

function nameOf(node: ts.SignatureDeclaration): string {
  const { name = (node.parent as { name?: ts.Node }).name } = node as { name?: ts.Node }
  return name?.getText() ?? "a function without a name"
}
