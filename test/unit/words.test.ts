import { expect, test } from "vitest"
import { faultsIn, type Source } from "../../scripts/words.ts"

const list = { goneNames: ["Conductor"], goneFiles: ["deeds"], ceilings: { openings: 1, sharedTypes: 0 } }
const at = (path: string, text: string): Source => ({ path, text })

test("a source that follows the word list has no fault", () => {
  const text =
    "/** What may stay. */\nexport type Run = string // no Conductor\n/** Whatever else. */\nconst deeds = '' as Run"
  expect(faultsIn([at("src/run.ts", text)], list)).toEqual([])
})

test("a banned name is a fault when it returns, also as a private field", () => {
  expect(faultsIn([at("src/a.ts", "class A { #Conductor = 1 }"), at("src/b.ts", "new Conductor()")], list)).toEqual([
    "src/a.ts: the name Conductor is gone",
    "src/b.ts: the name Conductor is gone",
  ])
})

test("a banned file name is a fault when it returns", () => {
  expect(faultsIn([at("src/core/deeds.tsx", "")], list)).toEqual(["src/core/deeds.tsx: the file name is gone"])
})

test("doc comments with a vague first word are a fault above the allowed number", () => {
  const text = "/** It is one. */\n/**\n * Which is two.\n */\n/** The same. */"
  expect(faultsIn([at("src/a.ts", text)], list)).toEqual([
    "3 doc comments begin with What, Who, Whose, The same, It, That or Which; at most 1",
  ])
})

test("two exported types with the same name are a fault above the allowed number", () => {
  const sources = [at("src/a.ts", "export type Run = 1"), at("src/b.ts", "export interface Run {}\ntype Local = 1")]
  expect(faultsIn(sources, list)).toEqual(["1 exported types share a name, at most 0: Run"])
})
