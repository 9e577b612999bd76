import type { Part } from "@opencode-ai/sdk/v2/types"
import { addBounded } from "../../../lib/collections.ts"
import type { RequestMessages } from "../../../opencode/request.ts"

/** Most sessions whose request prefix is kept. */
const MOST_SESSIONS = 64
/** Time limit for a probe, in ms. */
const PROBE_LIMIT_MS = 15_000
/** OpenCode's agents for titles and summaries. Their requests do not belong to the session's conversation. */
const BESIDE = /^(title|summary|compaction)$/
/**
 * If the messages before the first difference have at least this share of the weight, the cache is worth a whole fork.
 */
const LEAST_SHARE = 0.9

type System = { readonly system: readonly string[] }
/** A request as sent: its system prompt, and the shape of each message by its id. */
export type RequestPrefix = { readonly system: string; readonly shapes: ReadonlyMap<string, string> }
type Probe = { readonly briefed: boolean; readonly resolve: (beginning: RequestPrefix) => void }

/**
 * Lengths of the parts of a message that a model reads; they change if a plugin rewrites the message. A part may lack
 * fields, because another plugin may have made it.
 */
export const shapeOf = (parts: readonly Part[]): string =>
  parts
    .map(lengthOf)
    .filter((length) => length > 0)
    .join(" ")

function lengthOf(part: Part): number {
  if (part.type === "text") return part.ignored ? 0 : lengthIn(part.text)
  if (part.type === "reasoning") return lengthIn(part.text)
  if (part.type === "file") return lengthIn(part.url)
  if (part.type !== "tool") return 0
  const { input, output, error }: { input?: object; output?: unknown; error?: unknown } = part.state ?? {}
  return [...Object.values(input ?? {}), output, error].reduce<number>((sum, text) => sum + lengthIn(text), 0)
}

const lengthIn = (text: unknown): number => (typeof text === "string" ? text.length : 0)

/**
 * Whether two requests begin with so many equal messages that the provider's cache helps. `one`, `other`: shapes of
 * their messages.
 */
export function shareMessages(one: readonly string[], other: readonly string[]): boolean {
  const weigh = (shapes: readonly string[]) =>
    shapes
      .join(" ")
      .split(" ")
      .reduce((sum, each) => sum + Number(each), 0)
  const at = one.findIndex((shape, nth) => shape !== other[nth])
  return at < 0 || weigh(one.slice(0, at)) >= LEAST_SHARE * weigh(one)
}

/**
 * Stores system prompts and messages of sessions as sent. OpenCode's objects are read when all hooks have run, because
 * other plugins may change them for each session.
 */
export class RequestPrefixes {
  /** System prompts under construction, by session. */
  readonly #made = new Map<string, System[]>()
  /** Messages under construction, by session. */
  readonly #asked = new Map<string, RequestMessages>()
  readonly #sent = new Map<string, RequestPrefix>()
  readonly #probes = new Map<string, Probe>()

  /** Registers a system prompt under construction, to which other plugins may still add. */
  making(sessionID: string, output: System): void {
    const made = [...(this.#made.get(sessionID) ?? []), output]
    addBounded(this.#made, sessionID, made, MOST_SESSIONS)
  }

  /** Registers messages under construction, which other plugins may still rewrite. */
  asking(sessionID: string, request: RequestMessages): void {
    addBounded(this.#asked, sessionID, request, MOST_SESSIONS)
  }

  /**
   * Called before each request is sent. For a probe, the promise never resolves: the probe's session is deleted
   * instead.
   */
  async sending(sessionID: string, agent: unknown): Promise<void> {
    const made = this.#made.get(sessionID) ?? []
    this.#made.delete(sessionID)
    const [only] = made
    const name = typeof agent === "string" ? agent : String((agent as { name?: unknown } | undefined)?.name)
    if (BESIDE.test(name)) return
    const { messages = [] } = this.#asked.get(sessionID) ?? {}
    this.#asked.delete(sessionID)
    // With two system prompts at a time, nothing tells which of them belongs to this request.
    if (!only || made.length > 1) return
    const shapes = new Map(messages.map(({ info, parts }) => [info?.id, shapeOf(parts ?? [])]))
    const beginning = { system: only.system.join("\n"), shapes }
    const probe = this.#probes.get(sessionID)
    if (!probe) return addBounded(this.#sent, sessionID, beginning, MOST_SESSIONS)
    probe.resolve(beginning)
    await new Promise<never>(() => {})
  }

  /** Whether the session is a probe with the briefing for fresh agents. */
  isBriefed(sessionID: string): boolean {
    return this.#probes.get(sessionID)?.briefed === true
  }

  /** Beginning of the session's last request; undefined where none was seen. */
  of(sessionID: string): RequestPrefix | undefined {
    return this.#sent.get(sessionID)
  }

  /**
   * Lets a probe's session build a request, which is never sent, and returns its beginning. Undefined where OpenCode
   * built no request in time.
   */
  async probed(sessionID: string, briefed: boolean, ask: () => Promise<unknown>): Promise<RequestPrefix | undefined> {
    let timer: ReturnType<typeof setTimeout> | undefined
    try {
      return await new Promise<RequestPrefix | undefined>((resolve, reject) => {
        timer = setTimeout(() => resolve(undefined), PROBE_LIMIT_MS)
        this.#probes.set(sessionID, { briefed, resolve })
        ask().catch(reject)
      })
    } finally {
      clearTimeout(timer)
    }
  }

  /** Called when the probe's session has been deleted. */
  forget(sessionID: string): void {
    this.#probes.delete(sessionID)
    this.#made.delete(sessionID)
    this.#asked.delete(sessionID)
  }
}
