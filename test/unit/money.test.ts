import { expect, test } from "vitest"
import { budget, dollars, spentOf } from "../../src/lib/format.ts"

test("an amount that was spent shows four decimals, and a large amount shows two", () => {
  expect(dollars(0)).toBe("$0.0000")
  expect(dollars(0.08412)).toBe("$0.0841")
  expect(dollars(12.5)).toBe("$12.50")
  expect(dollars(1234.5)).toBe("$1,234.50")
})

test("a budget is displayed with the decimals that the user set", () => {
  expect([0.5, 1, 0.0005, 0.125, 1200].map(budget)).toEqual(["$0.50", "$1.00", "$0.0005", "$0.125", "$1,200.00"])
})

test("spending is shown together with its budget, or alone if there is no budget", () => {
  expect(spentOf(0.0841, 0.5)).toBe("$0.0841 of $0.50")
  expect(spentOf(0.0841, 0)).toBe("$0.0841")
})

test("spending is shown as 'at least' when OpenCode does not know all of it", () => {
  expect(dollars(0.01, true)).toBe("at least $0.0100")
  expect(spentOf(0.01, 0.5, true)).toBe("at least $0.0100 of $0.50")
})
