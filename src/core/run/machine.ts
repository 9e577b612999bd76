import { NOTHING_SPENT } from "../spending.ts"
import { nextLimitAt } from "../watchdog.ts"
import { type ActiveRun, isWithoutAgent, type Stage } from "./active-run.ts"
import { closed, ends, finalized, memberCreated, members, notified, stopped, written } from "./ending.ts"
import {
  confirmed,
  counted,
  event,
  looked,
  missingUntil,
  questions,
  stuckUntil,
  todosUntil,
  verified,
} from "./events.ts"
import {
  contact,
  hintDropped,
  idle,
  preparing,
  refuseFailed,
  request,
  restartsClock,
  slept,
  spending,
  tick,
  watchedAs,
} from "./limits.ts"
import { sent, tell } from "./prompts.ts"
import { admitted, begin, look, pause, prepared, prepareFailed, prompted } from "./starting.ts"
import type { Handler, Input, InputType, MachineStep, RunContext } from "./steps.ts"

/** Target of a run that is dropped: its parent has been notified, or nobody is to be notified. */
export const GONE = "gone"

export type Target = Stage | typeof GONE

type Row = { readonly [Type in InputType]?: readonly Target[] }

/** Inputs for a run that has begun. A passed limit ends the run in every stage with these inputs. */
const atWork = <Here extends Stage>(here: Here) =>
  ({
    tell: [here],
    request: [here],
    end: ["closing"],
    event: [here, "closing"],
    questions: [here],
    tick: [here, "closing"],
    spending: [here, "closing"],
    slept: [here],
    sent: [here, "closing"],
    idle: [here],
    "refuse failed": [here],
    "hint dropped": [here],
    counted: [here, "closing"],
    confirmed: [here, "closing"],
    contact: [here],
  }) as const

/**
 * State machine: the inputs that each stage allows, and the stages to which they may lead. Other inputs change nothing.
 * docs/machine.md is drawn from this table, and a test requires that some test takes each edge.
 */
export const TABLE: { readonly [Here in Stage]: Row } = {
  creating: { begin: ["waiting", "preparing", "prompting", "working"], tell: ["creating"], end: ["closing"] },
  waiting: {
    begin: ["waiting"],
    admitted: ["waiting", "preparing", "prompting", "closing"],
    pause: ["waiting"],
    tell: ["waiting"],
    event: ["waiting"],
    tick: ["waiting", "closing"],
    spending: ["waiting", "closing"],
    slept: ["waiting"],
    sent: ["waiting", "closing"],
    prompted: ["waiting"],
    stopped: ["waiting"],
    "hint dropped": ["waiting"],
    end: ["closing"],
  },
  preparing: {
    ...atWork("preparing"),
    preparing: ["preparing"],
    prepared: ["prompting", "supervising", "closing"],
    "prepare failed": ["closing"],
  },
  prompting: {
    ...atWork("prompting"),
    look: ["prompting"],
    prompted: ["working", "closing"],
    looked: ["prompting", "verifying", "closing"],
    pause: ["waiting", "prompting"],
  },
  working: {
    ...atWork("working"),
    look: ["working"],
    looked: ["working", "verifying", "closing"],
    confirmed: ["working", "verifying", "closing"],
    pause: ["waiting", "working"],
  },
  supervising: {
    members: ["supervising", "closing"],
    "member created": ["supervising", "closing"],
    tick: ["supervising", "closing"],
    spending: ["supervising", "closing"],
    slept: ["supervising"],
    written: ["supervising", "closing"],
    end: ["supervising", "closing"],
  },
  verifying: { ...atWork("verifying"), verified: ["working", "verifying", "closing"] },
  closing: {
    event: ["closing"],
    sent: ["closing"],
    prompted: ["closing"],
    stopped: ["closing"],
    written: ["closing"],
    closed: ["closing", "finalizing", "notifying", GONE],
    finalized: ["notifying", GONE],
  },
  finalizing: {
    event: ["finalizing"],
    end: ["finalizing"],
    sent: ["finalizing"],
    prompted: ["finalizing"],
    stopped: ["finalizing"],
    written: ["finalizing"],
    finalized: ["notifying", GONE],
  },
  notifying: {
    event: ["notifying"],
    sent: ["notifying", GONE],
    prompted: ["notifying", GONE],
    stopped: ["notifying", GONE],
    written: ["notifying", GONE],
    notified: ["notifying", GONE],
  },
}

