import type { Clock } from "../core/ports.ts"
import type { Ask } from "../core/task.ts"
import { type Presence, refusedAt } from "../core/watchdog.ts"

/** What is known of persons at OpenCode: questions wait longer while one could answer. */
export class Attendance {
  readonly #clock: Clock
  readonly #timeout: number | null
  readonly #isTerminal: () => Promise<boolean>
  #terminal: Promise<void> | undefined
  #inTerminal = false
  #pages = 0
  #wroteAt = Number.NEGATIVE_INFINITY

  /**
   * `timeout`: the option `permissionTimeout`. `isTerminal`: this OpenCode is one with a screen of its own; asked once,
   * at the first question.
   */
  constructor(clock: Clock, timeout: number | null, isTerminal: () => Promise<boolean> = async () => false) {
    this.#clock = clock
    this.#timeout = timeout
    this.#isTerminal = isTerminal
  }

  get now(): Presence {
    return { isOpen: this.#inTerminal || this.#pages > 0, wroteAt: this.#wroteAt }
  }

  /** When a question is refused that nobody answers. */
  refusedAt(ask: Ask): number {
    return refusedAt(ask, this.#timeout, this.now)
  }

  /** A person has written to an agent, or has had something done. */
  wrote(): void {
    this.#wroteAt = this.#clock.now()
  }

  /** Somebody has opened the page. Returns what to call when it is closed. */
  opened(): () => void {
    this.#pages++
    let isOpen = true
    return () => {
      if (isOpen) this.#pages--
      isOpen = false
    }
  }

  /** Finds out about the screen. Never rejects. */
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
