import { describe, expect, test, vi } from "vitest"
import { DEFAULT_SCHEDULE } from "../../../src/features/board/options.ts"
import { Schedule } from "../../../src/features/board/schedule.ts"
import { HOUR_MS } from "../../../src/lib/format.ts"

/** Thousands of times a year, each of which takes the system's calendar. */
vi.setConfig({ testTimeout: 60_000 })

const START = Date.parse("2026-01-01T00:00:00Z")
const END = Date.parse("2027-01-01T00:00:00Z")

/** All times of a year. */
function yearOf(schedule: Schedule): number[] {
  const times: number[] = []
  for (let at = schedule.next(START); at !== undefined && at < END; at = schedule.next(at)) times.push(at)
  return times
}

describe.each(["Europe/Berlin", "America/New_York"])("a year of rounds in %s", (zone) => {
  const format = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", hourCycle: "h23", timeZone: zone })
  const localHour = (at: number) => Number(format.format(at))

  test("the default schedule has each of its sixteen daily rounds exactly once, even when the clocks change", () => {
    const times = yearOf(new Schedule(DEFAULT_SCHEDULE, zone))
    expect(Math.abs(times.length - 16 * 365)).toBeLessThanOrEqual(16)
    const hours = times.map(localHour)
    const odd = hours.slice(1).filter((hour, index) => hour !== (hours[index] === 21 ? 6 : (hours[index] ?? 0) + 1))
    expect(odd).toEqual([])
  })

  test("a nightly round comes once a day even when its hour is skipped or repeated", () => {
    const times = yearOf(new Schedule("30 2 * * *", zone))
    expect(times).toHaveLength(365)
  })
})

test("an hourly schedule neither repeats nor skips an hour all year", () => {
  const times = yearOf(new Schedule("0 * * * *", "Europe/Berlin"))
  const gaps = times.slice(1).map((at, index) => at - (times[index] as number))
  expect(new Set(gaps)).toEqual(new Set([HOUR_MS]))
})

test("a schedule that never matches has no next time, and an invalid one is refused", () => {
  expect(new Schedule("0 0 30 2 *", "UTC").next(START)).toBeUndefined()
  expect(() => new Schedule("whenever")).toThrow()
})
