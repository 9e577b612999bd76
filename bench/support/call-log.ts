import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"

/** A call of the plugin to OpenCode, over the transport that OpenCode handed to it. */
export type OpencodeCall = {
  /** `GET /session/:id/message`, ids left out. */
  readonly route: string
  /** The session in the path, if there is one. */
  readonly sessionID?: string
  /** Milliseconds since the epoch. */
  readonly at: number
  /** From the call to the head of its answer. */
  readonly ms: number
}

export type CallLog = {
  /** All calls that have been answered; waits until what has been written down has come. */
  read(): Promise<readonly OpencodeCall[]>
}

/** How long the wrapper keeps what it has seen before it writes it down, in ms. */
export const WRITE_AFTER_MS = 100

/** What is needed to load the plugin at `entry` in the wrapper that writes down its calls. */
export const countedOn = (entry: string, options: Record<string, unknown>) => {
  const folder = mkdtempSync(join(tmpdir(), "superagents-calls-"))
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, "calls.jsonl")
  const read = async () => {
    await sleep(3 * WRITE_AFTER_MS)
    return linesOf(file).map((line) => JSON.parse(line) as OpencodeCall)
  }
  return {
    log: { read },
    plugin: fileURLToPath(new URL("../counted-plugin.ts", import.meta.url)),
    wrapped: { entry, file, options },
  }
}

const linesOf = (file: string): string[] => {
  try {
    return readFileSync(file, "utf8").split("\n").filter(Boolean)
  } catch {
    return []
  }
}

/** Notes for the log and toasts: they are not waited for and take nothing from the work. */
export const isAside = ({ route }: OpencodeCall): boolean => route === "POST /log" || route === "POST /tui/show-toast"

export const countRoutes = (calls: readonly OpencodeCall[]): Record<string, number> => {
  const counts: Record<string, number> = {}
  for (const { route } of calls) counts[route] = (counts[route] ?? 0) + 1
  return counts
}
