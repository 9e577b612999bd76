import { lastWordRefusal } from "../last-word.ts"
import { classify } from "../outcome.ts"
import type { Message } from "../ports.ts"
import { NOTHING_SPENT, needsBill } from "../spending.ts"
import { type Ask, isUnattended, type Reason, type Task } from "../task.ts"
import { transition } from "../transition.ts"
import { demandOf, MOST_EMPTY_ANSWERS, type RunLimits, refusedAt, type Watched } from "../watchdog.ts"
import { type ActiveRun, expectsMessage, isUndecided, progressOf } from "./active-run.ts"
import { found, lost } from "./contact.ts"
import { fail, isWon } from "./ending.ts"
import type { Command, Step, Verified, World } from "./inputs.ts"
import { callsIn, emptiesIn, withMessages } from "./progress.ts"
import { askLastWord, refusalOf } from "./prompts.ts"
import { also, type Handler, later, looks, rested, sign, stay, trying, waitsForOwn, wordLater } from "./steps.ts"
import { lead } from "./supervising.ts"

/** How long a parent that could not be told of an open question is left alone. */
const HINT_AGAIN_MS = 10_000

/** The run as its limits see it; nothing is added up where no limit asks for it. */
export function watchedAs(run: ActiveRun, world: World): Watched {
  const { task, spent, now } = world
  const limits = limitsOf(world)
  const bill = needsBill(limits, task) ? spent() : NOTHING_SPENT
  const { presence } = world
  const ownTasks = waitsForOwn(world)
  return { task: awake(task, run), progress: progressOf(run), limits, spent: bill, ownTasks, presence, now }
}

const limitsOf = ({ options, purse }: World): RunLimits => ({ ...options, purse })

/** The time for which this process slept does not count. */
const awake = (task: Task, { sleptMs: asleep }: ActiveRun): Task => ({
  ...task,
  run: { ...task.run, startedAt: later(task.run.startedAt, asleep) },
})

/** Does what the run's limits demand. */
export function checkLimits(run: ActiveRun, world: World): Step {
  // What has passed may have cost the last of what there was: it has won all the same.
  if (isWon(run, world)) return stay(run)
  const demand = demandOf(watchedAs(run, world))
  if (!demand) return stay(run)
  const { action, reason } = demand
  if (action === "warn") return warn(run, reason, world)
  if (action === "interrupt") return interrupt(run, world)
  // Its last word may be its answer; and events may have been missed.
  const doubtful = run.lastWord?.state === "spoke" || reason.code === "silence" || reason.code === "empty"
  if (!doubtful) return fail(run, reason, world)
  if (run.verifying) return stay(run)
  const by = run.lastWord?.state !== "spoke" && reason.code === "silence" ? "life" : "messages"
  // A model that sends nothing sends it many times a second: what it sent before is not read again for that.
  const [since] = reason.code === "empty" ? emptiesIn(run.observed) : []
  return { run: { ...run, verifying: true }, commands: [{ do: "verify", reason, by, ...(since && { since }) }] }
}

/** Others have spent what it shares with them; or what it waits for stands still, or goes on. */
export const spent: Handler<"spent"> = (given, _input, world) =>
  timed(given, world, (run, counted) => checkLimits(run, counted))

/** Since when no time counts for a run: all of its own tasks at work stand still, or it waits for a person. */
function stillFor({ idle, stage, asks }: ActiveRun, { childrenPausedSince, options }: World): number | undefined {
  const own = idle || stage === "leading" ? childrenPausedSince() : undefined
  // A question that has a time of its own takes the run's.
  if (own !== undefined || asks.length === 0 || options.permissionTimeout !== null) return own
  return Math.min(...asks.map(({ askedAt }) => askedAt))
}

