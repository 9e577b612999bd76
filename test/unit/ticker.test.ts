import { expect, test } from "vitest"
import { Ticker } from "../../src/lib/background.ts"
import { FakeClock } from "../support/fake-clock.ts"

test("a tick whose time is already past comes at once and does not count as late", async () => {
  const clock = new FakeClock()
  const lateness: number[] = []
  const ticker = new Ticker(clock, async (late) => void lateness.push(late))
  ticker.at(clock.now() - 600_000)
  expect(ticker.late).toBe(0)
  await clock.advance(0)
  expect(lateness).toEqual([0])
})

test("a tick after a sleep is late by the time slept", async () => {
  const clock = new FakeClock()
  const lateness: number[] = []
  const ticker = new Ticker(clock, async (late) => void lateness.push(late))
  ticker.at(clock.now() + 1000)
  await clock.sleep(60_000)
  expect(lateness).toEqual([59_000])
})

test("ticks for a time already past come at most once a second", async () => {
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

test("a tick for the current moment is not delayed by the tick before it", async () => {
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
