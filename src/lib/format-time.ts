const DAY_MS = 86_400_000

const two = (number: number): string => String(number).padStart(2, "0")

/** Local time for a reader at `now`: `07:12`, `Tue 07:12` on another day, `2026-03-02 07:12` a week away. */
export function formatTime(at: number, now: number): string {
  const date = new Date(at)
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`
  const isToday = date.toDateString() === new Date(now).toDateString()
  if (isToday) return time
  const day = date.toLocaleDateString("en-US", { weekday: "short" })
  if (Math.abs(at - now) < 7 * DAY_MS) return `${day} ${time}`
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`
}
