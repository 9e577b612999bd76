import { rmSync } from "node:fs"
import { rm } from "node:fs/promises"
import { setTimeout as sleep } from "node:timers/promises"
import { createOpencodeClient } from "@opencode-ai/sdk/v2"
import { createEventLog } from "./events.ts"
import { type HomeOptions, prepareHome, tail } from "./home.ts"
import { freePort, type ServerProcess, startServer } from "./server-process.ts"

export type { OpencodeEventOf } from "./events.ts"
export type { Plugin } from "./home.ts"
export type OpencodeOptions = HomeOptions

export type Opencode = Awaited<ReturnType<typeof startOpencode>>

const GRACE_MS = 3000
const START_ATTEMPTS = 3
const OUTPUT_LIMIT = 65_536

const homes = new Set<string>()
const keeps = () => Boolean(process.env.SUPERAGENTS_KEEP)
process.on("exit", () => {
  if (keeps()) return
  for (const home of homes) rmSync(home, { recursive: true, force: true })
})

/**
 * A real `opencode serve` in a throw-away home and project. It keeps its port over a restart while that is free;
 * so take `url` and `client` from OpenCode each time. A given `home` is never removed by stop().
 */
export const startOpencode = async (options: OpencodeOptions = {}) => {
  const { root, directory, env, logFile } = await prepareHome(options)
  const ownsHome = !options.home
  if (ownsHome) homes.add(root)
  let output = ""
  const logs = () => `--- output\n${output}\n--- ${logFile}\n${tail(logFile)}`
  const print = (text: string) => {
    output = (output + text).slice(-OUTPUT_LIMIT)
  }
  const events = createEventLog(logs)

  const boot = async (preferredPort?: number) => {
    const begin = performance.now()
    let failure: unknown
    for (let attempt = 0; attempt < START_ATTEMPTS; attempt++) {
      const port = (attempt === 0 && preferredPort) || (await freePort())
      try {
        const server = await startServer({ cwd: directory, env, port, print })
        const client = createOpencodeClient({ baseUrl: server.url, directory })
        await events.connect(server.url, directory)
        return { server, client, startMs: performance.now() - begin }
      } catch (error) {
        failure = error
      }
    }
    throw new Error(`${failure}\n${logs()}`)
  }

  const end = async (server: ServerProcess, signal: NodeJS.Signals) => {
    const patience = sleep(GRACE_MS, "late" as const, { ref: false })
    const outcome = await Promise.race([server.kill(signal), patience])
    if (outcome === "late") await server.kill("SIGKILL")
    events.close()
  }

  let current = await boot()

  return {
    directory,
    home: root,
    events,
    logs,
    get url() {
      return current.server.url
    },
    get client() {
      return current.client
    },
    get pid() {
      return current.server.pid
    },
    /** How long the last start took. */
    get startMs() {
      return current.startMs
    },
    /** Sends the signal (and SIGKILL if it is ignored for 3 s); resolves when the process is gone. */
    kill: (signal: NodeJS.Signals = "SIGKILL") => end(current.server, signal),
    /** The same home and project in a new process; what still runs is stopped first. */
    async restart() {
      await end(current.server, "SIGTERM")
      current = await boot(Number(new URL(current.server.url).port))
    },
    /** Ends the process and removes the home, unless SUPERAGENTS_KEEP is set or the home was given. */
    async stop() {
      await end(current.server, "SIGTERM")
      if (keeps() || !ownsHome) return
      homes.delete(root)
      await rm(root, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
    },
  }
}
