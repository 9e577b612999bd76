import { appendFileSync } from "node:fs"
import { afterAll } from "vitest"
import { EDGES, type Edge, edges } from "../../src/core/run/machine.ts"

/** Runs before each file of unit tests: keeps the machine's edges that its tests take, for `edges-reporter.ts`. */

const known: ReadonlySet<Edge> = new Set(EDGES)
const taken = new Set<Edge>()

edges.taken = (edge) => {
  if (!known.has(edge)) throw new Error(`The table of src/engine/run/table.ts does not have the edge ${edge}.`)
  taken.add(edge)
}

afterAll(() => {
  const file = process.env.SUPERAGENTS_EDGES
  if (file && taken.size > 0) appendFileSync(file, `${[...taken].join("\n")}\n`)
})
