import { isFinalFinish, RECENT_TOOLS, withoutShells } from "../outcome.ts"
import type { CallState, EndedCall, Finish, Message, MessagePart } from "../ports.ts"
import { addUsage, NO_USAGE, type Repeated, type Usage } from "../task.ts"

/** Tail of the text kept for display. */
const KEPT_TEXT_CHARS = 4000

/** Longest call that may count as a repetition, in ms. Longer calls wait for something on purpose. */
const MOST_REPEATED_MS = 10_000

const CALL_STATES: readonly CallState[] = ["pending", "running", "ended"]

type Answer = {
  readonly hasOutput: boolean
  readonly called: boolean
  readonly usage?: Usage
  readonly finish?: Finish
}

/** `summary`: a compaction wrote the message. */
type Ended = { readonly id: string; readonly usage: Usage; readonly finish: Finish; readonly summary?: boolean }

/**
 * Work of a run from events and messages. Events are fast and may be lost, messages are complete; ids keep both from
 * being counted twice.
 */
export type Observed = {
  /** Tool calls by message and call id. */
  readonly calls: ReadonlyMap<string, CallState>
  readonly answers: ReadonlyMap<string, Answer>
  /** Number of answers that have ended. */
  readonly ended: number
  readonly usage: Usage
  readonly recentTools: readonly string[]
  readonly textPart: string
  readonly text: string
  /** Events arrive for this run. OpenCode's own events come first, so the model may not have begun. */
  readonly hasEvents: boolean
  readonly began: boolean
  /** Last ended call of the run's own agent. */
  readonly repeated?: Repeated & { readonly digest: string }
}

export const NOTHING_OBSERVED: Observed = Object.freeze({
  calls: new Map(),
  answers: new Map(),
  ended: 0,
  usage: NO_USAGE,
  recentTools: [],
  textPart: "",
  text: "",
  hasEvents: false,
  began: false,
})

/** True once an event or a text shows that the model has begun to answer. */
export const hasBegun = ({ began, answers }: Observed): boolean => began || answers.size > 0

/** `byProvider`: the provider runs the tool, so its result leads to no further step. */
export function withTool(
  observed: Observed,
  call: { id: string; tool: string; state: CallState; messageID: string; byProvider?: boolean },
): Observed {
  const updated = call.byProvider ? observed : withOutput(observed, call.messageID, true)
  const key = `${call.messageID} ${call.id}`
  const known = updated.calls.get(key)
  if (known && CALL_STATES.indexOf(call.state) <= CALL_STATES.indexOf(known)) return updated
  const calls = new Map(updated.calls).set(key, call.state)
  if (known) return { ...updated, calls }
  return { ...updated, calls, recentTools: [...updated.recentTools, call.tool].slice(-RECENT_TOOLS) }
}

export const callState = ({ state }: Extract<MessagePart, { type: "tool" }>): CallState =>
  state === "completed" || state === "error" ? "ended" : state

export const callsIn = ({ calls }: Observed, state: CallState): number =>
  [...calls.values()].filter((each) => each === state).length

/** Forgets open calls after a stop: the stop has cut them off, and no event reports their end. */
export const withoutOpenCalls = (observed: Observed): Observed => ({
  ...observed,
  calls: new Map([...observed.calls.keys()].map((key) => [key, "ended"])),
})

/** Records an ended call of the run's own agent, to find repeated ones. */
export function withRepeatedCall(observed: Observed, tool: string, { digest, ms }: EndedCall): Observed {
  if (ms > MOST_REPEATED_MS) return { ...observed, repeated: undefined }
  const times = observed.repeated?.digest === digest ? observed.repeated.times + 1 : 1
  return { ...observed, repeated: { tool, digest, times } }
}

export function withText(observed: Observed, partID: string, text: string, messageID: string): Observed {
  if (text.trim() === "") return observed
  return { ...withOutput(observed, messageID), textPart: partID, text: text.slice(-KEPT_TEXT_CHARS) }
}

