import { expect, test } from "vitest"
import { Collector } from "../../src/lib/background.ts"
import { FakeClock } from "../support/fake-clock.ts"

test("the collector hands over items of one interval together and later items in the next batch", async () => {
  const clock = new FakeClock()
  const handed: (readonly number[])[] = []
  const gather = new Collector<number>(clock, 100, (items) => handed.push(items))
  gather.flush()
  await clock.advance(1000)
  expect(handed).toEqual([])
  gather.add(1)
  await clock.advance(99)
  gather.add(2)
  expect(handed).toEqual([])
  await clock.advance(1)
  expect(handed).toEqual([[1, 2]])
  gather.add(3)
  await clock.advance(100)
  expect(handed).toEqual([[1, 2], [3]])
  gather.add(4)
  gather.flush()
  gather.flush()
  expect(handed.slice(2)).toEqual([[4]])
  await clock.advance(1000)
  expect(handed).toHaveLength(3)
})

test("a flush with a minimum age keeps younger items until they can go with later ones", async () => {
  const clock = new FakeClock()
  const handed: (readonly number[])[] = []
  const gather = new Collector<number>(clock, 100, (items) => handed.push(items))
  gather.add(1)
  gather.flush(20)
  await clock.advance(19)
  gather.add(2)
  gather.flush(20)
  expect(handed).toEqual([])
  await clock.advance(1)
  gather.flush(20)
  expect(handed).toEqual([[1, 2]])
  await clock.advance(1000)
  expect(handed).toHaveLength(1)
})
