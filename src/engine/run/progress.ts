import type { Message } from "../../core/ports.ts"
import { type Ask, addUsage, type LastWord, NO_USAGE, type Progress, type Usage } from "../../core/task.ts"
import { RECENT_TOOLS } from "../../core/verdict.ts"

/** Enough to show where a child is. */
const KEPT_TEXT_CHARS = 4000

/** An answer of the model, as far as it is known: what it used is told when it has ended. */
type Answer = { spoke: boolean; usage?: Usage }

/**
 * What is seen of one run while it goes on. Events are the quick source, and may be lost; messages, whenever they are
 * read, are the true one: both are counted by their ids. Thrown away when the run ends.
 */
export class ProgressTracker {
  /** Tool calls by message and call id; true once they have ended. */
  readonly #calls = new Map<string, boolean>()
  readonly #answers = new Map<string, Answer>()
  readonly #asks = new Map<string, Ask>()
  #recentTools: string[] = []
  #openCalls = 0
  #textPart = ""
  #text = ""
  #lastSignAt: number
  #retry: { attempt: number; message: string } | undefined
  /** Messages that are on their way into the session: the run does not end before they were read. */
  readonly #expected = new Set<string>()
  #missingSince: number | undefined

  /** An event was heard of this run: the next one is likely to be heard too. */
  heard = false
  /** The last error that the host told of this run's session, until something else was heard. */
  error: { name: string; message: string; at: number } | undefined
  /** Since when the session has been idle without an answer to the prompt. */
  stuckSince: number | undefined
  /** Since when the session has been idle with open todos. */
  todosSince: number | undefined
  /** What the session looked like when silence was last checked against the host itself. */
  lastLook: string | undefined
  /** That check is under way. */
  looking = false
  /** The parent's model was told that the run waits for an answer. */
  hinted = false
  /** How far its last word has come, once it was asked for it. */
  lastWord: LastWord | undefined
  /** What was asked and refused, because nobody answered in time. */
  readonly unanswered: string[] = []
  #held = false

  /** How long this process slept while the run went on, in ms: no limit counts that time. */
  asleep = 0

  constructor(now: number) {
    this.#lastSignAt = now
  }

  /** True while it is not the agent's turn: its place is made ready, or its check runs. */
  get held(): boolean {
    return this.#held
  }

  hold(held: boolean): void {
    this.#held = held
  }

  /** True while the session is idle and that alone does not end the run yet. */
  get lingers(): boolean {
    return this.stuckSince !== undefined || this.todosSince !== undefined
  }

  sign(now: number): void {
    this.#lastSignAt = now
    this.stuckSince = undefined
    this.todosSince = undefined
    this.#missingSince = undefined
    this.error = undefined
  }

  /** What the run was told, by message: until it is known to have been read. */
  readonly words = new Map<string, string>()

  /**
   * The text of a word that the session has let lie: what came while it began to answer something else may stand before
   * that answer, and the host takes it for answered.
   */
  unread(messages: readonly Message[]): string | undefined {
    const asked = messages.findLast(({ role }) => role === "user")
    const text = asked && this.words.get(asked.id)
    const passedOver = messages.at(-1)?.role === "assistant" && messages.every(({ parentID }) => parentID !== asked?.id)
    if (!asked || text === undefined || !passedOver) return undefined
    this.words.delete(asked.id)
    return text
  }

  /** This message will come: the run cannot end before it is among its messages. */
  expect(messageID: string): void {
    this.#expected.add(messageID)
  }

  expectNot(messageID: string): void {
    this.#expected.delete(messageID)
  }

  /** A message is on its way, or came after what was looked at last. */
  get expects(): boolean {
    return this.#expected.size > 0
  }

  /** These messages are there, and what is made of the run now counts them in. */
  arrived(messages: readonly Message[]): void {
    for (const { id } of messages) this.#expected.delete(id)
  }

