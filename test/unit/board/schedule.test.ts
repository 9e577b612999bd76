import { describe, expect, test, vi } from "vitest"
import { DEFAULT_SCHEDULE } from "../../../src/features/board/options.ts"
import { Schedule } from "../../../src/features/board/schedule.ts"

/** Thousands of times a year, each of which takes the system's calendar. */
vi.setConfig({ testTimeout: 60_000 })

const HOUR_MS = 3_600_000
const START = Date.parse("2026-01-01T00:00:00Z")
const END = Date.parse("2027-01-01T00:00:00Z")

/** All times of a year. */
function yearOf(schedule: Schedule): number[] {
  const times: number[] = []
  for (let at = schedule.next(START); at !== undefined && at < END; at = schedule.next(at)) times.push(at)
  return times
}

describe.each(["Europe/Berlin", "America/New_York"])("a year in %s", (zone) => {
  const format = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", hourCycle: "h23", timeZone: zone })
  const localHour = (at: number) => Number(format.format(at))

  test("has sixteen rounds a day, from 6 to 21 local time, each once, daylight changes or not", () => {
    const times = yearOf(new Schedule(DEFAULT_SCHEDULE, zone))
    expect(Math.abs(times.length - 16 * 365)).toBeLessThanOrEqual(16)
    const hours = times.map(localHour)
    const odd = hours.slice(1).filter((hour, index) => hour !== (hours[index] === 21 ? 6 : (hours[index] ?? 0) + 1))
    expect(odd).toEqual([])
  })

  test("has a round in the night once a day, also when that hour is left out or comes twice", () => {
    const times = yearOf(new Schedule("30 2 * * *", zone))
    expect(times).toHaveLength(365)
  })
})

test("a pattern for every hour neither doubles nor drops one, all year", () => {
  const times = yearOf(new Schedule("0 * * * *", "Europe/Berlin"))
  const gaps = times.slice(1).map((at, index) => at - (times[index] as number))
  expect(new Set(gaps)).toEqual(new Set([HOUR_MS]))
})

test("a pattern that never comes has no next time; one that is none is refused", () => {
  expect(new Schedule("0 0 30 2 *", "UTC").next(START)).toBeUndefined()
  expect(() => new Schedule("whenever")).toThrow()
})

test("a time is told as today's, or with its weekday, or with its date where that says too little", () => {
  const schedule = new Schedule(DEFAULT_SCHEDULE, "Europe/Berlin")
  const now = Date.parse("2026-03-02T20:30:00Z")
  expect(schedule.text(Date.parse("2026-03-02T21:00:00Z"), now)).toBe("22:00")
  expect(schedule.text(Date.parse("2026-03-03T05:00:00Z"), now)).toBe("Tue 06:00")
  expect(schedule.text(Date.parse("2026-03-08T05:00:00Z"), now)).toBe("Sun 06:00")
  expect(schedule.text(Date.parse("2026-03-09T05:00:00Z"), now)).toBe("9 Mar 06:00")
  expect(schedule.text(Date.parse("2026-02-02T05:00:00Z"), now)).toBe("2 Feb 06:00")
  expect(schedule.text(Date.parse("2026-12-31T23:30:00Z"), now)).toBe("1 Jan 2027 00:30")
})
