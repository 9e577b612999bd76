import { expect, test } from "vitest"
import { budget, dollars, spentOf } from "../../src/lib/money.ts"

test("what was spent has four digits, large amounts two", () => {
  expect(dollars(0)).toBe("$0.0000")
  expect(dollars(0.08412)).toBe("$0.0841")
  expect(dollars(12.5)).toBe("$12.50")
  expect(dollars(1234.5)).toBe("$1,234.50")
})

test("what may be spent is written as it was set", () => {
  expect([0.5, 1, 0.0005, 0.125, 1200].map(budget)).toEqual(["$0.50", "$1.00", "$0.0005", "$0.125", "$1,200.00"])
})

test("spent of what there is, without a limit what was spent alone", () => {
  expect(spentOf(0.0841, 0.5)).toBe("$0.0841 of $0.50")
  expect(spentOf(0.0841, 0)).toBe("$0.0841")
})

test("where the host does not know all of it, it is at least that", () => {
  expect(dollars(0.01, true)).toBe("at least $0.0100")
  expect(spentOf(0.01, 0.5, true)).toBe("at least $0.0100 of $0.50")
})