  /** Since when, as far as anybody looked, messages are missing that are to come; undefined where none is. */
  missingSince(now: number): number | undefined {
    this.#missingSince = this.expects ? (this.#missingSince ?? now) : undefined
    return this.#missingSince
  }

  /** The process slept so long: whatever waits for a time waits as much longer. Less than 0: its clock was set back. */
  slept(ms: number): void {
    this.asleep += ms
    this.#lastSignAt += ms
    if (this.stuckSince !== undefined) this.stuckSince += ms
    if (this.todosSince !== undefined) this.todosSince += ms
    const { lastWord } = this
    if (lastWord) {
      const { at, againAt } = lastWord
      this.lastWord = { ...lastWord, at: at + ms, ...(againAt !== undefined && { againAt: againAt + ms }) }
    }
    for (const ask of this.#asks.values()) this.#asks.set(ask.id, { ...ask, askedAt: ask.askedAt + ms })
  }

  tool(callID: string, tool: string, ended: boolean, messageID: string): void {
    this.#speaks(messageID)
    const key = `${messageID} ${callID}`
    const known = this.#calls.get(key)
    if (known === undefined) {
      this.#recentTools = [...this.#recentTools, tool].slice(-RECENT_TOOLS)
      if (!ended) this.#openCalls++
    } else if (ended && !known) this.#openCalls--
    if (!known) this.#calls.set(key, ended)
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
  answered(messageID: string, usage: Usage): void {
    const answer = this.#answer(messageID)
    if (answer.usage === undefined) this.#stepEnded()
    answer.usage = usage
  }

  /** It has spoken; or it was to be interrupted in the step that has just ended by itself. */
  #stepEnded(): void {
    const { lastWord } = this
    if (lastWord?.state === "speaking" || lastWord?.againAt !== undefined)
      this.lastWord = { ...lastWord, state: "spoke" }
  }

  /** Takes in the run's messages as the host has them: what events did not tell is in them. */
  read(messages: readonly Message[]): void {
    for (const { id, role, parts, finish, usage = NO_USAGE } of messages) {
      if (role !== "assistant") continue
      for (const part of parts) {
        if (part.type === "tool")
          this.tool(part.callID, part.tool, part.state === "completed" || part.state === "error", id)
        if (part.type === "text" && part.text.trim() !== "") this.#wrote(part.text, id)
      }
      if (finish !== undefined) this.answered(id, usage)
    }
  }

  retrying(retry: { attempt: number; message: string } | undefined): void {
    this.#retry = retry
  }

  asked(ask: Ask): void {
    this.#asks.set(ask.id, ask)
  }

  replied(askID: string): void {
    this.#asks.delete(askID)
  }

  snapshot(): Progress {
    const answers = [...this.#answers.values()].filter(({ usage }) => usage !== undefined)
    return {
      toolCalls: this.#calls.size,
      recentTools: this.#recentTools,
      lastText: this.#text,
      lastSignAt: this.#lastSignAt,
      usage: answers.reduce((sum, { usage = NO_USAGE }) => addUsage(sum, usage), NO_USAGE),
      retry: this.#retry,
      asks: [...this.#asks.values()],
      openCalls: this.#openCalls + (this.#held ? 1 : 0),
      ...(this.#held && { held: true }),
      lastWord: this.lastWord,
      emptyAnswers: answers.length - 1 - answers.findLastIndex(({ spoke }) => spoke),
    }
  }

  /** What events tell of a text is newer than what is stored. */
  #wrote(text: string, messageID: string): void {
    if (this.heard) this.#speaks(messageID)
    else this.text(this.#textPart, text, messageID)
  }

  #speaks(messageID: string): void {
    this.#answer(messageID).spoke = true
  }

  #answer(messageID: string): Answer {
    const answer = this.#answers.get(messageID) ?? { spoke: false }
    this.#answers.set(messageID, answer)
    return answer
  }
}
