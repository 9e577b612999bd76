import { appendFileSync } from "node:fs"
import { afterAll } from "vitest"
import { type Edge, edges } from "../../src/core/run/machine.ts"
import { EDGES } from "./edges-reporter.ts"

/** Runs before each file of unit tests: keeps the machine's edges that its tests take, for `edges-reporter.ts`. */

const known: ReadonlySet<Edge> = new Set(EDGES)
const taken = new Set<Edge>()

edges.taken = (edge) => {
  if (!known.has(edge)) throw new Error(`The table of src/core/run/machine.ts does not have the edge ${edge}.`)
  taken.add(edge)
}

afterAll(() => {
  const file = process.env.SUPERAGENTS_EDGES
  if (file && taken.size > 0) appendFileSync(file, `${[...taken].join("\n")}\n`)
})
