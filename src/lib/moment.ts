const DAY_MS = 86_400_000

const two = (number: number): string => String(number).padStart(2, "0")

/** A time to come, for a reader at `now`: `07:12`, or `Tue 07:12` on another day. Local time. */
export function moment(at: number, now: number): string {
  const date = new Date(at)
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`
  const isToday = date.toDateString() === new Date(now).toDateString()
  if (isToday) return time
  const day = date.toLocaleDateString("en-US", { weekday: "short" })
  return at - now < 7 * DAY_MS ? `${day} ${time}` : `${date.toISOString().slice(0, 10)} ${time}`
}
