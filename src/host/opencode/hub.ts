import type { Tool } from "../../tools/tool.ts"
import type { Keeper } from "../connection.ts"
import type { RawEvent } from "./events.ts"

/**
 * A folder that a task works in has an instance of its own in the host, and with it an instance of this plugin, where
 * the folder's configuration names it. That one hears what happens there; this is how it tells the instance that looks
 * after the task, and has it answer calls of our tools. A hint only: where no plugin is loaded, polling finds out.
 */
export type Guest = {
  /** `folder`: where it was heard. */
  hear(event: RawEvent, folder: string): void
  readonly tools: Readonly<Record<string, Tool>>
  readonly keeper: Keeper
}

const KEY = Symbol.for("superagents.guests")

/** Who looks after a folder. The plugin may be loaded twice in a process, as two modules: they share `globalThis`. */
function guests(): Map<string, Guest> {
  const shared = globalThis as { [KEY]?: Map<string, Guest> }
  shared[KEY] ??= new Map()
  return shared[KEY]
}

export const listenIn = (folder: string, guest: Guest): void => void guests().set(folder, guest)

export function leave(folder: string, guest: Guest): void {
  if (guests().get(folder) === guest) guests().delete(folder)
}

/** For an instance that ends. */
export function leaveAll(guest: Guest): void {
  for (const [folder, other] of guests()) if (other === guest) guests().delete(folder)
}

export const guestOf = (folder: string): Guest | undefined => guests().get(folder)
