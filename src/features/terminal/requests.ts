import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Reply } from "../../core/ports.ts"
import { toError } from "../../opencode/convert.ts"
import { REQUEST_KEY } from "../../runtime/record/codec.ts"

/**
 * Requests of the terminal to the server plugin, which owns the tasks. They are written into the metadata of the task's
 * session and removed by the server plugin.
 */
export type Request =
  | { readonly action: "cancel" }
  | { readonly action: "clear" }
  | { readonly action: "unpark" }
  | { readonly action: "resume" | "tell"; readonly prompt: string }
  | { readonly action: "answer"; readonly ask: string; readonly reply: Reply }

/** After this time the user is told that no server plugin answers. */
const ANSWER_WITHIN_MS = 5000

type Metadata = Record<string, unknown>

/** Connection to the server plugin. */
export function createRequests(api: TuiPluginApi) {
  const timers = new Set<ReturnType<typeof setTimeout>>()

  const editMetadata = async (sessionID: string, edit: (metadata: Metadata) => Metadata | undefined) => {
    const session = await dataOf(api.client.session.get({ sessionID }))
    const metadata = edit({ ...session.metadata })
    if (metadata) await dataOf(api.client.session.update({ sessionID, metadata }))
  }

  /** Removes an unanswered request, which a later start would carry out. */
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
    /** Resolves once written; rejects with OpenCode's error. */
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

/** Throws errors that the SDK only returns. */
export async function dataOf<Data>(call: Promise<{ data?: Data; error?: unknown }>): Promise<Data> {
  const { data, error } = await call
  if (error !== undefined) throw new Error(toError(error).message)
  return data as Data
}
