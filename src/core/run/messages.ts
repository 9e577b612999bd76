import { oneLine } from "../../lib/text.ts"
import { endAfter } from "../last-word.ts"
import { answerText, classify, isCutByCompaction } from "../outcome.ts"
import type { Message } from "../ports.ts"
import { MOST_COMMAND_CHARS } from "../receipt.ts"
import type { Ending, LastWord } from "../task.ts"
import { transition } from "../transition.ts"
import { invalidReason } from "../value.ts"
import { reasonInTheEnd } from "../watchdog.ts"
import { type ActiveRun, expectsMessage, type SentMessage } from "./active-run.ts"
import { end, fail } from "./ending.ts"
import { readIn } from "./events.ts"
import type { Found, Step, World } from "./inputs.ts"
import { watchedAs } from "./limits.ts"
import {
  arrived,
  askLastWord,
  passedOver,
  refusedText,
  sayAgain,
  sayGoOn,
  tellOfCheck,
  tellOfValue,
} from "./prompts.ts"
import { also, type Handler, looks, moved, sign, stay, waitsForOwn } from "./steps.ts"

/** How long an idle session may leave its prompt unanswered before that counts as the end. */
export const ANSWER_GRACE_MS = 10_000
/** The same for one in a folder of its own of which nothing was heard yet: the host starts an instance for it. */
const PLACE_GRACE_MS = 60_000
/**
 * How long a session whose host told of an error may still begin to answer: the error can be an earlier run's, heard
 * late, and a prompt that was just accepted has not begun.
 */
const ERROR_GRACE_MS = 1000
/** How long a session may leave a word unread that stands last in it. */
const WORD_GRACE_MS = 1000
/** How soon after it has stopped an agent OpenCode undoes the prompt, where its user wants both. */
const UNDO_GRACE_MS = 3000
/** A look that failed, or that has found something undone, is made again after this time. */
const LOOK_AGAIN_MS = 2000
/** Longer ago than any wait lasts. */
const NEVER = Number.NEGATIVE_INFINITY

export const DELETED: Ending = { type: "cancelled", reason: { code: "deleted", text: "Its session was deleted." } }

/** What a look at its messages comes to: it goes on, it is to be checked, or it has ended. */
export const looked: Handler<"looked"> = (given, { waited, found }, world) => {
  const run = { ...given, looking: false, lookAgain: false, lookedAt: world.now }
  // It is looked at again when its machine can be reached.
  if (run.away && !found) return stay(run)
  const step = found ? classified(run, found, waited, world) : stay({ ...run, lookAt: world.now + LOOK_AGAIN_MS })
  return given.lookAgain ? also(step, (next) => looks(next, world)) : step
}

function classified(run: ActiveRun, found: Found, waited: boolean, world: World): Step {
  const { askedAnew: promptID } = found
  if (promptID === undefined) return classifiedSince(run, found, waited, world)
  const event = { type: "asked anew", generation: run.generation, promptID } as const
  const anew = { ...world, task: transition(world.task, event) }
  // What it was asked first is not sent again.
  const step = classifiedSince({ ...run, prompt: undefined, stuckSince: undefined }, found, waited, anew)
  return { run: step.run, commands: [{ do: "record", event, write: true }, ...step.commands] }
}

function classifiedSince(run: ActiveRun, found: Found, waited: boolean, world: World): Step {
  const { messages, gone, busy } = found
  const proven = classify(messages, "working")
  const lookAt = proven && askedAnewBy(proven, found, world)
  if (lookAt !== undefined) return stay({ ...run, stuckSince: undefined, error: undefined, lookAt })
  if (proven) return concluded(arrived(readIn(run, messages), messages), proven, found, waited, world)
  if (gone) return end(run, DELETED, {}, world)
  if (busy) return stay({ ...run, stuckSince: undefined, todosSince: undefined })
  const word = passedOver(run, messages)
  if (word && isLeft(run, messages, world)) return sayAgain(run, word, world)
  if (isRefusedByUs(run, messages)) return askToGoOn(run, messages, refusedText(run.refused?.asks ?? []), world)
  if (isCutByCompaction(messages)) return askToGoOn(run, messages, COMPACTED, world)
  const idle = classify(messages, "idle", run.error)
  const since = run.stuckSince ?? world.now
  const stuck = idle.proven ? run : { ...run, stuckSince: since, ...(word && { lookAt: since + WORD_GRACE_MS }) }
  const next = arrived(readIn(stuck, messages), messages)
  const isEnd = idle.proven || world.now >= stuckUntil(next, world)
  return isEnd ? concluded(next, idle, found, waited, world) : stay(missing(next, world))
}

