import { expect, test } from "vitest"
import { Ticker } from "../../src/lib/ticker.ts"
import { FakeClock } from "../support/fake-clock.ts"

test("what was due long before it was asked for comes at once, and is not late", async () => {
  const clock = new FakeClock()
  const lateness: number[] = []
  const ticker = new Ticker(clock, async (late) => void lateness.push(late))
  ticker.at(clock.now() - 600_000)
  expect(ticker.late).toBe(0)
  await clock.advance(0)
  expect(lateness).toEqual([0])
})

test("what comes after a sleep is as late as that", async () => {
  const clock = new FakeClock()
  const lateness: number[] = []
  const ticker = new Ticker(clock, async (late) => void lateness.push(late))
  ticker.at(clock.now() + 1000)
  await clock.sleep(60_000)
  expect(lateness).toEqual([59_000])
})
