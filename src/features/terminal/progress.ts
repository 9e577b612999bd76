import type { CallState } from "../../core/ports.ts"
import { callsIn, emptiesIn, NOTHING_OBSERVED, withTool } from "../../core/run/progress.ts"
import type { Ask, Progress } from "../../core/task.ts"
import type { UiMetadata } from "../../runtime/record/ui-metadata.ts"

const NO_SIGNS: UiMetadata = { asks: [] }

/** Live state of a run for display. */
export class ProgressTracker {
  readonly #startedAt: number
  readonly #asks = new Map<string, Ask>()
  #told = NOTHING_OBSERVED
  #retry: Progress["retry"]
  #uiMetadata: UiMetadata = NO_SIGNS
  /** The session was seen at work. */
  begun = false

  constructor(now: number) {
    this.#startedAt = now
  }

  tool(id: string, tool: string, state: CallState, messageID: string): void {
    this.#told = withTool(this.#told, { id, tool, state, messageID })
  }

  retrying(retry: Progress["retry"]): void {
    this.#retry = retry
  }

  asked(ask: Ask): void {
    this.#asks.set(ask.id, ask)
  }

  replied(askID: string): void {
    this.#asks.delete(askID)
  }

  /** Applies UI metadata of a remote task. Returns new questions. */
  elsewhere(uiMetadata: UiMetadata = NO_SIGNS): readonly Ask[] {
    const before = this.#uiMetadata.asks
    this.#uiMetadata = uiMetadata
    return uiMetadata.asks.filter(({ id }) => !before.some((ask) => ask.id === id))
  }

  snapshot(): Progress {
    const { away, preparing, asks } = this.#uiMetadata
    const { calls, recentTools, text, usage } = this.#told
    return {
      toolCalls: calls.size,
      recentTools,
      lastText: text,
      lastSignAt: this.#startedAt,
      usage,
      retry: this.#retry,
      asks: [...this.#asks.values(), ...asks],
      ...(away !== undefined && { away: { host: away, since: 0, most: 0 } }),
      ...(preparing !== undefined && { preparing }),
      openCalls: callsIn(this.#told, "running"),
      pendingCalls: callsIn(this.#told, "pending"),
      ...(this.begun && { begun: true }),
      emptyAnswers: emptiesIn(this.#told).length,
    }
  }
}
