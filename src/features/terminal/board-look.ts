import type { BoardState } from "../board/state.ts"
import type { Store } from "../board/store/store.ts"
import type { Watch } from "../board/store/watch.ts"

/** How often a look is taken at what other processes run, and at what was not heard of. */
const LOOK_MS = 15_000

export type BoardLookPorts = {
  /** The files of the board that is the nearest now; undefined where there is to be none. */
  readonly files: () => Store | undefined
  /** The board has changed, or what other processes run on it is to be looked at. */
  readonly found: (state: BoardState) => Promise<void>
}

/** Looks at the board's files: when they change, by the clock, and when somebody asks. */
export class BoardLook {
  readonly #ports: BoardLookPorts
  #watcher: Watch | undefined
  /** The board as it was read last. */
  #present: BoardState | undefined
  /** Whether there was a board at the last look. */
  #existed = false
  /** What other processes run is to be looked at, too. */
  #isDue = false
  #timer: ReturnType<typeof setInterval> | undefined
  #looking: Promise<void> | undefined
  #again = false

  constructor(ports: BoardLookPorts) {
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

  /** A look at the board, and at what other processes run on it. Never rejects. */
  look(): Promise<void> {
    this.#isDue = true
    return this.#lookAtFile()
  }

  /** One look at a time, and one more for all that is asked for meanwhile. Never rejects. */
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
    // While there is none, the folders above may have come or gone: another one may be the nearest by now.
    const exists = await files.exists()
    if (!this.#isOn) return
    if (!this.#existed || !exists) this.#unwatch()
    this.#existed = exists
    this.#watcher ??= files.watch(() => void this.#lookAtFile())
    const state = await files.look().catch(() => undefined)
    // One that is being mended: there is another look.
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
