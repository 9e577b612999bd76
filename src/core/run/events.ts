import type { Message } from "../ports.ts"
import type { Ask } from "../task.ts"
import type { ActiveRun } from "./active-run.ts"
import type { Input, MachineStep, RunContext } from "./inputs.ts"
import { checkLimits } from "./limits.ts"
import {
  callsIn,
  type Observed,
  withAnswer,
  withDelta,
  withMessages,
  withRepeatedCall,
  withText,
  withTool,
} from "./progress.ts"
import { sayRepeats } from "./prompts.ts"
import {
  andThen,
  type Handler,
  markIdle,
  readMessages,
  recordActivity,
  recordRetry,
  stay,
  withCommands,
} from "./steps.ts"

/** Delay before the parent's model is told of an open question, in ms. */
const HINT_AFTER_MS = 15_000

/** Updates observations; if a last word was being written, a completed step ends it. */
function withTold(run: ActiveRun, observed: Observed): ActiveRun {
  const { lastWord } = run
  const isSpoken =
    observed.ended > run.observed.ended && (lastWord?.state === "speaking" || lastWord?.againAt !== undefined)
  return { ...run, observed: observed, ...(isSpoken && lastWord && { lastWord: { ...lastWord, state: "spoke" } }) }
}

export const withReadMessages = (run: ActiveRun, messages: readonly Message[]): ActiveRun =>
  withTold(run, withMessages(run.observed, messages))

type Heard = Extract<Input, { type: "event" }>["event"]

/** Handles an event of the run's session, or of a session below it. */
export const event: Handler<"event"> = (given, { event }, context) => {
  // Writing a record updates the session: no sign of life.
  if (event.type === "updated") return stay(given)
  // Nobody is to answer questions asked between the end and the stop.
  if (given.closing)
    return { run: given, commands: event.type === "asked" ? [{ do: "refuse", ask: event.ask, text: "" }] : [] }
  const own = "sessionID" in event && event.sessionID === given.sessionID
  const run = { ...given, observed: given.observed.heard ? given.observed : { ...given.observed, heard: true } }
  if (event.type === "idle") {
    if (!own) return stay(run)
    const next = markIdle({ ...run, retry: undefined }, context)
    return andThen(next, (rested) => readMessages(rested, context))
  }
  const alive = recordActivity(run, context.now)
  if (!own) return ofAny(alive, event)
  return ofItsOwn(ANSWERS.includes(event.type) ? { ...alive, failing: undefined } : alive, event, context)
}

/** Events that prove an answer of the run's model. */
const ANSWERS: readonly Heard["type"][] = ["began", "thinking", "text", "text-delta", "tool", "answered"]

function ofItsOwn(run: ActiveRun, event: Heard, context: RunContext): MachineStep {
  switch (event.type) {
    case "active":
      return stay(recordRetry(run, event.activity, context.now))
    case "began":
      return stay({ ...run, observed: { ...run.observed, began: true } })
    case "text":
      return stay({
        ...withTold(run, withText(run.observed, event.partID, event.text, event.messageID)),
        endsText: event.text.trim() !== "",
      })
    case "text-delta":
      return stay(withTold(run, withDelta(run.observed, event.partID, event.delta, event.messageID)))
    case "answered": {
      const next = withTold(
        event.summary ? askedNext(run) : run,
        withAnswer(run.observed, { ...event, id: event.messageID }),
      )
      return withCommands(checkLimits(next, context), [{ do: "check shared limits" }])
    }
    case "tool":
      return called(run, event, context)
    case "error":
      return readMessages({ ...run, error: { ...event.error, at: context.now } }, context)
  }
  return ofAny(run, event)
}

/** The request that follows a compaction asks for the last word: what the compaction itself took does not end the run. */
const askedNext = (run: ActiveRun): ActiveRun =>
  run.lastWord?.state === "told" ? { ...run, lastWord: { ...run.lastWord, state: "speaking" } } : run

/** Tells an agent that repeats one call, and ends it if it goes on. */
function called(run: ActiveRun, event: Heard & { type: "tool" }, context: RunContext): MachineStep {
  const { observed } = run
  const { run: next } = ofAny(run, event)
  const { tool, call } = event
  if (!next || !call || callsIn(next.observed, "ended") === callsIn(observed, "ended")) return stay(next ?? run)
  const after = { ...next, observed: withRepeatedCall(next.observed, tool, call) }
  const { maxRepeats } = context.options
  const times = after.observed.repeated?.times ?? 0
  if (maxRepeats === 0 || times < maxRepeats) return stay(after)
  if (times === maxRepeats && !after.lastWord) return sayRepeats(after, { tool, times }, context)
  return checkLimits(after, context)
}

function ofAny(run: ActiveRun, event: Heard): MachineStep {
  switch (event.type) {
    case "tool": {
      const { callID: id, tool, state, messageID } = event
      return stay(withTold(run, withTool(run.observed, { id, tool, state, messageID })))
    }
    case "asked":
      return asked(run, event.ask)
    case "replied":
      return stay(replied(run, event.askID))
  }
  return stay(run)
}

const withAsk = (run: ActiveRun, ask: Ask): ActiveRun => ({
  ...run,
  asks: [...run.asks.filter(({ id }) => id !== ask.id), ask],
})

const replied = (run: ActiveRun, askID: string): ActiveRun =>
  run.asks.some(({ id }) => id === askID) ? { ...run, asks: run.asks.filter(({ id }) => id !== askID) } : run

const asked = (run: ActiveRun, ask: Ask): MachineStep => {
  const hintAt = run.hintAt ?? ask.askedAt + HINT_AFTER_MS
  return { run: { ...withAsk(run, ask), hintAt }, commands: [{ do: "announce", ask }] }
}

/** Open questions as read from OpenCode: the event of one may be lost. */
export const questions: Handler<"questions"> = (run, { open, at }) => {
  if (run.observed.heard && run.lastSignAt >= at) return stay(run)
  const known = (id: string) => run.asks.some((ask) => ask.id === id)
  const still = {
    ...run,
    askedOfSilence: run.lastSignAt,
    asks: run.asks.filter(({ id }) => open.some((ask) => ask.id === id)),
  }
  return open
    .filter(({ id }) => !known(id))
    .reduce<MachineStep>((step, ask) => andThen(step, (next) => asked(next, ask)), stay(still))
}

/** Usage from messages, where no event tells it. */
export const counted: Handler<"counted"> = (run, { messages }, context) =>
  withCommands(checkLimits(withReadMessages(run, messages), context), [{ do: "check shared limits" }])