function timed(given: ActiveRun, world: World, next: (run: ActiveRun, world: World) => Step): Step {
  const { task, now } = world
  const { stillSince, generation } = task.run
  const since = stillFor(given, world)
  if ((since === undefined) === (stillSince === undefined)) return next(given, world)
  const type = since === undefined ? "counting" : "still"
  const at = since === undefined ? now : Math.min(now, Math.max(since, given.lastSignAt))
  const event = { type, generation, at } as const
  const lastWord = wordLater(given.lastWord, now - (stillSince ?? now))
  const { run, commands } = next({ ...given, lastWord }, { ...world, task: transition(task, event) })
  return { run, commands: [{ do: "record", event, write: true }, ...commands] }
}

/** Asks a run for its last word: at its next request, or before a question that is refused for that. */
function warn(run: ActiveRun, reason: Reason, world: World): Step {
  const { now, ownTasks } = world
  const { generation, asks } = run
  const event = { type: "warned", generation, at: now, reason } as const
  const fields = { generation, reason: reason.code }
  const commands: readonly Command[] = [
    { do: "record", event, write: true },
    { do: "log", what: "task asked for its last word", fields },
  ]
  const next: ActiveRun = { ...run, lastWord: { state: "told", reason, at: now } }
  // Who dismisses a question ends the turn of the agent that asked it.
  if (asks.some(({ kind, sessionID }) => kind === "question" && sessionID === run.sessionID)) {
    const step = interrupt(next, world)
    return { run: step.run, commands: [...commands, ...step.commands] }
  }
  const refusals = asks.map((ask) => ({ do: "refuse", ask, text: lastWordRefusal(reason) }) as const)
  const rest: readonly Command[] = ownTasks ? [{ do: "rest?" }] : []
  return { run: { ...next, asks: [] }, commands: [...commands, ...refusals, ...rest] }
}

/** Stops what a run is doing, and asks it once more: it has some time of its own. */
function interrupt(run: ActiveRun, world: World): Step {
  const { lastWord, asks } = run
  return askLastWord({ ...run, lastWord: lastWord && { ...lastWord, againAt: world.now } }, world, asks)
}

/** A run that waits for its own tasks asks its model nothing by itself: it is asked, unless something is on its way. */
export const resting: Handler<"resting"> = (run, _input, world) =>
  run.lastWord?.state === "told" && !expectsMessage(run) ? askLastWord(run, world) : stay(run)

/** Its model is asked: from now on it is saying its last word, where it was told to. */
export const request: Handler<"request"> = (given, _input, { now }) => {
  const run = { ...given, requestedAt: now }
  const { lastWord } = run
  if (!lastWord) return stay(run)
  const state = lastWord.state === "told" ? "speaking" : lastWord.state
  const again = lastWord.againAt === undefined ? {} : { askedAgain: true as const }
  return stay({ ...run, lastWord: { ...lastWord, state, ...again } })
}

/** What the host itself says of a limit that seemed to be passed. */
export const verified: Handler<"verified"> = (given, { reason, found }, world) => {
  const run = { ...given, verifying: false }
  if (!found) return stay(run)
  // The step in which it spoke may have been its last: then its messages end it.
  if (run.lastWord?.state === "spoke")
    return classify(found.messages, "working") ? looks(run, world) : fail(run, reason, world)
  if (reason.code === "empty") {
    const read = { ...run, observed: withMessages(run.observed, found.messages) }
    return emptiesIn(read.observed).length >= MOST_EMPTY_ANSWERS ? fail(read, reason, world) : stay(read)
  }
  const { changed, next } = lookedAlive(run, found)
  const alive = changed || hasCall(found.last, "running") || next.asks.length > 0
  return alive ? stay(sign(next, world.now)) : fail(next, reason, world)
}

function lookedAlive(run: ActiveRun, { last, asks }: Verified): { changed: boolean; next: ActiveRun } {
  const look = JSON.stringify(last)
  const newer = last !== undefined && last.createdAt > run.lastSignAt
  const unheard = hasCall(last, "pending") && callsIn(run.observed, "pending") === 0
  const changed = run.lastLook === undefined ? newer || unheard : run.lastLook !== look
  const known = run.asks.filter(({ id }) => !asks.some((ask) => ask.id === id))
  return { changed, next: { ...run, lastLook: look, asks: [...known, ...asks] } }
}

