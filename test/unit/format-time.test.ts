import { afterEach, expect, test } from "vitest"
import { formatTime } from "../../src/lib/format.ts"

const zone = process.env.TZ
afterEach(() => {
  if (zone === undefined) delete process.env.TZ
  else process.env.TZ = zone
})

test.each([
  ["America/Los_Angeles", "2026-03-20T02:30:00Z", "2026-03-19 19:30"],
  ["Asia/Tokyo", "2026-03-19T20:30:00Z", "2026-03-20 05:30"],
  ["America/Los_Angeles", "2026-02-02T02:30:00Z", "2026-02-01 18:30"],
])("a time more than a week away is shown with its local date in %s", (TZ, at, text) => {
  process.env.TZ = TZ
  expect(formatTime(Date.parse(at), Date.parse("2026-03-02T08:00:00Z"))).toBe(text)
})
