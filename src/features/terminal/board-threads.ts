import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import { createSignal } from "solid-js"
import { pauseOf } from "../../core/pause.ts"
import { type Ask, isActive, isQueued } from "../../core/task.ts"
import { permissionAsk, questionAsk } from "../../opencode/asks.ts"
import { decodeRecord } from "../../runtime/record/codec.ts"
import { LOOK_BACK_MS } from "../board/state.ts"
import type { BoardTask } from "../board/task.ts"

/** Clocks of two processes, and a write that was under way. */
const SLACK_MS = 5000
/** The host may be gone: its answer is not waited for longer. */
const LIST_LIMIT_MS = 5000

/** The threads of the board's tasks: what runs there, and what is asked. */
export class BoardThreads {
  readonly #api: TuiPluginApi
  /** As they were read: other processes' runs are told of in no event here. */
  readonly #threads = new Map<string, Session>()
  /** Sessions change without the signals of the board: their events count here. */
  readonly #version = createSignal(0)
  #readSince: number | undefined

  constructor(api: TuiPluginApi) {
    this.#api = api
  }

  /** Returns the end of it. */
  listen(): () => void {
    return this.#api.event.on("session.updated", () => this.#touch())
  }

  /** Reads those that changed since the last time. Never rejects. */
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

  /** What a task's thread asks. */
  asks({ threadId: sessionID }: BoardTask): readonly Ask[] {
    if (sessionID === undefined) return []
    const { session } = this.#api.state
    return [
      ...session.permission(sessionID).map((asked) => permissionAsk({ ...asked, sessionID }, 0)),
      ...session.question(sessionID).map((asked) => questionAsk({ ...asked, sessionID }, 0)),
    ]
  }

  /** Reactive. */
  runOf(of: BoardTask) {
    this.#version[0]()
    const session = of.threadId === undefined ? undefined : this.#thread(of.threadId)
    const task = session && decodeRecord(session)?.task
    if (!task || !isActive(task)) return undefined
    const state = isQueued(task) ? ("queued" as const) : ("running" as const)
    const { createdAt } = task.run
    const stand = pauseOf(task.run)
    return {
      createdAt,
      state,
      elsewhere: false,
      asks: this.asks(of).map(({ what }) => what),
      ...(stand && { stand }),
    }
  }

  /** Whichever is newer: as an event told it, or as it was read. */
  #thread(id: string): Session | undefined {
    const [heard, read] = [this.#api.state.session.get(id), this.#threads.get(id)]
    return heard && read ? (read.time.updated > heard.time.updated ? read : heard) : (heard ?? read)
  }

  #touch(): void {
    this.#version[1]((count) => count + 1)
  }
}
