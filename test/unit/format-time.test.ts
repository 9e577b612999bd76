import { afterEach, expect, test } from "vitest"
import { formatTime } from "../../src/lib/format.ts"

const zone = process.env.TZ
afterEach(() => {
  if (zone === undefined) delete process.env.TZ
  else process.env.TZ = zone
})

test.each([
  ["America/Los_Angeles", "2026-03-20T02:30:00Z", "19 Mar 19:30"],
  ["Asia/Tokyo", "2026-03-19T20:30:00Z", "20 Mar 05:30"],
  ["America/Los_Angeles", "2026-02-02T02:30:00Z", "1 Feb 18:30"],
])("a far time is shown with its local date in %s", (TZ, at, text) => {
  process.env.TZ = TZ
  expect(formatTime(Date.parse(at), Date.parse("2026-03-02T08:00:00Z"))).toBe(text)
})

test("a time is shown alone for today, with its weekday within six days, and otherwise with its date", () => {
  process.env.TZ = "Europe/Berlin"
  const shown = (at: string) => formatTime(Date.parse(at), Date.parse("2026-03-02T20:30:00Z"))
  expect(shown("2026-03-02T21:00:00Z")).toBe("22:00")
  expect(shown("2026-03-03T05:00:00Z")).toBe("Tue 06:00")
  expect(shown("2026-03-08T05:00:00Z")).toBe("Sun 06:00")
  expect(shown("2026-03-09T05:00:00Z")).toBe("9 Mar 06:00")
  expect(shown("2026-02-02T05:00:00Z")).toBe("2 Feb 06:00")
  expect(shown("2026-12-31T23:30:00Z")).toBe("1 Jan 2027 00:30")
})
