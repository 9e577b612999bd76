import { addBounded } from "../lib/bounded-set.ts"

/** Sessions whose last request is remembered, by what it began with. */
const MOST_SESSIONS = 64
/** A probe that has not come so far within this time tells nothing. */
const PROBE_LIMIT_MS = 15_000
/** The host's own agents, which ask for a title or a summary beside a session's requests. */
const BESIDE = /^(title|summary|compaction)$/

type System = { readonly system: readonly string[] }
type Probe = { readonly briefed: boolean; readonly told: (system: string) => void }

/**
 * What sessions' requests begin with: their system prompts as they are sent. Other plugins may add to one session's and
 * not to another's; what they do is in the object that all hooks are handed, once all of them have run.
 */
export class Beginnings {
  /** What is being made of a session's next request. */
  readonly #made = new Map<string, System[]>()
  readonly #sent = new Map<string, string>()
  readonly #probes = new Map<string, Probe>()

  /** The system prompt of a request that is being made. Others may still add to it. */
  making(sessionID: string, output: System): void {
    const made = [...(this.#made.get(sessionID) ?? []), output]
    addBounded(this.#made, sessionID, made, MOST_SESSIONS)
  }

  /** A request is about to be sent. Never resolves for one of a probe, whose session is stopped then. */
  async sending(sessionID: string, agent: unknown): Promise<void> {
    const made = this.#made.get(sessionID) ?? []
    this.#made.delete(sessionID)
    const [only] = made
    const name = typeof agent === "string" ? agent : String((agent as { name?: unknown } | undefined)?.name)
    // Of two that are made at once nobody can tell which this is.
    if (!only || made.length > 1 || BESIDE.test(name)) return
    const system = only.system.join("\n")
    const probe = this.#probes.get(sessionID)
    if (!probe) return addBounded(this.#sent, sessionID, system, MOST_SESSIONS)
    probe.told(system)
    await new Promise<never>(() => {})
  }

  /** Whether a session is a probe that is told what a fresh agent is. */
  isBriefed(sessionID: string): boolean {
    return this.#probes.get(sessionID)?.briefed === true
  }

  /** What a session's last request began with; undefined where none was seen. */
  of(sessionID: string): string | undefined {
    return this.#sent.get(sessionID)
  }

  /** What a new session's request would begin with: it is made and never sent. Undefined where none came. */
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

  /** The probe's session is gone. */
  forget(sessionID: string): void {
    this.#probes.delete(sessionID)
    this.#made.delete(sessionID)
  }
}