/**
 * When to look again at a session that was stopped: who undoes the prompt of an agent at work stops it first, and then
 * writes another one. Undefined where it was only stopped.
 */
function askedAnewBy({ reason, at = NEVER }: Ending, { undone }: Found, { now }: World): number | undefined {
  if (reason?.code !== "aborted") return undefined
  if (undone) return now + LOOK_AGAIN_MS
  return now < at + UNDO_GRACE_MS ? at + UNDO_GRACE_MS : undefined
}

/** Its turn ended at the refusal of what nobody had answered: that is no end of its work. */
function isRefusedByUs({ refused, observed: told }: ActiveRun, messages: readonly Message[]): boolean {
  const { finish, error } = messages.at(-1) ?? {}
  const after = refused?.after ?? NEVER
  // An answer with an error never ends well, and so is not counted.
  return (finish === "called" && told.ended <= after + 1) || (error?.refused === true && told.ended <= after)
}

const COMPACTED =
  "The conversation was compacted while you were at work, and that ended your turn. Go on where you were."

function askToGoOn(run: ActiveRun, messages: readonly Message[], why: string, world: World): Step {
  const next = { ...arrived(readIn(run, messages), messages), refused: undefined, error: undefined }
  return run.lastWord ? askLastWord(next, world) : sayGoOn(next, why, world)
}

/** A word that stands last may just have come: it is left to lie once its session has not begun to read it for a while. */
const isLeft = ({ stuckSince }: ActiveRun, messages: readonly Message[], { now }: World): boolean =>
  messages.at(-1)?.role === "assistant" || now - (stuckSince ?? now) >= WORD_GRACE_MS

/** Until when what only its idleness says of a session is not believed: it may have been asked just now. */
export function stuckUntil({ error, stuckSince = 0, observed: told }: ActiveRun, { task }: World): number {
  if (error) return error.at + ERROR_GRACE_MS
  return stuckSince + (task.place && !told.heard ? PLACE_GRACE_MS : ANSWER_GRACE_MS)
}

/** Until when a message is waited for that the host has taken and does not show: one that never comes. */
export const missingUntil = ({ missingSince = NEVER }: ActiveRun): number => missingSince + ANSWER_GRACE_MS

/** Until when somebody may go on with the todos of an agent that has ended its turn well. */
export const todosUntil = ({ todosSince = 0 }: ActiveRun, { options }: World): number => todosSince + options.todoGrace

const missing = (run: ActiveRun, { now }: World): ActiveRun => ({
  ...run,
  missingSince: expectsMessage(run) ? (run.missingSince ?? now) : undefined,
})

const isStillTold = (run: ActiveRun, { now }: World): boolean =>
  now < missingUntil(run) || run.sentMessages.some(isOnItsWay)

/** It is with the host, and nobody hears whether it comes: who said it was told so, or it is the engine's own. */
const isOnItsWay = ({ expected, taken, reply }: SentMessage): boolean => expected && !taken && reply === undefined

