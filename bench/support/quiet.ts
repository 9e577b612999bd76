import { setTimeout as sleep } from "node:timers/promises"
import type { Bench } from "./contender.ts"

/** How long nothing may have happened for an OpenCode to count as done, in ms. */
const QUIET_MS = 1000
const LOOK_MS = 100
const LIMIT_MS = 180_000

/** Resolves when for a second no model has worked and no event has come; asks OpenCode for nothing. */
export const eventuallyQuiet = async ({ opencode, model }: Bench, limit = LIMIT_MS): Promise<void> => {
  const begin = performance.now()
  for (let busyAt = begin; ; ) {
    await sleep(LOOK_MS)
    const now = performance.now()
    if (model.inFlight > 0) busyAt = now
    // The stream has a sign of life of its own every few seconds.
    const last = opencode.events.all.findLast(({ type }) => (type as string) !== "server.heartbeat")
    if (now - Math.max(busyAt, last?.at ?? 0) > QUIET_MS) return
    if (now - begin > limit) throw new Error(`OpenCode is not quiet after ${limit} ms\n${opencode.logs()}`)
  }
}
