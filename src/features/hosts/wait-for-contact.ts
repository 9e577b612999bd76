import { CallError } from "../../core/errors.ts"
import { duration } from "../../lib/duration.ts"
import { oneLine } from "../../lib/text.ts"
import { PlaceError } from "../../runtime/places/place.ts"
import { type Contact, NoContact } from "./connection.ts"
import type { Machine } from "./hosts.ts"

/**
 * Longest wait of a call that somebody waits for: `contactTimeout` may be hours, while short losses end within 40 s. In
 * ms.
 */
const MOST_WAIT_MS = 60_000

/** Waits for a host that has a task's changes. Throws a `PlaceError` after too long. */
export async function untilReached({ name, link, settings }: Machine, taskID: string, signal?: AbortSignal) {
  if (!link.contact) link.use(taskID, true)
  const most = Math.min(settings.contactTimeout || MOST_WAIT_MS, MOST_WAIT_MS)
  const limit = AbortSignal.timeout(most)
  try {
    await link.reached(signal ? AbortSignal.any([limit, signal]) : limit)
  } catch (error) {
    if (!(error instanceof NoContact)) throw error
    const { reach: state } = link
    const why = limit.aborted && "why" in state && state.why ? state.why : error.message
    throw workUnreachableError(
      name,
      limit.aborted ? `there was no contact within ${duration(most)} (${oneLine(why)})` : why,
    )
  }
}

export type ContactWait = {
  readonly taskID: string
  readonly signal: AbortSignal | undefined
  /** Called when waiting begins. */
  readonly waits: () => void
}

/**
 * Runs `work` with contact, and again where contact is lost meanwhile. Rejects with `NoContact` where the first
 * connection fails, at `contactTimeout`, or when `signal` is aborted.
 */
export async function inContact<Value>(
  machine: Machine,
  { taskID, signal, waits }: ContactWait,
  work: (contact: Contact) => Promise<Value>,
): Promise<Value> {
  const { link } = machine
  for (;;) {
    if (!link.contact) waits()
    const contact = await contactWith(machine, taskID, signal)
    try {
      return await work(contact)
    } catch (error) {
      // A lost connection fails everything that was under way.
      const isLost = error instanceof NoContact || (!link.contact && !(error instanceof CallError))
      if (!isLost || signal?.aborted) throw error
    }
  }
}

async function contactWith({ name, link, settings }: Machine, taskID: string, signal: AbortSignal | undefined) {
  const { contactTimeout } = settings
  link.use(taskID)
  const limit = contactTimeout > 0 ? AbortSignal.timeout(contactTimeout) : undefined
  try {
    return await link.reached(AbortSignal.any([limit, signal].filter((each) => each !== undefined)))
  } catch (error) {
    if (!limit?.aborted || signal?.aborted) throw error
    const { reach: state } = link
    const why = "why" in state && state.why ? oneLine(state.why) : "it does not answer"
    const known = [`${name} could not be reached: `, `${name}: `].find((start) => why.startsWith(start)) ?? ""
    throw new NoContact(
      `${name} could not be reached: ${why.slice(known.length)} (it was tried for ${duration(contactTimeout)})`,
    )
  }
}

/** Error: the host has a task's changes and is out of reach. */
export const workUnreachableError = (name: string, why: string): PlaceError =>
  new PlaceError(
    `its work is still on ${name}, and ${why.replace(/\.$/, "")}. It is fetched as soon as ${name} answers.`,
    "host",
  )
