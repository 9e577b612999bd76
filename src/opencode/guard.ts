import type { Host } from "../core/ports.ts"

/** Runs work of a hook and catches its errors: a throw would stop OpenCode or the turn. */
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
