import { duration } from "../../lib/duration.ts"
import { oneLine } from "../../lib/text.ts"
import { PlaceError } from "../place.ts"
import type { Machine } from "./hosts.ts"
import { NoContact } from "./link.ts"

/** Somebody stands and waits, whom `contactTimeout` may keep for hours; a cut of 40 s is over by then, in ms. */
const MOST_WAIT_MS = 60_000

/** Waits for contact with a host that has what a task changed. Throws a `PlaceError` where that takes too long. */
export async function untilReached({ name, link, settings }: Machine, taskID: string, signal?: AbortSignal) {
  if (!link.contact) link.use(taskID, true)
  const most = Math.min(settings.contactTimeout || MOST_WAIT_MS, MOST_WAIT_MS)
  const limit = AbortSignal.timeout(most)
  try {
    await link.reached(signal ? AbortSignal.any([limit, signal]) : limit)
  } catch (error) {
    if (!(error instanceof NoContact)) throw error
    const { reach } = link
    const why = limit.aborted && "why" in reach && reach.why ? reach.why : error.message
    throw stillThere(name, limit.aborted ? `there was no contact within ${duration(most)} (${oneLine(why)})` : why)
  }
}

/** That a host has what a task changed, and cannot be asked for it. */
export const stillThere = (name: string, why: string): PlaceError =>
  new PlaceError(
    `its work is still on ${name}, and ${why.replace(/\.$/, "")}. It is fetched as soon as ${name} answers.`,
    "host",
  )
