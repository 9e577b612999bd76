import { expect, test } from "vitest"
import { edges } from "../../src/engine/run/step.ts"
import { EDGES } from "../../src/engine/run/table.ts"
import { running } from "../support/rig.ts"

test("a run that is launched, works and ends takes edges of the table, and no others", async () => {
  const taken: string[] = []
  edges.taken = (edge) => taken.push(edge)
  const { rig, id } = await running({ taskTimeout: 3000, lastWord: 0 })
  await rig.ended(id)
  edges.taken = undefined
  expect(taken.slice(0, 2)).toEqual(["making --begin--> prompting", "prompting --prompted--> working"])
  expect(taken).toContain("working --tick--> leaving")
  expect(taken.at(-1)).toBe("telling --told--> gone")
  expect(taken.filter((edge) => !EDGES.some((known) => known === edge))).toEqual([])
})
