/** The value below which `share` of the samples lie, interpolated; NaN for no samples. */
const quantile = (samples: readonly number[], share: number): number => {
  const sorted = [...samples].sort((a, b) => a - b)
  const place = (sorted.length - 1) * share
  const low = sorted[Math.floor(place)] ?? Number.NaN
  const high = sorted[Math.ceil(place)] ?? Number.NaN
  return low + (high - low) * (place - Math.floor(place))
}

export const median = (samples: readonly number[]): number => quantile(samples, 0.5)

export type Unit = "ms" | "s" | "MB" | "KB" | "µs" | "calls" | "tasks" | "requests" | "tokens" | "%"

const DIGITS: Readonly<Partial<Record<Unit, number>>> = { s: 2, µs: 2, KB: 2, MB: 1 }

/** A figure for readers: few digits, those that matter. */
export const figure = (value: number, unit: Unit): string => {
  if (Number.isNaN(value)) return "–"
  const digits = DIGITS[unit] ?? (Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : 1)
  return `${value.toFixed(digits)} ${unit}`
}

/** Median and, in brackets, the middle half of the samples. */
export const summary = (samples: readonly number[], unit: Unit): string => {
  const middle = figure(median(samples), unit)
  if (samples.length < 2) return middle
  const bare = (share: number) => figure(quantile(samples, share), unit).split(" ")[0]
  return `${middle} (${bare(0.25)}–${bare(0.75)})`
}
