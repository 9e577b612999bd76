import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import { createSignal } from "solid-js"
import { pauseOf } from "../../../core/pause.ts"
import { type Ask, isActive, isQueued } from "../../../core/task.ts"
import { permissionAsk, questionAsk } from "../../../opencode/events.ts"
import { recordDecoder } from "../../../runtime/record/codec.ts"
import { LOOK_BACK_MS } from "../../board/state.ts"
import type { BoardTask } from "../../board/task.ts"

/** Runs of the board are no groups. */
const decode = recordDecoder([])

/**
 * Sessions are read from this much earlier, in ms, because clocks of other processes may differ and writes may be late.
 */
const SLACK_MS = 5000
/** Time limit for a list of sessions, in ms, because OpenCode may have ended. */
const LIST_LIMIT_MS = 5000

/** Runs and questions in threads of board tasks. */
export class BoardThreads {
  readonly #api: TuiPluginApi
  /** Threads as they were read last. Runs of other processes send no events here. */
  readonly #threads = new Map<string, Session>()
  /** Signal for changes of sessions. Such changes do not trigger the board's own signals. */
  readonly #version = createSignal(0)
  #readSince: number | undefined

  constructor(api: TuiPluginApi) {
    this.#api = api
  }

  /** Starts to listen to events. The returned function stops it. */
  listen(): () => void {
    return this.#api.event.on("session.updated", () => this.#touch())
  }

  /** Reads the threads that changed since the last call. Never rejects. */
  async read(tasks: readonly BoardTask[]): Promise<void> {
    const ids = new Set(tasks.flatMap(({ status, threadId = "" }) => (status === "active" ? threadId : [])))
    ids.delete("")
    if (ids.size === 0) return
    const now = Date.now()
    const start = (this.#readSince ?? now - LOOK_BACK_MS) - SLACK_MS
    const { data } = await this.#api.client.session
      .list({ scope: "project", roots: true, start }, { signal: AbortSignal.timeout(LIST_LIMIT_MS) })
      .catch(() => ({ data: null }))
    if (!data) return
    this.#readSince = now
    for (const session of data) if (ids.has(session.id)) this.#threads.set(session.id, session)
    if (data.length > 0) this.#touch()
  }

  /** Open questions of a task's thread. */
  asks({ threadId: sessionID }: BoardTask): readonly Ask[] {
    if (sessionID === undefined) return []
    const { session } = this.#api.state
    return [
      ...session.permission(sessionID).map((asked) => permissionAsk({ ...asked, sessionID }, 0)),
      ...session.question(sessionID).map((asked) => questionAsk({ ...asked, sessionID }, 0)),
    ]
  }

  /** The active run in a board task's thread. Readers are updated when the thread changes. */
  runOf(of: BoardTask) {
    this.#version[0]()
    const session = of.threadId === undefined ? undefined : this.#thread(of.threadId)
    const task = session && decode(session)?.task
    if (!task || !isActive(task)) return undefined
    const state = isQueued(task) ? ("queued" as const) : ("running" as const)
    const { createdAt } = task.run
    const pause = pauseOf(task.run)
    return {
      createdAt,
      state,
      isForeign: false,
      asks: this.asks(of).map(({ what }) => what),
      ...(pause && { pause }),
    }
  }

  /** The session from events or from the last read, whichever is newer. */
  #thread(id: string): Session | undefined {
    const [heard, read] = [this.#api.state.session.get(id), this.#threads.get(id)]
    return heard && read ? (read.time.updated > heard.time.updated ? read : heard) : (heard ?? read)
  }

  #touch(): void {
    this.#version[1]((count) => count + 1)
  }
}
