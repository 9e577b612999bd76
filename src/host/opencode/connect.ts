import { randomBytes } from "node:crypto"
import type { PluginInput } from "@opencode-ai/plugin"
import type { LogFields } from "../../core/ports.ts"
import { TokenCounter } from "../../fork/counter.ts"
import { systemClock } from "../../lib/clock.ts"
import type { Options } from "../../options.ts"
import { mayBeElsewhere } from "../../place/root.ts"
import type { Connection } from "../connection.ts"
import { registerInstance, unregisterInstance } from "../record/owner.ts"
import { installationKey, type Signer, signerOf } from "../record/signature.ts"
import { clientOn, type Transport, transportOf } from "./client.ts"
import { diffSince } from "./diffs.ts"
import { OpencodeForks } from "./forks.ts"
import { OpencodeHost } from "./host.ts"
import { type Guest, guestOf, leave, leaveAll, listenIn } from "./hub.ts"
import { sessionPages } from "./pages.ts"
import { startCounting } from "./thread.ts"
import { OpencodeThreads } from "./threads.ts"

/** Beside the built plugin. One for all instances in the process; no thread runs until a fork needs it. */
const TOKENIZER = new URL(import.meta.url.endsWith(".ts") ? "../../tokenizer.ts" : "./tokenizer.js", import.meta.url)
const counter = new TokenCounter(systemClock, () => startCounting(TOKENIZER))

/** OpenCode 1.x as a connection, and what only its hooks need. */
export type OpencodeConnection = Connection & {
  readonly host: OpencodeHost
  readonly transport: Transport
  /** From now on the instances of the folders that tasks work in report to `guest`. */
  listen(guest: Guest): void
  /** Ends the instances of the folders that tasks work in. */
  leave(): Promise<void>
  /** From here on another instance may take the tasks over. */
  unregister(): void
}

export function connect(input: PluginInput, options: Options): OpencodeConnection {
  const { directory, worktree, serverUrl } = input
  const instance = registerInstance()
  const { signer, problem } = signerHere()
  const tell = (fields: LogFields) => host.log("info", "call", fields)
  const client = clientOn(input.client, options.verbose ? { tell } : { called: () => host.called() })
  let guest: Guest | undefined
  const host: OpencodeHost = new OpencodeHost(client, instance, signer, systemClock, {
    folder: directory,
    entered: (folder) => guest && listenIn(folder, guest),
    left: (folder) => guest && leave(folder, guest),
    mayBeElsewhere,
  })
  if (problem) host.log("warn", problem)
  return {
    host,
    forks: new OpencodeForks({ client, sessions: host, directory, counter }),
    instance,
    worktree,
    directory,
    transport: transportOf(input.client),
    threads: (home) => new OpencodeThreads(client, host, home),
    isKept: () => guestOf(directory) !== undefined,
    keeper: (own) => guestOf(directory)?.keeper ?? own,
    changesOf: ({ sessionID, run }) => diffSince(client, sessionID, run.promptID),
    pages: () => sessionPages(serverUrl, directory),
    listen(own) {
      guest = own
    },
    async leave() {
      if (guest) leaveAll(guest)
      await host.leaveAll()
    },
    unregister: () => unregisterInstance(instance),
  }
}

/** Where no key can be kept, what this process writes is believed by this process alone. */
function signerHere(): { signer: Signer; problem?: string } {
  try {
    return { signer: signerOf(installationKey()) }
  } catch (error) {
    const problem = `No key could be kept for signing records, so tasks will be forgotten at a restart: ${String(error)}`
    return { signer: signerOf(randomBytes(32)), problem }
  }
}
