import type { Ask, Progress, Usage } from "../core/task.ts"

const RECENT_TOOLS = 5
/** Enough to show where a child is. */
const KEPT_TEXT_CHARS = 4000

/**
 * What is seen of one run while it goes on, from events: counts by call id, since the host tells of one call several
 * times. Thrown away when the run ends.
 */
export class ProgressTracker {
  readonly #calls = new Map<string, boolean>()
  readonly #asks = new Map<string, Ask>()
  #recentTools: string[] = []
  #openCalls = 0
  #textPart = ""
  #text = ""
  #lastSignAt: number
  #usage: Usage
  #retry: { attempt: number; message: string } | undefined
  /** The last answers in a row without text or tool call. */
  #empty: string[] = []
  #judgedMessage = ""
  #speaking = ""

  /** The last error that the host told of this run's session. */
  error: { name: string; message: string; at: number } | undefined
  /** Since when the session has been idle without an answer to the prompt. */
  stuckSince: number | undefined
  /** Since when the session has been idle with open todos. */
  todosSince: number | undefined
  /** What the session looked like when silence was last checked against the host itself. */
  lastLook: string | undefined
  /** The parent's model was told that the run waits for an answer. */
  hinted = false

  /** `usage` is the session's when the run began. */
  constructor(now: number, usage: Usage) {
    this.#lastSignAt = now
    this.#usage = usage
  }

  /** True while the session is idle and that alone does not end the run yet. */
  get lingers(): boolean {
    return this.stuckSince !== undefined || this.todosSince !== undefined
  }

  sign(now: number): void {
    this.#lastSignAt = now
    this.stuckSince = undefined
    this.todosSince = undefined
  }

  tool(callID: string, tool: string, ended: boolean, messageID: string): void {
    this.#speaks(messageID)
    const known = this.#calls.get(callID)
    if (known === undefined) {
      this.#recentTools = [...this.#recentTools, tool].slice(-RECENT_TOOLS)
      if (!ended) this.#openCalls++
    } else if (ended && !known) this.#openCalls--
    if (!known) this.#calls.set(callID, ended)
  }

  text(partID: string, text: string, messageID: string): void {
    if (text.trim() === "") return
    this.#speaks(messageID)
    this.#textPart = partID
    this.#text = text.slice(-KEPT_TEXT_CHARS)
  }

  textDelta(partID: string, delta: string, messageID: string): void {
    this.#speaks(messageID)
    if (this.#textPart !== partID) {
      this.#textPart = partID
      this.#text = ""
    }
    this.#text = (this.#text + delta).slice(-KEPT_TEXT_CHARS)
  }

  /** A message of the model has ended; without any text or tool call in it, it was empty. */
  answered(messageID: string): void {
    if (this.#judgedMessage === messageID) return
    this.#judgedMessage = messageID
    if (this.#speaking === messageID) this.#empty = []
    else this.#empty.push(messageID)
  }

  /** The host may tell of an answer's end before it tells what was in it. */
  #speaks(messageID: string): void {
    this.#speaking = messageID
    this.#empty.splice(0, this.#empty.indexOf(messageID) + 1)
  }

  retrying(retry: { attempt: number; message: string } | undefined): void {
    this.#retry = retry
  }

  used(usage: Usage): void {
    this.#usage = usage
  }

  asked(ask: Ask): void {
    this.#asks.set(ask.id, ask)
  }

  replied(askID: string): void {
    this.#asks.delete(askID)
  }

  snapshot(): Progress {
    return {
      toolCalls: this.#calls.size,
      recentTools: this.#recentTools,
      lastText: this.#text,
      lastSignAt: this.#lastSignAt,
      usage: this.#usage,
      retry: this.#retry,
      asks: [...this.#asks.values()],
      openCalls: this.#openCalls,
      emptyAnswers: this.#empty.length,
    }
  }
}
