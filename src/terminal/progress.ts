import type { Ask, Progress } from "../core/task.ts"
import { emptyIn, NOTHING_TOLD, toolTold } from "../engine/run/told.ts"

/** What the screen sees of a run while it goes on. */
export class ProgressTracker {
  readonly #startedAt: number
  readonly #asks = new Map<string, Ask>()
  #told = NOTHING_TOLD
  #retry: Progress["retry"]
  /** Its session was seen at work. */
  begun = false

  constructor(now: number) {
    this.#startedAt = now
  }

  tool(id: string, tool: string, ended: boolean, messageID: string): void {
    this.#told = toolTold(this.#told, { id, tool, ended, messageID })
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

  snapshot(): Progress {
    const { calls, recentTools, text, usage, openCalls } = this.#told
    return {
      toolCalls: calls.size,
      recentTools,
      lastText: text,
      lastSignAt: this.#startedAt,
      usage,
      retry: this.#retry,
      asks: [...this.#asks.values()],
      openCalls,
      ...(this.begun && { begun: true }),
      emptyAnswers: emptyIn(this.#told),
    }
  }
}
