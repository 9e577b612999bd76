import { expect, test } from "vitest"
import { Collector } from "../../src/lib/collector.ts"
import { FakeClock } from "../support/fake-clock.ts"

test("what comes within the time is handed over in one go, what comes later in another", async () => {
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

test("flushed with a least age, what came just now stays, and goes with what comes meanwhile", async () => {
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
