import type { Host } from "../core/ports.ts"

/** Does work in a hook: a throw in one would stop the host or the turn. */
export type Guard = (work: () => void | Promise<void>) => Promise<void>

export const guardOf =
  (host: Pick<Host, "log">): Guard =>
  async (work) => {
    try {
      await work()
    } catch (error) {
      host.log("error", "a hook failed", { error: String(error) })
    }
  }
