/** How long one call may hold the host's thread; between two calls others run. */
export const CALL_MS = 35

/** Lets others run. */
export const rest = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0))

/**
 * How much to ask of the host in one call, so that none holds its one thread for much longer than `targetMs`: as much
 * as took that long the last time, on this machine and with what it has to do besides.
 */
export class Pace {
  readonly #targetMs: number
  readonly #most: number
  #size: number

  constructor({ first, most, targetMs }: { first: number; most: number; targetMs: number }) {
    this.#size = first
    this.#most = most
    this.#targetMs = targetMs
  }

  get size(): number {
    return this.#size
  }

  /** What was asked for last took so long. One slow call may have had to wait: it halves the next one, no more. */
  took(ms: number): void {
    const fitting = Math.round((this.#size * this.#targetMs) / Math.max(1, ms))
    this.#size = Math.max(1, Math.min(fitting, 2 * this.#size, this.#most), Math.floor(this.#size / 2))
  }
}
