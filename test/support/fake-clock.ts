import type { Clock } from "../../src/core/ports.ts"

type Timer = { readonly at: number; readonly order: number; readonly owner: ClockView; readonly run: () => void }

/** Lets everything happen that waits for nothing but promises. */
export const flush = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Time that stands still until a test lets it pass. */
export class FakeClock implements Clock {
  #now: number
  #order = 0
  readonly #timers = new Set<Timer>()
  readonly #own = new ClockView(this)

  constructor(start = 1_700_000_000_000) {
    this.#now = start
  }

  now(): number {
    return this.#now
  }

  after(ms: number, run: () => void): () => void {
    return this.#own.after(ms, run)
  }

  /** The same time with timers of its own, which can be counted and thrown away: a process. */
  view(): ClockView {
    return new ClockView(this)
  }

  /** Runs what is due within `ms`, in order, with all that follows from each before the next. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms
    await flush()
    for (let timer = this.#next(end); timer; timer = this.#next(end)) {
      this.#timers.delete(timer)
      this.#now = Math.max(this.#now, timer.at)
      timer.run()
      await flush()
    }
    this.#now = end
  }

  /** The machine sleeps: time passes, and nothing happens before it wakes. */
  async sleep(ms: number): Promise<void> {
    this.#now += ms
    await this.advance(0)
  }

  /** Somebody sets the clock back: what is due comes no later for that. */
  setBack(ms: number): void {
    this.#now -= ms
    for (const timer of [...this.#timers]) {
      this.#timers.delete(timer)
      this.#timers.add(Object.assign(timer, { at: timer.at - ms }))
    }
  }

  /** Lets time pass until `condition` holds; throws where it does not within `ms`. */
  async until(condition: () => boolean, ms = 3_600_000): Promise<void> {
    const end = this.#now + ms
    await flush()
    while (!condition()) {
      const timer = this.#next(end)
      if (!timer) throw new Error(`not within ${ms} ms: ${condition}`)
      await this.advance(Math.max(0, timer.at - this.#now))
    }
  }

  /** The same where it need not hold: true where it did within `ms`, and no time has passed since. */
  async advanceUntil(condition: () => boolean, ms: number): Promise<boolean> {
    const end = this.#now + ms
    await flush()
    for (let timer = this.#next(end); timer && !condition(); timer = this.#next(end))
      await this.advance(Math.max(0, timer.at - this.#now))
    if (!condition()) await this.advance(end - this.#now)
    return condition()
  }

  count(owner: ClockView): number {
    return [...this.#timers].filter((timer) => timer.owner === owner).length
  }

  clear(owner: ClockView): void {
    for (const timer of this.#timers) if (timer.owner === owner) this.#timers.delete(timer)
  }

  schedule(owner: ClockView, ms: number, run: () => void): () => void {
    const timer = { at: this.#now + Math.max(0, ms), order: this.#order++, owner, run }
    this.#timers.add(timer)
    return () => void this.#timers.delete(timer)
  }

  #next(end: number): Timer | undefined {
    let first: Timer | undefined
    for (const timer of this.#timers) {
      if (timer.at > end || timer.owner.frozen) continue
      if (!first || timer.at < first.at || (timer.at === first.at && timer.order < first.order)) first = timer
    }
    return first
  }
}

export class ClockView implements Clock {
  readonly #clock: FakeClock
  #dead = false
  /** The process stands still: its timers come when it goes on. */
  frozen = false

  constructor(clock: FakeClock) {
    this.#clock = clock
  }

  now(): number {
    return this.#clock.now()
  }

  after(ms: number, run: () => void): () => void {
    return this.#dead ? () => {} : this.#clock.schedule(this, ms, run)
  }

  /** Timers that have not fired. */
  get pending(): number {
    return this.#clock.count(this)
  }

  /** No timer fires any more, and no new one is taken. */
  kill(): void {
    this.#dead = true
    this.#clock.clear(this)
  }
}
