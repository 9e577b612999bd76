import type { RawEvent } from "../../../opencode/events.ts"
import type { RequestHandler } from "../../../runtime/connection.ts"
import type { Tool } from "../../../tools/tool.ts"

/**
 * A folder that a task works in has an instance of its own in the host, and with it an instance of this plugin, where
 * the folder's configuration names it. That one hears what happens there; this is how it tells the instance that looks
 * after the task, and has it answer calls of our tools. A hint only: where no plugin is loaded, polling finds out.
 */
export type Peer = {
  /** `folder`: where it was heard. */
  hear(event: RawEvent, folder: string): void
  readonly tools: Readonly<Record<string, Tool>>
  readonly keeper: RequestHandler
}

const KEY = Symbol.for("superagents.guests")

/** Who looks after a folder. The plugin may be loaded twice in a process, as two modules: they share `globalThis`. */
function peers(): Map<string, Peer> {
  const shared = globalThis as { [KEY]?: Map<string, Peer> }
  shared[KEY] ??= new Map()
  return shared[KEY]
}

export const listenIn = (folder: string, peer: Peer): void => void peers().set(folder, peer)

export function leave(folder: string, peer: Peer): void {
  if (peers().get(folder) === peer) peers().delete(folder)
}

/** For an instance that ends. */
export function leaveAll(peer: Peer): void {
  for (const [folder, other] of peers()) if (other === peer) peers().delete(folder)
}

export const peerOf = (folder: string): Peer | undefined => peers().get(folder)
