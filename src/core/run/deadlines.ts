import { NOTHING_SPENT } from "../spending.ts"
import { dueAt } from "../watchdog.ts"
import type { ActiveRun } from "./active-run.ts"
import type { World } from "./inputs.ts"
import { watchedAs } from "./limits.ts"
import { missingUntil, stuckUntil, todosUntil } from "./messages.ts"

const NEVER = Number.POSITIVE_INFINITY

/** A limit that has just been passed is being dealt with: the next look at it may wait a moment, in ms. */
const MIN_TICK_MS = 100

/** Whether time counts for a run: it has its slot, and has not ended. */
const isTimed = ({ stage, heldBy }: ActiveRun): boolean =>
  heldBy === "ours" &&
  (stage === "held" ||
    stage === "entering" ||
    stage === "prompting" ||
    stage === "working" ||
    stage === "leading" ||
    stage === "checking")

/**
 * When the run has to be looked at if nothing more is heard of it. No part of the engine keeps a timer of its own: every
 * wait of a run stands in its state, and this is the earliest.
 */
export function nextDue(run: ActiveRun, world: World): number {
  if (!isTimed(run)) return NEVER
  // What is spent comes with an event or a look, never with the clock alone.
  // While the host is asked whether a limit is really passed, what that brings settles it.
  const settled = run.verifying ? world.now : undefined
  const limits = dueAt(watchedAs(run, { ...world, spent: () => NOTHING_SPENT }), settled)
  const soon = world.now + MIN_TICK_MS
  const { warmUpUntil: heldUntil = NEVER } = run
  return Math.min(Math.max(soon, limits), heldUntil, Math.max(soon, hintDue(run)), lookDue(run, world))
}

/** A wait that was looked at when it was over is over: what it was for is found out by other looks. */
function lookDue(run: ActiveRun, world: World): number {
  if (run.looking) return NEVER
  const waits = [
    run.stuckSince === undefined ? NEVER : stuckUntil(run, world),
    run.todosSince === undefined ? NEVER : todosUntil(run, world),
    run.missingSince === undefined ? NEVER : missingUntil(run),
    run.lookAt ?? NEVER,
  ]
  const next = Math.min(NEVER, ...waits.filter((at) => at > run.lookedAt))
  return next > world.now ? next : world.now + MIN_TICK_MS
}

const hintDue = ({ asks, hintAt = NEVER, hinting, away }: ActiveRun): number =>
  asks.length === 0 || hinting || away ? NEVER : hintAt
