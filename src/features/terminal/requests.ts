import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Reply } from "../../core/ports.ts"
import { toError } from "../../opencode/convert.ts"
import { REQUEST_KEY } from "../../runtime/record/codec.ts"

/**
 * What the companion has done. A task has one owner, the server half: a request is written into the metadata of the
 * task's session, where the server half hears of it, carries it out and takes it away.
 */
export type Request =
  | { readonly action: "cancel" }
  | { readonly action: "clear" }
  | { readonly action: "unpark" }
  | { readonly action: "resume" | "tell"; readonly prompt: string }
  | { readonly action: "answer"; readonly ask: string; readonly reply: Reply }

/** How long the server half may take before the user is told that nobody listens. */
const ANSWER_WITHIN_MS = 5000

type Metadata = Record<string, unknown>

/** The way to the server half. */
export function createRequests(api: TuiPluginApi) {
  const timers = new Set<ReturnType<typeof setTimeout>>()

  const editMetadata = async (sessionID: string, edit: (metadata: Metadata) => Metadata | undefined) => {
    const session = await dataOf(api.client.session.get({ sessionID }))
    const metadata = edit({ ...session.metadata })
    if (metadata) await dataOf(api.client.session.update({ sessionID, metadata }))
  }

  /** A request that is still there has not been heard: it is taken away, lest a later start carries it out. */
  const withdraw = (sessionID: string, id: string) =>
    editMetadata(sessionID, ({ [REQUEST_KEY]: request, ...others }) => {
      if ((request as { id?: string } | undefined)?.id !== id) return undefined
      api.ui.toast({
        variant: "warning",
        title: "Nobody answers",
        message: "The plugin's server half does not run here, or another OpenCode runs this task.",
      })
      return others
    })

  const withdrawLater = (sessionID: string, id: string) => {
    const timer = setTimeout(() => {
      timers.delete(timer)
      withdraw(sessionID, id).catch(() => {})
    }, ANSWER_WITHIN_MS)
    timer.unref?.()
    timers.add(timer)
  }

  return {
    /** Resolves once it is written; rejects with the host's error. */
    async send(sessionID: string, request: Request): Promise<void> {
      const id = crypto.randomUUID()
      await editMetadata(sessionID, (metadata) => ({ ...metadata, [REQUEST_KEY]: { id, ...request } }))
      withdrawLater(sessionID, id)
    },

    dispose() {
      for (const timer of timers) clearTimeout(timer)
    },
  }
}

/** SDK calls do not throw by themselves. */
export async function dataOf<Data>(call: Promise<{ data?: Data; error?: unknown }>): Promise<Data> {
  const { data, error } = await call
  if (error !== undefined) throw new Error(toError(error).message)
  return data as Data
}
