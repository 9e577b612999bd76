import { NOTHING_SPENT } from "../spending.ts"
import { nextLimitAt } from "../watchdog.ts"
import type { ActiveRun } from "./active-run.ts"
import type { RunContext } from "./inputs.ts"
import { watchedAs } from "./limits.ts"
import { missingUntil, stuckUntil, todosUntil } from "./messages.ts"

const NEVER = Number.POSITIVE_INFINITY

/** Shortest time between two looks, while a limit that was just passed is being handled, in ms. */
const MIN_TICK_MS = 100

/** Has a slot and has not ended. */
const isTimed = ({ stage, heldBy }: ActiveRun): boolean =>
  heldBy === "ours" &&
  (stage === "held" ||
    stage === "preparing" ||
    stage === "prompting" ||
    stage === "working" ||
    stage === "supervising" ||
    stage === "verifying")

/** Time of the next tick if no event comes. All deadlines are part of the run's state; there are no other timers. */
export function nextDue(run: ActiveRun, context: RunContext): number {
  if (!isTimed(run)) return NEVER
  // Spending changes with an event or a read, never with the clock. While OpenCode is asked whether a limit is passed,
  // its answer settles it.
  const settled = run.confirming ? context.now : undefined
  const limits = nextLimitAt(watchedAs(run, { ...context, spent: () => NOTHING_SPENT }), settled)
  const soon = context.now + MIN_TICK_MS
  const { warmUpUntil: heldUntil = NEVER } = run
  return Math.min(Math.max(soon, limits), heldUntil, Math.max(soon, hintDue(run)), lookDue(run, context))
}

/** Deadlines already handled are ignored. */
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

const hintDue = ({ asks, hintAt = NEVER, hinting, away }: ActiveRun): number =>
  asks.length === 0 || hinting || away ? NEVER : hintAt