/** Example: `working --looked--> closing`. */
export type Edge = `${Stage} --${InputType}--> ${Target}`

export const edgeOf = (from: Stage, input: InputType, to: Target): Edge => `${from} --${input}--> ${to}`

const HANDLERS: { readonly [Type in InputType]: Handler<Type> } = {
  begin,
  admitted,
  tell,
  request,
  end: ends,
  event,
  questions,
  look,
  tick,
  spending,
  slept,
  pause,
  members,
  "member created": memberCreated,
  contact,
  preparing,
  prepared,
  "prepare failed": prepareFailed,
  prompted,
  sent,
  stopped,
  idle,
  "refuse failed": refuseFailed,
  "hint dropped": hintDropped,
  counted,
  looked,
  confirmed,
  verified,
  closed,
  finalized,
  written,
  notified,
}

/** Test hook: called for each edge taken. */
export const edges: { taken?: (edge: Edge) => void } = {}

/**
 * Next state of a run and the commands to carry out. Pure and total: inputs that the table does not allow, or for
 * another process's run, change nothing.
 */
export function step(run: ActiveRun, input: Input, context: RunContext): MachineStep {
  if (run.heldBy !== "ours" || !TABLE[run.stage][input.type]) return { run, commands: [] }
  const handle = HANDLERS[input.type] as Handler<InputType>
  const next = handle(run, input, context)
  edges.taken?.(edgeOf(run.stage, input.type, next.run?.stage ?? GONE))
  return next
}

const NEVER = Number.POSITIVE_INFINITY

/** Shortest time between two ticks while a limit that was just passed is being handled, in ms. */
const MIN_TICK_MS = 100

/** True for a run that has a slot and has not ended. */
const isTimed = (run: ActiveRun): boolean =>
  run.heldBy === "ours" &&
  (isWithoutAgent(run) || run.stage === "prompting" || run.stage === "working" || run.stage === "supervising")

/** Time of the next tick if no event comes. All deadlines are part of the run's state; there are no other timers. */
export function nextDue(run: ActiveRun, context: RunContext): number {
  if (!isTimed(run)) return NEVER
  // Spending changes with an event or a read, never with the clock. While OpenCode is asked whether a limit is passed,
  // limits passed before now need no tick.
  const settled = run.confirming ? context.now : undefined
  const soon = context.now + MIN_TICK_MS
  const limits = restartsClock(run, context)
    ? soon
    : nextLimitAt(watchedAs(run, { ...context, spent: () => NOTHING_SPENT }), settled)
  const { held, membersAt = NEVER } = run
  return Math.min(
    Math.max(soon, limits),
    held?.until ?? NEVER,
    membersAt,
    Math.max(soon, hintDue(run)),
    lookDue(run, context),
  )
}

/** Time of the next read of the session. Deadlines already handled are ignored. */
function lookDue(run: ActiveRun, context: RunContext): number {
  if (run.looking) return NEVER
  const waits = [
    run.stuckSince === undefined ? NEVER : stuckUntil(run, context),
    run.todosSince === undefined ? NEVER : todosUntil(run, context),
    run.missingSince === undefined ? NEVER : missingUntil(run),
    run.lookAt ?? NEVER,
  ]
  const next = Math.min(NEVER, ...waits.filter((at) => at > run.lookedAt))
  return next > context.now ? next : context.now + MIN_TICK_MS
}

const hintDue = ({ asks, hintAt = NEVER, away }: ActiveRun): number => (asks.length === 0 || away ? NEVER : hintAt)
