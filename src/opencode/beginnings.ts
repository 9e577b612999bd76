import { addBounded } from "../lib/bounded-set.ts"

/** Most sessions whose request prefix is kept. */
const MOST_SESSIONS = 64
/** Time limit for a probe. */
const PROBE_LIMIT_MS = 15_000
/** OpenCode's agents for titles and summaries, whose requests are not the session's own. */
const BESIDE = /^(title|summary|compaction)$/

type System = { readonly system: readonly string[] }
type Probe = { readonly briefed: boolean; readonly told: (system: string) => void }

/**
 * System prompts of sessions as sent. Other plugins may change them for each session; their changes are in the shared
 * object once all hooks have run.
 */
export class Beginnings {
  /** System prompts under construction, by session. */
  readonly #made = new Map<string, System[]>()
  readonly #sent = new Map<string, string>()
  readonly #probes = new Map<string, Probe>()

  /** Registers a system prompt under construction, to which other plugins may still add. */
  making(sessionID: string, output: System): void {
    const made = [...(this.#made.get(sessionID) ?? []), output]
    addBounded(this.#made, sessionID, made, MOST_SESSIONS)
  }

  /** Called before each request. Never resolves for a probe, whose session is then aborted. */
  async sending(sessionID: string, agent: unknown): Promise<void> {
    const made = this.#made.get(sessionID) ?? []
    this.#made.delete(sessionID)
    const [only] = made
    const name = typeof agent === "string" ? agent : String((agent as { name?: unknown } | undefined)?.name)
    // With two prompts under construction it is not known which one this is.
    if (!only || made.length > 1 || BESIDE.test(name)) return
    const system = only.system.join("\n")
    const probe = this.#probes.get(sessionID)
    if (!probe) return addBounded(this.#sent, sessionID, system, MOST_SESSIONS)
    probe.told(system)
    await new Promise<never>(() => {})
  }

  /** The session is a probe with the briefing for fresh agents. */
  isBriefed(sessionID: string): boolean {
    return this.#probes.get(sessionID)?.briefed === true
  }

  /** Prefix of the session's last request; undefined where none was seen. */
  of(sessionID: string): string | undefined {
    return this.#sent.get(sessionID)
  }

  /**
   * Prefix that a new session's request would have, from a request that is never sent. Undefined where none was made.
   */
  async probed(sessionID: string, briefed: boolean, ask: () => Promise<unknown>): Promise<string | undefined> {
    let timer: ReturnType<typeof setTimeout> | undefined
    try {
      return await new Promise<string | undefined>((resolve, reject) => {
        timer = setTimeout(() => resolve(undefined), PROBE_LIMIT_MS)
        this.#probes.set(sessionID, { briefed, told: resolve })
        ask().catch(reject)
      })
    } finally {
      clearTimeout(timer)
    }
  }

  /** The probe's session was deleted. */
  forget(sessionID: string): void {
    this.#probes.delete(sessionID)
    this.#made.delete(sessionID)
  }
}
