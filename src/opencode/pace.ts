/** Longest time that one call should occupy OpenCode's thread. */
export const CALL_MS = 35

/** Yields to other work. */
export const yieldToEventLoop = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0))

/** Adapts the size of calls so that each occupies OpenCode's one thread for about `targetMs`. */
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

  /** Reports the duration of the last call. A slow call may have waited for others: it only halves the next. */
  took(ms: number): void {
    const fitting = Math.round((this.#size * this.#targetMs) / Math.max(1, ms))
    this.#size = Math.max(1, Math.min(fitting, 2 * this.#size, this.#most), Math.floor(this.#size / 2))
  }
}
