import { expect, test } from "vitest"
import { eventually } from "../support/eventually.ts"

test("the test helper eventually looks again only after news, including news that came during a look", async () => {
  let marks = 0
  let looks = 0
  const waits: number[] = []
  const news = {
    mark: () => marks,
    since: async (mark: number) => {
      waits.push(mark)
    },
  }
  await eventually(() => ++looks === 3 || void marks++, { news })
  expect(looks).toBe(3)
  expect(waits).toEqual([0, 1])
})

test("the test helper eventually names in its error what it waited for and what it saw last", async () => {
  const look = () => ({ seen: 1 }).seen > 1
  await expect(eventually(look, { timeout: 30, message: "two of them" })).rejects.toThrow(/two of them\nlast: false/)
})
