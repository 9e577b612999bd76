import type { RequestHandler } from "../runtime/connection.ts"
import type { Tool } from "../tools/tool.ts"
import type { RawEvent } from "./events.ts"

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
