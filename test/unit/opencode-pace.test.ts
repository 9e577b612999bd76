import { expect, test } from "vitest"
import { Pace } from "../../src/opencode/client.ts"

test("the page size adapts to the time of a call, at most by half or double", () => {
  const pace = new Pace({ first: 8, most: 20, targetMs: 30 })
  expect(pace.size).toBe(8)
  pace.took(24)
  expect(pace.size).toBe(10)
  pace.took(0)
  expect(pace.size).toBe(20)
  pace.took(1)
  expect(pace.size).toBe(20)
  pace.took(1000)
  expect(pace.size).toBe(10)
  pace.took(40)
  expect(pace.size).toBe(8)
  for (let call = 0; call < 10; call++) pace.took(10_000)
  expect(pace.size).toBe(1)
})
