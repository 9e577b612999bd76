import { existsSync } from "node:fs"
import type { PluginInput } from "@opencode-ai/plugin"
import type { LogFields } from "../core/ports.ts"
import type { GroupSchemas } from "../core/record.ts"
import { systemClock } from "../lib/clock.ts"
import { fetchDirectly } from "../lib/http.ts"
import { startWorker } from "../lib/thread.ts"
import type { Options } from "../options/options.ts"
import type { Connection, Notice, RequestHandler } from "../runtime/connection.ts"
import { hasWorktrees } from "../runtime/places/place.ts"
import {
  IS_RUN,
  installationSigner,
  keyFile,
  registerInstance,
  unregisterInstance,
} from "../runtime/record/identity.ts"
import { KEY_TITLE, keyText, lossText } from "../runtime/record/notices.ts"
import { TokenCounter } from "../runtime/tokens/counter.ts"
import type { Tool } from "../tools/tool.ts"
import { type FolderCallbacks, OpencodeHttpApi } from "./api.ts"
import { clientOn, type Transport, transportOf } from "./client.ts"
import type { RawEvent } from "./events.ts"
import { OpencodeModels } from "./models.ts"
import { OpencodeUserActions } from "./user-actions.ts"
import { ownFolder } from "./user-config.ts"

/**
 * The instance that owns a task, for another instance that OpenCode runs in the task's own folder and that forwards
 * events and tool calls. If the plugin is not configured in that folder, the owner learns of changes by polling.
 */
export type Peer = {
  /** Takes an event from another instance. `folder`: the folder from which the event comes. */
  handleEvent(event: RawEvent, folder: string): void
  readonly tools: Readonly<Record<string, Tool>>
  readonly handler: RequestHandler
}

const KEY = Symbol.for("superagents.guests.2")

/**
 * Owning instances by the folder of their tasks. Kept on `globalThis`, because a process may load the plugin as two
 * modules.
 */
function peers(): Map<string, Peer> {
  const shared = globalThis as { [KEY]?: Map<string, Peer> }
  shared[KEY] ??= new Map()
  return shared[KEY]
}

export const registerPeer = (folder: string, peer: Peer): void => void peers().set(folder, peer)

export function unregisterPeer(folder: string, peer: Peer): void {
  if (peers().get(folder) === peer) peers().delete(folder)
}

/** Removes an instance that ends from all folders. */
export function unregisterEverywhere(peer: Peer): void {
  for (const [folder, other] of peers()) if (other === peer) peers().delete(folder)
}

export const peerOf = (folder: string): Peer | undefined => peers().get(folder)

/**
 * The tokenizer's file, built next to the plugin. All instances of the process share its thread, which starts only when
 * tokens are counted.
 */
const TOKENIZER = new URL(
  import.meta.url.endsWith(".ts") ? "../runtime/tokens/tokenizer-thread.ts" : "./tokenizer.js",
  import.meta.url,
)
const counter = new TokenCounter(systemClock, () => startWorker(TOKENIZER))

/** A connection to OpenCode 1.x, with the parts that only its hooks need. */
export type OpencodeConnection = Connection & {
  readonly opencode: OpencodeHttpApi
  readonly transport: Transport
  /** Shows the user all warnings until now. Called when there is a screen: later ones are shown at once. */
  showWarnings(): void
  /** From now on, instances of tasks' own folders report to `peer`. */
  listen(peer: Peer): void
  /** Ends the instances of tasks' own folders. */
  leave(): Promise<void>
  /** Ends this instance's ownership, so that other instances can take its tasks over. */
  unregister(): void
}

/** `kinds`: kinds of groups that the features bring. */
export function connect(input: PluginInput, options: Options, kinds: readonly GroupSchemas[]): OpencodeConnection {
  const { directory, worktree, serverUrl } = input
  const instance = registerInstance()
  const isNewKey = !existsSync(keyFile())
  const signer = installationSigner()
  /** Warnings that wait for a screen; undefined once there is one. */
  let waiting: Notice[] | undefined = []
  const show = ({ title, message, isNews }: Notice) => {
    if (!IS_RUN && (isNews?.() ?? true)) opencode.toast({ title, message, variant: "warning" })
  }
  const warn = (notice: Notice) => {
    opencode.log("warn", notice.message)
    if (waiting) waiting.push(notice)
    else show(notice)
  }
  const tell = (fields: LogFields) => opencode.log("info", "call", fields)
  const client = clientOn(input.client, options.verbose ? tell : undefined)
  let peer: Peer | undefined
  const folders: FolderCallbacks = {
    folder: directory,
    entered: (folder) => peer && registerPeer(folder, peer),
    left: (folder) => peer && unregisterPeer(folder, peer),
    mayHaveOtherFolders: hasWorktrees,
  }
  const opencode: OpencodeHttpApi = new OpencodeHttpApi(client, instance, signer, systemClock, folders, kinds)
  if (signer.problem) warn({ title: KEY_TITLE, message: keyText(signer.problem) })
  return {
    opencode,
    client,
    models: new OpencodeModels(opencode.providers, counter),
    signer,
    warn,
    showWarnings() {
      waiting?.forEach(show)
      waiting = undefined
    },
    lost() {
      const message = signer.problem ? undefined : lossText(opencode.unverified(), keyFile(), isNewKey)
      return message === undefined ? undefined : { title: KEY_TITLE, message }
    },
    instance,
    worktree,
    directory,
    ownFolder: ownFolder(),
    transport: transportOf(input.client),
    userActions: new OpencodeUserActions(client),
    writeUiMetadata: (sessionID, uiMetadata) => opencode.writeUiMetadata(sessionID, uiMetadata),
    hasOtherOwner: () => peerOf(directory) !== undefined,
    requestHandler: (own) => peerOf(directory)?.handler ?? own,
    pages: () => sessionPages(serverUrl, directory),
    listen(own) {
      peer = own
    },
    async leave() {
      if (peer) unregisterEverywhere(peer)
      await opencode.leaveAll()
    },
    unregister: () => unregisterInstance(instance),
  }
}

/** Time limit for the server's answer, in ms. */
const PROBE_LIMIT_MS = 1500

/**
 * Address of OpenCode's page for this directory; the caller appends a session id. Undefined where no server listens: in
 * the terminal UI, `serverUrl` is an address that does not answer.
 */
async function sessionPages(serverUrl: URL | undefined, directory: string): Promise<string | undefined> {
  if (!serverUrl) return undefined
  try {
    // Any answer proves that a server listens, even a request for a password.
    const signal = AbortSignal.timeout(PROBE_LIMIT_MS)
    const response = await fetchDirectly(new URL("/global/health", serverUrl), { signal })
    await response.body?.cancel()
  } catch {
    return undefined
  }
  return new URL(`/${Buffer.from(directory).toString("base64url")}/session/`, serverUrl).href
}
