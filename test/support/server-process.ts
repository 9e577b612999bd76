import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import type { AddressInfo } from "node:net"
import { createServer } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { reap } from "./reap.ts"

/** `SUPERAGENTS_OPENCODE` names another version's binary: that is how `npm run test:versions` tries several. */
export const BINARY =
  process.env.SUPERAGENTS_OPENCODE ?? fileURLToPath(new URL("../../node_modules/.bin/opencode", import.meta.url))

const START_TIMEOUT_MS = 60_000
const READY_REQUEST_MS = 3000
const READY_PAUSE_MS = 25

const living = new Set<ChildProcess>()
process.on("exit", () => {
  for (const child of living) child.kill("SIGKILL")
})

/** `--port 0` would take 4096 when it is free, so that one test's dead OpenCode could be answered for by another's. */
export const freePort = async () => {
  const server = createServer()
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, "close")
  return port
}

export type ServerProcess = Awaited<ReturnType<typeof startServer>>

type StartOptions = { cwd: string; env: NodeJS.ProcessEnv; port: number; print: (text: string) => void }

/** Starts `opencode serve` and resolves when it answers for the project, plugins loaded. */
export const startServer = async ({ cwd, env, port, print }: StartOptions) => {
  const args = ["serve", "--hostname", "127.0.0.1", "--port", String(port)]
  const child = spawn(BINARY, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] })
  living.add(child)
  const gone = new Promise<void>((resolve) => {
    child.once("error", (error) => {
      print(`${error}\n`)
      resolve()
    })
    child.once("exit", (code, signal) => {
      print(`[exit ${code ?? signal}]\n`)
      resolve()
    })
  })
  gone.then(() => living.delete(child))
  if (child.pid) child.once("exit", reap(child.pid))

  const kill = async (signal: NodeJS.Signals = "SIGKILL") => {
    if (living.has(child)) child.kill(signal)
    await gone
  }

  const listening = new Promise<string>((resolve) => {
    let seen = ""
    const hear = (chunk: string) => {
      print(chunk)
      if (seen.length < 4096) seen += chunk
      const found = /listening on (http:\/\/\S+)/.exec(seen)
      if (found?.[1]) resolve(found[1])
    }
    child.stdout.setEncoding("utf8").on("data", hear)
    child.stderr.setEncoding("utf8").on("data", print)
  })

  const ready = async () => {
    const deadline = performance.now() + START_TIMEOUT_MS
    const timeout = sleep(START_TIMEOUT_MS, undefined, { ref: false })
    const url = await Promise.race([listening, gone, timeout])
    if (!url) throw new Error("OpenCode did not start")
    const probe = `${url}/agent?directory=${encodeURIComponent(cwd)}`
    while (performance.now() < deadline && living.has(child)) {
      const answer = await fetch(probe, { signal: AbortSignal.timeout(READY_REQUEST_MS) }).catch(() => undefined)
      await answer?.arrayBuffer().catch(() => {})
      if (answer?.ok) return url
      await sleep(READY_PAUSE_MS)
    }
    throw new Error("OpenCode started and never became ready")
  }

  try {
    return { url: await ready(), pid: child.pid as number, kill, gone }
  } catch (error) {
    await kill()
    throw error
  }
}