export function withDelta(observed: Observed, partID: string, delta: string, messageID: string): Observed {
  const before = observed.textPart === partID ? observed.text : ""
  return { ...withOutput(observed, messageID), textPart: partID, text: (before + delta).slice(-KEPT_TEXT_CHARS) }
}

export function withAnswer(observed: Observed, { id, usage, finish, summary }: Ended): Observed {
  const answer: Answer = observed.answers.get(id) ?? { hasOutput: false, called: false }
  if (answer.usage && answer.finish === finish && isSame(answer.usage, usage)) return observed
  const answers = new Map(observed.answers).set(id, { ...answer, usage, finish })
  if (answer.usage) return { ...observed, answers, usage: [...answers.values()].reduce(sum, NO_USAGE) }
  return { ...observed, answers, ended: observed.ended + (summary ? 0 : 1), usage: addUsage(observed.usage, usage) }
}

/** Merges the run's messages as read, which include what events missed. */
export function withMessages(observed: Observed, messages: readonly Message[]): Observed {
  let next = observed
  const answers = withoutShells(messages).filter(({ role }) => role === "assistant")
  // In earlier answers, a call that a crash or a stop cut off may look open for ever.
  for (const message of answers) next = withMessage(next, message, message !== answers.at(-1))
  return next
}

function withMessage(
  observed: Observed,
  { id, parts, finish, summary, usage = NO_USAGE }: Message,
  isOver: boolean,
): Observed {
  let next = observed
  for (const part of parts) {
    if (part.type === "tool") {
      const { callID, tool, byProvider, call } = part
      const state = isOver ? "ended" : callState(part)
      const isNew = next.calls.get(`${id} ${callID}`) !== "ended"
      next = withTool(next, { id: callID, tool, state, messageID: id, byProvider })
      if (isNew && call) next = withRepeatedCall(next, tool, call)
    }
    // Text from events is newer than stored text.
    if (part.type === "text" && part.text.trim() !== "")
      next = next.hasEvents ? withOutput(next, id) : withText(next, next.textPart, part.text, id)
  }
  return finish === undefined ? next : withAnswer(next, { id, usage, finish, summary })
}

/** Whether the last answer that has ended may be the run's final one: it has text, and calls nothing. */
export function mayHaveAnswered({ answers }: Observed): boolean {
  const last = [...answers.values()].findLast(({ usage }) => usage !== undefined)
  return last?.hasOutput === true && !last.called && isFinalFinish(last.finish)
}

/** Ids of the last consecutive answers without a tool call, and without text or an end. */
export function emptiesIn({ answers }: Observed): readonly string[] {
  const ended = [...answers].filter(([, { usage }]) => usage !== undefined)
  const last = ended.findLastIndex(
    ([, { hasOutput, called, finish }]) => called || (hasOutput && isFinalFinish(finish)),
  )
  return ended.slice(last + 1).map(([id]) => id)
}

/** Usage of answers that are not among the messages, as where a user has undone or deleted them: it was paid, too. */
export function usageBeside({ answers }: Observed, messages: readonly Message[]): Usage {
  const ids = new Set(messages.map(({ id }) => id))
  return [...answers].reduce((total, [id, answer]) => (ids.has(id) ? total : sum(total, answer)), NO_USAGE)
}

const sum = (total: Usage, { usage = NO_USAGE }: Answer): Usage => addUsage(total, usage)

const isSame = (a: Usage, b: Usage): boolean => JSON.stringify(a) === JSON.stringify(b)

function withOutput(observed: Observed, messageID: string, called = false): Observed {
  const answer = observed.answers.get(messageID)
  if (answer?.hasOutput && (answer.called || !called)) return observed
  // An answer that has called has output too, so no call is forgotten here.
  const next = { ...answer, hasOutput: true, called }
  return { ...observed, answers: new Map(observed.answers).set(messageID, next) }
}