/** By its messages it has ended; what it was told meanwhile it has not read yet. */
function concluded(given: ActiveRun, judgement: Ending, found: Found, waited: boolean, world: World): Step {
  const { messages, openTodos } = found
  const run = missing(given, world)
  if (isStillTold(run, world)) return stay(run)
  const ending = endAfter(judgement, inTheEnd(run, world), messages)
  if (ending.type !== "completed") return ended(run, ending, messages, openTodos, world)
  const todos = openTodos === 0 ? run : { ...run, todosSince: run.todosSince ?? world.now }
  const waitsForTodos = openTodos > 0 && world.now < todosUntil(todos, world)
  // What it was told of its own tasks while its messages were read is not in them yet.
  if (waited || waitsForOwn(world) || waitsForTodos)
    // Its turn ended before it could read that it is near a limit.
    return { run: todos, commands: run.lastWord ? [{ do: "rest?" }] : [] }
  const { check, schema } = world.task.run
  if (check === undefined && schema === undefined) return ended(todos, ending, messages, openTodos, world)
  const checking = { ...moved(todos, "checking"), answered: { ending, messages, openTodos } }
  return schema === undefined
    ? toCheck(checking)
    : { run: checking, commands: [{ do: "validate", text: answerText(messages) }] }
}

const inTheEnd = (run: ActiveRun, world: World): LastWord | undefined =>
  run.lastWord && { ...run.lastWord, reason: reasonInTheEnd(watchedAs(run, world), run.lastWord.reason) }

const toCheck = (run: ActiveRun): Step => ({ run, commands: [{ do: "check", runs: run.check?.runs ?? 0 }] })

/** An agent whose answer is not valid is asked again in the same run; a valid one is checked, where there is a check. */
export const validated: Handler<"validated"> = (given, { found }, world) => {
  const { answered, value } = given
  const back = sign({ ...moved(given, "working"), answered: undefined }, world.now)
  if (!found || !answered) return looks(back, world)
  const asked = (value?.asked ?? 0) + 1
  const longest = Math.max(value?.refused ?? 0, found.valid ? 0 : answerText(answered.messages).length)
  const refused = longest > 0 && { refused: longest }
  if (found.valid) {
    const run = { ...given, value: { ...found, asked, ...refused } }
    if (world.task.run.check !== undefined) return toCheck(moved(run, "checking"))
    return passed({ ...back, value: run.value }, answered, world)
  }
  const run = { ...back, value: { valid: false, asked, ...refused } as const }
  if (asked <= world.options.schemaRetries || expectsMessage(run)) return tellOfValue(run, found.problems, world)
  return fail(run, invalidReason(asked, found.problems), world)
}

/** What it was told meanwhile it reads before its run may end. */
function passed(run: ActiveRun, { ending, messages, openTodos }: Answered, world: World): Step {
  const next = missing(run, world)
  return isStillTold(next, world) ? stay(next) : ended(next, ending, messages, openTodos, world)
}

type Answered = NonNullable<ActiveRun["answered"]>

function ended(run: ActiveRun, ending: Ending, messages: readonly Message[], openTodos: number, world: World): Step {
  const { run: now, place } = world.task
  // That its check passed, that its value is valid, or what its place holds, is not in its messages.
  const proven = ending.proven && now.check === undefined && now.schema === undefined && place === undefined
  return end(run, { ...ending, proven }, { messages, openTodos }, world)
}

/** An agent whose check does not pass is asked again in the same run, and is not told how often that may be. */
export const checked: Handler<"checked"> = (given, { result, lacks }, world) => {
  const { answered } = given
  const run = sign({ ...moved(given, "working"), answered: undefined, check: result ?? given.check }, world.now)
  if (!result || !answered) return stay(run)
  if (result.passed) return passed(run, answered, world)
  // What it was told meanwhile it reads before its run may end.
  const retries = world.task.part?.kind === "tries" ? 0 : world.options.checkRetries
  const { command, how, runs } = result
  if ((!lacks && result.runs <= retries) || expectsMessage(run)) return tellOfCheck(run, result, world)
  const times = runs === 1 ? "once" : `${runs} times`
  const text = `Its check \`${oneLine(command, MOST_COMMAND_CHARS)}\` did not pass (run ${times}; the last time: ${how}).${lacks ? ` ${lacks}` : ""}`
  return fail(run, { code: "check", text }, world)
}
