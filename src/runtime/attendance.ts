import type { Clock } from "../core/ports.ts"
import type { Ask } from "../core/task.ts"
import { askTimeoutAt, type Presence } from "../core/watchdog.ts"

/** Presence of users: questions wait longer while one could answer. */
export class Attendance {
  readonly #clock: Clock
  readonly #timeout: number | null
  readonly #isTerminal: () => Promise<boolean>
  #terminal: Promise<void> | undefined
  #inTerminal = false
  #pages = 0
  #wroteAt = Number.NEGATIVE_INFINITY

  /** `timeout`: option `permissionTimeout`. `isTerminal` is called once, at the first question. */
  constructor(clock: Clock, timeout: number | null, isTerminal: () => Promise<boolean> = async () => false) {
    this.#clock = clock
    this.#timeout = timeout
    this.#isTerminal = isTerminal
  }

  get now(): Presence {
    return { isOpen: this.#inTerminal || this.#pages > 0, wroteAt: this.#wroteAt }
  }

  /** When an unanswered question is refused. */
  refusedAt(ask: Ask): number {
    return askTimeoutAt(ask, this.#timeout, this.now)
  }

  /** A user has written or acted. */
  wrote(): void {
    this.#wroteAt = this.#clock.now()
  }

  /** A page was opened. The result is called when it is closed. */
  opened(): () => void {
    this.#pages++
    let isOpen = true
    return () => {
      if (isOpen) this.#pages--
      isOpen = false
    }
  }

  /** Finds out whether OpenCode has a screen. Never rejects. */
  look(): Promise<void> {
    this.#terminal ??= this.#isTerminal().then(
      (isTerminal) => {
        this.#inTerminal = isTerminal
      },
      () => {},
    )
    return this.#terminal
  }
}
