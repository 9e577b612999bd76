import prettyMilliseconds from "pretty-ms"

/** Examples: `850ms`, `12.3s`, `2m 30s`, `1h 2m`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)}ms`
  if (ms < 59_950) return prettyMilliseconds(ms, { secondsDecimalDigits: 1, keepDecimalsOnWholeSeconds: false })
  return prettyMilliseconds(Math.round(ms / 1000) * 1000, { unitCount: 2, secondsDecimalDigits: 0 })
}

/** A growing duration, in whole seconds so that it changes once a second. */
export const ticking = (ms: number): string => (ms < 1000 ? "0s" : duration(Math.floor(ms / 1000) * 1000))
