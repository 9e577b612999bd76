import type { Message } from "../ports.ts"
import type { Ask } from "../task.ts"
import type { ActiveRun } from "./active-run.ts"
import type { Input, Step, World } from "./inputs.ts"
import { checkLimits } from "./limits.ts"
import {
  callsIn,
  type Observed,
  repeatTold,
  withAnswer,
  withDelta,
  withMessages,
  withText,
  withTool,
} from "./progress.ts"
import { sayRepeats } from "./prompts.ts"
import { also, type Handler, looks, rested, sign, stay, trying, withCommands } from "./steps.ts"

/** How long a question may stay open before the parent's model hears of it, in ms. */
const HINT_AFTER_MS = 15_000

/** What is told by now; a step that has ended was the last word where it was to be. */
function withTold(run: ActiveRun, told: Observed): ActiveRun {
  const { lastWord } = run
  const isSpoken =
    told.ended > run.observed.ended && (lastWord?.state === "speaking" || lastWord?.againAt !== undefined)
  return { ...run, observed: told, ...(isSpoken && lastWord && { lastWord: { ...lastWord, state: "spoke" } }) }
}

/** Takes in its messages as the host has them. */
export const readIn = (run: ActiveRun, messages: readonly Message[]): ActiveRun =>
  withTold(run, withMessages(run.observed, messages))

type Heard = Extract<Input, { type: "heard" }>["event"]

/** Takes in one event of its session, or of one below it. */
export const heard: Handler<"heard"> = (given, { event }, world) => {
  // A session is also updated when a record is written there, by us: that is no sign of its life.
  if (event.type === "updated") return stay(given)
  // What it asks between its end and its stop nobody is to answer.
  if (given.closing)
    return { run: given, commands: event.type === "asked" ? [{ do: "refuse", ask: event.ask, text: "" }] : [] }
  const own = "sessionID" in event && event.sessionID === given.sessionID
  const run = { ...given, observed: given.observed.heard ? given.observed : { ...given.observed, heard: true } }
  if (event.type === "idle") {
    if (!own) return stay(run)
    const next = rested({ ...run, retry: undefined }, world)
    return also(next, (rested) => looks(rested, world))
  }
  const alive = sign(run, world.now)
  if (!own) return ofAny(alive, event)
  return ofItsOwn(ANSWERS.includes(event.type) ? { ...alive, failing: undefined } : alive, event, world)
}

/** By these its model shows that it answers. */
const ANSWERS: readonly Heard["type"][] = ["began", "thinking", "text", "text-delta", "tool", "answered"]

function ofItsOwn(run: ActiveRun, event: Heard, world: World): Step {
  switch (event.type) {
    case "active":
      return stay(trying(run, event.activity, world.now))
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
      return withCommands(checkLimits(next, world), [{ do: "share" }])
    }
    case "tool":
      return called(run, event, world)
    case "error":
      return looks({ ...run, error: { ...event.error, at: world.now } }, world)
  }
  return ofAny(run, event)
}

/** The request that follows a compaction asks for the last word: what the compaction itself took does not end the run. */
const askedNext = (run: ActiveRun): ActiveRun =>
  run.lastWord?.state === "told" ? { ...run, lastWord: { ...run.lastWord, state: "speaking" } } : run

/** An agent that goes round in a circle is told so, and ended if it goes on. */
function called(run: ActiveRun, event: Heard & { type: "tool" }, world: World): Step {
  const { observed: told } = run
  const { run: next } = ofAny(run, event)
  const { tool, call } = event
  if (!next || !call || callsIn(next.observed, "ended") === callsIn(told, "ended")) return stay(next ?? run)
  const after = { ...next, observed: repeatTold(next.observed, tool, call) }
  const { maxRepeats } = world.options
  const times = after.observed.repeated?.times ?? 0
  if (maxRepeats === 0 || times < maxRepeats) return stay(after)
  if (times === maxRepeats && !after.lastWord) return sayRepeats(after, { tool, times }, world)
  return checkLimits(after, world)
}

function ofAny(run: ActiveRun, event: Heard): Step {
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

const asked = (run: ActiveRun, ask: Ask): Step => {
  const hintAt = run.hintAt ?? ask.askedAt + HINT_AFTER_MS
  return { run: { ...withAsk(run, ask), hintAt }, commands: [{ do: "announce", ask }] }
}

/** The open questions of a run of which nothing is heard, or nothing since: the event that told of one may be lost. */
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
    .reduce<Step>((step, ask) => also(step, (next) => asked(next, ask)), stay(still))
}

/** What it spends, where no event tells that. */
export const counted: Handler<"counted"> = (run, { messages }, world) =>
  withCommands(checkLimits(readIn(run, messages), world), [{ do: "share" }])
