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

test("what has passed and is asked for again by each tick brings one tick a second, not one after the other", async () => {
  const clock = new FakeClock()
  const began = clock.now()
  const ticks: number[] = []
  const ticker: Ticker = new Ticker(clock, async () => {
    ticks.push(clock.now() - began)
    // Bounds the test where nothing else does.
    if (ticks.length < 500) ticker.at(began - 1)
  })
  ticker.at(began - 1)
  await clock.advance(3500)
  expect(ticks).toEqual([0, 1000, 2000, 3000])
})

test("what is due in the moment of a tick is not put off by what that tick did before", async () => {
  const clock = new FakeClock()
  const began = clock.now()
  const ticks: number[] = []
  const ticker: Ticker = new Ticker(clock, async () => void ticks.push(clock.now() - began))
  ticker.at(began + 100)
  await clock.advance(100)
  ticker.at(began + 250)
  ticker.at(began + 100)
  await clock.advance(2000)
  expect(ticks).toEqual([100, 250])
})
