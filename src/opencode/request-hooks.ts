import type { Hooks } from "@opencode-ai/plugin"
import type { App } from "../app.ts"
import type { RequestObserver } from "../core/feature.ts"
import type { OpencodeApi } from "../core/ports.ts"
import type { Options } from "../options/options.ts"
import type { RequestHandler } from "../runtime/connection.ts"
import { briefingOf } from "../tools/briefing.ts"
import { renderForCompaction } from "../tools/render-list.ts"
import { cacheKeyInHeaders, cacheKeyInOptions } from "./cache-key.ts"
import type { OpencodeConnection } from "./connect.ts"
import type { NativeTask } from "./native-task.ts"
import { addRequestText, leaveOutStale, modelIn, type RequestMessages, sessionOf, turnOf } from "./request.ts"

/** Runs work of a hook and catches its errors: a throw would stop OpenCode or the turn. */
export type HookGuard = (work: () => void | Promise<void>) => Promise<void>

export const createHookGuard =
  (host: Pick<OpencodeApi, "log">): HookGuard =>
  async (work) => {
    try {
      await work()
    } catch (error) {
      host.log("error", "a hook failed", { error: String(error) })
    }
  }

/** Agent of compactions; its model is known just before its request. */
const COMPACTION = "compaction"

/**
 * Holds a request until its turn is aborted; a paused run later repeats its prompt. Each promise is new: a shared one
 * would keep the data of all held requests in memory.
 */
const held = (): Promise<never> => new Promise(() => {})

/** Hooks for model requests: added texts, and whether a request is sent. */
export function requestHooks(
  connection: OpencodeConnection,
  { manager, board }: App,
  { options, native }: { readonly options: Options; readonly native: NativeTask | undefined },
  guard: HookGuard,
) {
  const { observers } = manager
  const keeperHere = () => connection.requestHandler(manager)
  const briefingFor = briefingsBy(keeperHere, options, observers)
  /** Sessions whose next request is a compaction. */
  const compacting = new Set<string>()
  return {
    "experimental.chat.messages.transform": async (_input, output) =>
      guard(async () => {
        const request = output as unknown as RequestMessages
        const sessionID = sessionOf(request)
        leaveOutStale(request)
        // A text for a single request must not enter a compaction's summary.
        if (!sessionID) return compacting.clear()
        if (compacting.delete(sessionID)) return
        if (keeperHere().holdsRequest(sessionID, modelIn(request))) await held()
        native?.asked(request)
        const changed = await board?.conversations.changed(sessionID, turnOf(request))
        const word = keeperHere().inRequest(sessionID)
        for (const each of observers) each.asking(sessionID, request)
        addRequestText(request, [changed, word?.text].filter(isText), word?.withoutTools)
      }),
    // Cache key by which a provider finds a request's prefix.
    "chat.params": async ({ sessionID, agent, model }, output) =>
      guard(async () => {
        const asked = { provider: model.providerID, id: model.id }
        if (agent === COMPACTION && keeperHere().holdsRequest(sessionID, asked, true)) await held()
        const ridden = keeperHere().rides(sessionID)
        if (ridden) cacheKeyInOptions(output.options, sessionID, ridden)
        for (const each of observers) await each.sending(sessionID, agent)
      }),
    "chat.headers": async ({ sessionID, model }, output) =>
      guard(() => {
        const ridden = keeperHere().rides(sessionID)
        if (ridden) cacheKeyInHeaders(output.headers, model.providerID, ridden)
      }),
    ...((briefingOf(options) !== undefined || board || observers.length > 0) && {
      "experimental.chat.system.transform": async ({ sessionID = "" }, output) =>
        guard(async () => {
          const texts = [briefingFor(sessionID), await board?.conversations.system(sessionID)]
          output.system.push(...texts.filter(isText))
          for (const each of observers) each.making(sessionID, output)
        }),
    }),
    "experimental.session.compacting": async ({ sessionID }, output) =>
      guard(async () => {
        // Right after this, OpenCode passes the conversation on for a summary.
        compacting.add(sessionID)
        const handler = keeperHere()
        await handler.ready(sessionID)
        const text = renderForCompaction(handler.list(sessionID))
        if (text !== "") output.context.push(text)
      }),
  } satisfies Hooks
}

/** Adds the briefing to fresh agents' sessions, and to probes for them. */
const briefingsBy =
  (keeperHere: () => RequestHandler, options: Options, observers: readonly RequestObserver[]) =>
  (sessionID: string): string | undefined => {
    const handler = keeperHere()
    const isTold = handler.isFresh(sessionID) || observers.some((each) => each.isBriefed(sessionID))
    return isTold ? briefingOf(options, handler.answersInJSON(sessionID)) : undefined
  }

const isText = (text: string | undefined): text is string => text !== undefined && text !== ""
