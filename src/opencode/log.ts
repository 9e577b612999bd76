import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Clock, LogFields, LogLevel } from "../core/ports.ts"
import { Collector } from "../lib/collector.ts"

/**
 * Longest delay of `info` lines. Waking OpenCode's one thread costs 25 ms, a further call in the same moment 1 to 3.
 */
const LOG_WAIT_MS = 10_000
/** Shortest delay, so that lines of one moment are written together. */
const GATHER_MS = 1000

/**
 * Lines for OpenCode's log, each beginning with our name: the host does not print a line's service. Never throws; a line
 * that cannot be written is lost.
 */
export class OpencodeLog {
  readonly #client: OpencodeClient
  readonly #infos: Collector<{ readonly message: string; readonly fields: LogFields }>

  constructor(client: OpencodeClient, clock: Clock) {
    this.#client = client
    this.#infos = new Collector(clock, LOG_WAIT_MS, (lines) => {
      const [first] = lines
      if (first && lines.length === 1) this.#write("info", first.message, first.fields)
      else this.#write("info", `${lines.length} lines`, { lines })
    })
  }

  add(level: LogLevel, message: string, fields: LogFields): void {
    if (level !== "info") return this.#write(level, message, fields)
    this.#infos.add({ message, fields })
  }

  /** Writes pending lines that have waited long enough, while OpenCode is awake anyway. */
  flush(): void {
    this.#infos.flush(GATHER_MS)
  }

  #write(level: LogLevel, message: string, fields: Readonly<Record<string, unknown>>): void {
    const line = `superagents: ${message}`
    void this.#client.app.log({ service: "superagents", level, message: line, extra: { ...fields } }).catch(() => {})
  }
}
