import type { BoardState } from "../../board/state.ts"
import type { Store, Watch } from "../../board/store/store.ts"

/** Interval for other processes' runs and missed events. */
const LOOK_MS = 15_000

export type BoardReaderPorts = {
  /** Files of the current project's board; undefined where the board is off. */
  readonly files: () => Store | undefined
  /** Called when the board changed, or other processes' runs should be read. */
  readonly found: (state: BoardState) => Promise<void>
}

/** Reads the board's files on changes, by the clock, and on request. */
export class BoardReader {
  readonly #ports: BoardReaderPorts
  #watcher: Watch | undefined
  /** Last read state. */
  #present: BoardState | undefined
  /** Whether the board existed at the last look. */
  #existed = false
  /** Other processes' runs must be read, too. */
  #isDue = false
  #timer: ReturnType<typeof setInterval> | undefined
  #looking: Promise<void> | undefined
  #again = false

  constructor(ports: BoardReaderPorts) {
    this.#ports = ports
  }

  begin(): void {
    this.#timer = setInterval(() => void this.look(), LOOK_MS)
    this.#timer.unref?.()
    void this.look()
  }

  end(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
    this.#unwatch()
    this.#existed = false
    this.#present = undefined
  }

  /** Reads the board, and other processes' runs. Never rejects. */
  look(): Promise<void> {
    this.#isDue = true
    return this.#lookAtFile()
  }

  /** One read at a time, and one more for all requests meanwhile. Never rejects. */
  #lookAtFile(): Promise<void> {
    this.#again = true
    this.#looking ??= this.#looks().finally(() => {
      this.#looking = undefined
    })
    return this.#looking
  }

  async #looks(): Promise<void> {
    while (this.#again) {
      this.#again = false
      await this.#lookOnce()
    }
  }

  async #lookOnce(): Promise<void> {
    const files = this.#isOn ? this.#ports.files() : undefined
    if (!files) return
    // Without the folder, its parents may change: watch the nearest one again.
    const exists = await files.exists()
    if (!this.#isOn) return
    if (!this.#existed || !exists) this.#unwatch()
    this.#existed = exists
    this.#watcher ??= files.watch(() => void this.#lookAtFile())
    const state = await files.look().catch(() => undefined)
    // An unreadable file may be being edited: it is read again later.
    if (!this.#isOn || !state || (state === this.#present && !this.#isDue)) return
    this.#present = state
    this.#isDue = false
    await this.#ports.found(state)
  }

  get #isOn(): boolean {
    return this.#timer !== undefined
  }

  #unwatch(): void {
    this.#watcher?.close()
    this.#watcher = undefined
  }
}