const hasCall = (message: Message | undefined, state: "pending" | "running"): boolean =>
  message?.parts.some((part) => part.type === "tool" && part.state === state) ?? false

/** The clock: its session is looked at where it seems to do nothing, its limits and its questions always. */
export const tick: Handler<"tick"> = (given, input, world) =>
  timed(given, world, (run, counted) => ticked(run, input, counted))

const ticked: Handler<"tick"> = (given, { doing }, world) => {
  if (given.stage === "held") return checkLimits(given, world)
  // Its own session does nothing, and is not looked at.
  if (given.stage === "leading") return also(checkLimits(sign(given, world.now), world), (run) => lead(run, world))
  const seen = watched(given, doing, world)
  const checked = also(seen, (run) => checkLimits(run, world))
  return also(checked, (run) =>
    run.asks.reduce<Step>((step, ask) => also(step, (next) => lookAtAsk(next, ask, world)), stay(run)),
  )
}

function watched(run: ActiveRun, doing: Parameters<typeof tick>[1]["doing"], world: World): Step {
  if (doing === undefined) return isUndecided(run) ? looks(run, world) : stay(run)
  if (doing === "nothing") return also(rested(found(run, world), world), (next) => looks(next, world))
  if (doing.type === "unreachable") return stay(lost(run, world.now, world))
  return seenAtWork(trying(found(run, world), doing, world.now), world)
}

/** What idleness says of it is over. */
function seenAtWork(given: ActiveRun, world: World): Step {
  const { options, task, now } = world
  const over = { idle: false, stuckSince: undefined, todosSince: undefined, lookAt: undefined, lookedAt: now }
  const run = { ...given, ...over }
  const counts = options.maxTokensPerTask > 0 || needsBill(limitsOf(world), task)
  return counts && !run.observed.heard ? { run, commands: [{ do: "count" }] } : stay(run)
}

function lookAtAsk(run: ActiveRun, ask: Ask, { now, options, task, presence }: World): Step {
  // Nobody can answer it, and nobody can be told so, without contact.
  if (run.away) return stay(run)
  if (now >= refusedAt(ask, options.permissionTimeout, presence)) {
    const asks = run.asks.filter(({ id }) => id !== ask.id)
    const unanswered = [...run.unanswered, ask.what]
    const before = run.refused?.after === run.observed.ended ? run.refused.asks : []
    const refused = { after: run.observed.ended, asks: [...before, ask] }
    return { run: { ...run, asks, unanswered, refused }, commands: [{ do: "refuse", ask, text: refusalOf(ask) }] }
  }
  if (run.hintAt === undefined || now < run.hintAt || run.hinting || isUnattended(task)) return stay(run)
  return { run: { ...run, hinting: true }, commands: [{ do: "hint", ask }] }
}

/** A parent hears once a run that it waits for somebody; where it could not be told, later. */
export const hinted: Handler<"hinted"> = (run, { done }, { now }) =>
  stay({ ...run, hinting: false, hintAt: done ? Number.POSITIVE_INFINITY : now + HINT_AGAIN_MS })

/** A question that could not be refused is still open. */
export const unrefused: Handler<"unrefused"> = (run, { ask }) => stay({ ...run, asks: [...run.asks, ask] })

/** This process slept so long: whatever waits for a time waits as much longer. Less than 0: its clock was set back. */
export const slept: Handler<"slept"> = (run, { ms }, { task }) =>
  stay({
    ...run,
    sleptMs: task.run.stillSince === undefined ? run.sleptMs + ms : run.sleptMs,
    lastSignAt: run.lastSignAt + ms,
    stuckSince: later(run.stuckSince, ms),
    todosSince: later(run.todosSince, ms),
    missingSince: later(run.missingSince, ms),
    lookAt: later(run.lookAt, ms),
    warmUpUntil: later(run.warmUpUntil, ms),
    hintAt: later(run.hintAt, ms),
    away: run.away && { ...run.away, since: run.away.since + ms },
    lastWord: wordLater(run.lastWord, ms),
    asks: run.asks.map((ask) => ({ ...ask, askedAt: ask.askedAt + ms })),
  })
