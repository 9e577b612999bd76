import { existsSync } from "node:fs"
import type { PluginInput } from "@opencode-ai/plugin"
import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { LogFields } from "../core/ports.ts"
import { systemClock } from "../lib/clock.ts"
import { fetchDirectly } from "../lib/direct.ts"
import type { FileDiff } from "../lib/repository.ts"
import { startWorker } from "../lib/thread.ts"
import type { Options } from "../options/options.ts"
import type { Connection, Notice, RequestHandler } from "../runtime/connection.ts"
import { hasWorktrees } from "../runtime/places/root.ts"
import { installationSigner, keyFile, registerInstance, unregisterInstance } from "../runtime/record/identity.ts"
import { KEY_TITLE, keyText, lossText } from "../runtime/record/notices.ts"
import { TokenCounter } from "../runtime/tokens/counter.ts"
import type { Tool } from "../tools/tool.ts"
import { call, clientOn, type Transport, transportOf } from "./client.ts"
import type { RawEvent } from "./events.ts"
import { OpencodeHttpApi } from "./host.ts"
import { OpencodeModels } from "./models.ts"
import { OpencodeThreads } from "./threads.ts"
import { OpencodeUserActions } from "./user-actions.ts"
import { ownFolder } from "./user-config.ts"

/**
 * OpenCode runs another instance of the plugin in a task's folder, if it is configured there. It forwards events and
 * tool calls to the instance that owns the task; without it, polling finds out the same.
 */
export type Peer = {
  /** `folder`: source of the event. */
  hear(event: RawEvent, folder: string): void
  readonly tools: Readonly<Record<string, Tool>>
  readonly handler: RequestHandler
}

const KEY = Symbol.for("superagents.guests")

/** Instances by folder. A process may load the plugin twice, as two modules: they share `globalThis`. */
function peers(): Map<string, Peer> {
  const shared = globalThis as { [KEY]?: Map<string, Peer> }
  shared[KEY] ??= new Map()
  return shared[KEY]
}

export const registerPeer = (folder: string, peer: Peer): void => void peers().set(folder, peer)

export function unregisterPeer(folder: string, peer: Peer): void {
  if (peers().get(folder) === peer) peers().delete(folder)
}

/** Removes an instance that ends. */
export function unregisterEverywhere(peer: Peer): void {
  for (const [folder, other] of peers()) if (other === peer) peers().delete(folder)
}

export const peerOf = (folder: string): Peer | undefined => peers().get(folder)

/** Built next to the plugin. One for all instances of the process; no thread runs until tokens are counted. */
const TOKENIZER = new URL(
  import.meta.url.endsWith(".ts") ? "../runtime/tokens/tokenizer-thread.ts" : "./tokenizer.js",
  import.meta.url,
)
const counter = new TokenCounter(systemClock, () => startWorker(TOKENIZER))

/** A connection to OpenCode 1.x, with the parts that only its hooks need. */
export type OpencodeConnection = Connection & {
  readonly host: OpencodeHttpApi
  readonly transport: Transport
  /** Warnings to be shown. */
  readonly notices: Notice[]
  /** From now on, instances of tasks' own folders report to `peer`. */
  listen(peer: Peer): void
  /** Ends the instances of tasks' own folders. */
  leave(): Promise<void>
  /** Allows other instances to take the tasks over. */
  unregister(): void
}

export function connect(input: PluginInput, options: Options): OpencodeConnection {
  const { directory, worktree, serverUrl } = input
  const instance = registerInstance()
  const isNewKey = !existsSync(keyFile())
  const signer = installationSigner()
  const notices: Notice[] = []
  const warn = (notice: Notice) => {
    host.log("warn", notice.message)
    notices.push(notice)
  }
  const tell = (fields: LogFields) => host.log("info", "call", fields)
  const client = clientOn(input.client, options.verbose ? tell : undefined)
  let peer: Peer | undefined
  const host: OpencodeHttpApi = new OpencodeHttpApi(client, instance, signer, systemClock, {
    folder: directory,
    entered: (folder) => peer && registerPeer(folder, peer),
    left: (folder) => peer && unregisterPeer(folder, peer),
    mayBeElsewhere: hasWorktrees,
  })
  if (signer.problem) warn({ title: KEY_TITLE, message: keyText(signer.problem, options.board !== undefined) })
  return {
    host,
    client,
    models: new OpencodeModels(client, counter),
    signer,
    warn,
    notices,
    lost() {
      const message = signer.problem ? undefined : lossText(host.unbelieved(), keyFile(), isNewKey)
      return message === undefined ? undefined : { title: KEY_TITLE, message }
    },
    instance,
    worktree,
    directory,
    ownFolder: ownFolder(),
    transport: transportOf(input.client),
    threads: (home) => new OpencodeThreads(client, host, signer, home),
    userActions: new OpencodeUserActions(client, directory),
    sign: (sessionID, uiMetadata) => host.sign(sessionID, uiMetadata),
    hasOtherOwner: () => peerOf(directory) !== undefined,
    requestHandler: (own) => peerOf(directory)?.handler ?? own,
    changesOf: ({ sessionID, run }) => diffSince(client, sessionID, run.promptID),
    pages: () => sessionPages(serverUrl, directory),
    listen(own) {
      peer = own
    },
    async leave() {
      if (peer) unregisterEverywhere(peer)
      await host.leaveAll()
    },
    unregister: () => unregisterInstance(instance),
  }
}

/** Session's changes since a prompt; empty where OpenCode has no snapshots of them. */
export async function diffSince(client: OpencodeClient, sessionID: string, messageID: string): Promise<FileDiff[]> {
  try {
    const found = await call("session.diff", client.session.diff({ sessionID, messageID }))
    return found.map(({ file, patch, additions, deletions }) => ({
      file: file ?? "",
      patch: patch ?? "",
      additions,
      deletions,
    }))
  } catch {
    return []
  }
}

/** Time limit for the server's answer, in ms. */
const PROBE_LIMIT_MS = 1500

/**
 * Address of OpenCode's page for this directory, to be completed with a session id. Undefined without a listening
 * server: the terminal UI names an address that does not answer.
 */
async function sessionPages(serverUrl: URL | undefined, directory: string): Promise<string | undefined> {
  if (!serverUrl) return undefined
  try {
    // Any answer counts, also a request for a password.
    const signal = AbortSignal.timeout(PROBE_LIMIT_MS)
    const response = await fetchDirectly(new URL("/global/health", serverUrl), { signal })
    await response.body?.cancel()
  } catch {
    return undefined
  }
  return new URL(`/${Buffer.from(directory).toString("base64url")}/session/`, serverUrl).href
}
