import { readFileSync, writeFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import type { Plugin } from "@opencode-ai/plugin"
import { NO_FIGURES, type TaskDraft } from "../src/core/task.ts"
import { forkContext } from "../src/features/forks/fork.ts"
import { OpencodeForks } from "../src/features/forks/opencode/forks.ts"
import { systemClock } from "../src/lib/clock.ts"
import { startWorker } from "../src/lib/thread.ts"
import { OpencodeHttpApi } from "../src/opencode/api.ts"
import { clientOn } from "../src/opencode/client.ts"
import { OpencodeModels } from "../src/opencode/models.ts"
import { installationKey, registerInstance, signerOf } from "../src/runtime/record/identity.ts"
import { TokenCounter } from "../src/runtime/tokens/counter.ts"

export type Order =
  | { readonly kind: "bare" | "fork"; readonly parentID: string; readonly messageID: string }
  /** Waits, nothing else. */
  | { readonly kind: "idle"; readonly ms: number }
  /** Counts the tokens of these texts, nothing else. */
  | { readonly kind: "count"; readonly texts: readonly string[] }

export type Measured = {
  readonly ms: number
  /** The longest time in which OpenCode's thread did nothing else, in ms. */
  readonly blockMs: number
  /** The same in time of the processor: what others on the machine took away is left out. */
  readonly busyMs: number
  /** Of what was counted. */
  readonly tokens?: number
}

const TOKENIZER = new URL("../src/runtime/tokens/tokenizer-thread.ts", import.meta.url)
const counter = new TokenCounter(systemClock, () => startWorker(TOKENIZER))
const LIMITS = { maxTokens: 100_000, maxToolResultChars: 1500 }

/** Carries out forks in OpenCode's own process, where the plugin does. Option `file` gets the port that it listens on. */
const server: Plugin = async (input, given) => {
  const client = clientOn(input.client)
  const opencode = new OpencodeHttpApi(client, registerInstance(), signerOf(installationKey()), systemClock)
  const models = new OpencodeModels(opencode.providers, counter)
  const forks = new OpencodeForks({ client, sessions: opencode, directory: input.directory, models })

  const work = async (order: Order): Promise<number | undefined> => {
    if (order.kind === "count") return (await counter.count(order.texts))?.reduce((sum, tokens) => sum + tokens, 0)
    if (order.kind === "idle") {
      await new Promise((resolve) => setTimeout(resolve, order.ms))
      return undefined
    }
    const { kind, parentID, messageID } = order
    if (kind === "fork") {
      const draft = draftOf(parentID, messageID)
      await forkContext({ forks, models, opencode }, { draft, title: "t", rules: [], limits: LIMITS })
    } else {
      const { data } = await client.session.fork({ sessionID: parentID, messageID })
      if (!data) throw new Error("no fork")
    }
    return undefined
  }

  const measure = async (order: Order): Promise<Measured> => {
    const watch = watchLoop()
    const begin = performance.now()
    const tokens = await work(order)
    const ms = performance.now() - begin
    return { ms, ...watch(), tokens }
  }

  const listener = createServer((request, response) => {
    let body = ""
    request.on("data", (chunk) => {
      body += chunk
    })
    request.on("end", () => {
      measure(JSON.parse(body)).then(
        (measured) => response.end(JSON.stringify(measured)),
        (error) => response.writeHead(500).end(String(error)),
      )
    })
  })
  listener.listen(0, "127.0.0.1", () =>
    writeFileSync((given as { file: string }).file, String((listener.address() as AddressInfo).port)),
  )
  listener.unref()
  return {}
}

/** Looks at the clock every ms; the longest gap is how long others had to wait. */
function watchLoop(): () => Pick<Measured, "blockMs" | "busyMs"> {
  let last = { wall: performance.now(), busy: processorMs() }
  const longest = { blockMs: 0, busyMs: 0 }
  const look = () => {
    const now = { wall: performance.now(), busy: processorMs() }
    longest.blockMs = Math.max(longest.blockMs, now.wall - last.wall)
    longest.busyMs = Math.max(longest.busyMs, now.busy - last.busy)
    last = now
  }
  const timer = setInterval(look, 1)
  return () => {
    look()
    clearInterval(timer)
    return longest
  }
}

/** How long the process's first thread, OpenCode's, has had a processor, in ms; 0 where the system does not tell. */
function processorMs(): number {
  try {
    return Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8").split(" ")[0]) / 1e6
  } catch {
    return 0
  }
}

let made = 0
const draftOf = (parentID: string, parentMessageID: string): TaskDraft => ({
  id: `bg_${String(made++).padStart(8, "0")}`,
  parentID,
  parentMessageID,
  description: "bench",
  agent: "general",
  model: { provider: "scripted", id: "alpha" },
  batch: "auto:bench",
  depth: 1,
  createdAt: 1,
  earlier: NO_FIGURES,
  fingerprint: "bench",
  status: "running",
  run: { generation: 0, promptID: "msg_bench", createdAt: Date.now(), timeout: 0 },
  delivery: { state: "none" },
})

export default { id: "superagents-fork-bench", server }
