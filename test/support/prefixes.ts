import type { ModelRequest } from "./model.ts"

/** By how much of its system prompt an agent is known: who speaks in a session is its user's choice. */
const AGENT_CHARS = 200

type Request = { readonly number: number; readonly blocks: readonly string[]; readonly agent: string }

/**
 * Holds every request of a session against its last one: nothing before the newest message may have changed, since a
 * provider's cache serves what a request begins with. What a test's user does to a session (another agent or model, an
 * undo, another configuration) may change it: such a test says so.
 */
export class Prefixes {
  readonly #last = new Map<string, Request>()
  readonly #broken: string[] = []
  readonly #allowed = new Set<string>()

  /** Takes in a request as it goes out. */
  record(request: ModelRequest): void {
    const { sessionID, number } = request
    if (!sessionID) return
    if (isPlanned(request)) return void this.#last.delete(sessionID)
    const blocks = blocksOf(request)
    const agent = request.system.slice(0, AGENT_CHARS)
    const before = this.#last.get(sessionID)
    // One that sums a conversation up has none of it before it, and the next none of what was summed up.
    if (isCompaction(request)) this.#last.delete(sessionID)
    else this.#last.set(sessionID, { number, blocks, agent })
    if (!before || this.#allowed.has(sessionID) || isCompaction(request) || before.agent !== agent) return
    const kept = before.blocks.slice(0, -1)
    const at = kept.findIndex((block, index) => !isSame(block, blocks[index], request))
    if (at >= 0)
      this.#broken.push(`#${before.number} → #${number} in ${sessionID}: ${difference(kept[at], blocks[at])}`)
  }

  /** From here on the test itself changes what stands before the newest message of this session. */
  allow(sessionID: string): void {
    this.#allowed.add(sessionID)
  }

  /** What was changed since this was asked for last. */
  take(): readonly string[] {
    return this.#broken.splice(0)
  }
}

/** Tools, system prompt and messages, as a provider's cache goes through them; without marks for the cache. */
export const blocksOf = ({ body }: Pick<ModelRequest, "body">): readonly string[] => {
  const { tools = [], system, messages = [] } = body as { tools?: unknown[]; system?: unknown; messages?: unknown[] }
  const systems = Array.isArray(system) ? system : system === undefined ? [] : [system]
  return [...tools, ...systems, ...messages].map((block) => JSON.stringify(block, unmarked))
}

/** The block of a thread's task is fresh with each turn, and stays as it is in all of the turn's requests. */
const isSame = (before: string, now: string | undefined, { sinceUser }: ModelRequest): boolean =>
  before === now || (sinceUser.length === 0 && before.replace(BLOCK, "") === now?.replace(BLOCK, ""))

const BLOCK = /<Task id=.*<\/Task>/

/** OpenCode writes the date into its system prompt, which changes at midnight. */
const DATE = /Today's date: [\w ]+/

const unmarked = (key: string, value: unknown) => {
  if (typeof value === "string") return value.replace(DATE, "")
  return key === "cache_control" ? undefined : value
}

/** In plan mode, and after it, OpenCode moves a reminder with every request: its own prefix ends there. */
const isPlanned = ({ userTexts }: ModelRequest): boolean =>
  userTexts.some((text) => /<system-reminder>[\s\S]*(# Plan Mode|operational mode has changed)/.test(text))

const isCompaction = ({ tools, userTexts }: ModelRequest): boolean =>
  tools.length === 0 && userTexts.length === 1 && /<conversation-history>|summar/i.test(userTexts[0] ?? "")

const SHOWN = 200

const difference = (before = "nothing", now = "nothing"): string => {
  let at = 0
  while (at < before.length && before[at] === now[at]) at++
  const from = Math.max(0, at - 40)
  return `"…${before.slice(from, at + SHOWN)}" became "…${now.slice(from, at + SHOWN)}"`
}

const watched = new Set<Prefixes>()

/** The prefixes of a model's requests, looked at after each test of the file. */
export const watchPrefixes = (): Prefixes => {
  const prefixes = new Prefixes()
  watched.add(prefixes)
  return prefixes
}

/** What was changed since the last look, in all models of this process. */
export const brokenPrefixes = (): readonly string[] => [...watched].flatMap((prefixes) => prefixes.take())
