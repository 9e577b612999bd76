import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import { type Accessor, createEffect, createMemo, untrack } from "solid-js"
import type { GroupKind } from "../../core/feature.ts"
import { EventReader, type RawEvent } from "../../opencode/events.ts"
import { catchUp, KnownTasks, keyOf, type Listeners, readSessions } from "./known-tasks.ts"

export type TaskSource = ReturnType<typeof createSource>

const EVENTS = [
  "session.status",
  "message.part.updated",
  "permission.asked",
  "permission.replied",
  "question.asked",
  "question.replied",
  "question.rejected",
] as const

/** Task data from session metadata and events. `deepest`: depth to which tasks are read, 0 for any. */
export function createSource(
  api: TuiPluginApi,
  listeners: Listeners = {},
  deepest: () => number = () => 1,
  kinds: readonly GroupKind[] = [],
) {
  const events = new EventReader()
  const known = new KnownTasks(listeners, kinds)
  const reading = new Reading(api, known, deepest)
  const on = <Type extends Parameters<typeof api.event.on>[0]>(type: Type, handle: (event: RawEvent) => void) =>
    api.event.on(type, (event) => {
      try {
        reading.heard(event as unknown as RawEvent)
        handle(event as unknown as RawEvent)
      } catch {
        // An unknown event is ignored: an error thrown here would end the terminal.
      }
    })
  const infoOf = (event: RawEvent) => (event.properties as { info: Session }).info
  const stops = [
    on("session.created", (event) => known.take(infoOf(event), true)),
    on("session.updated", (event) => known.take(infoOf(event), true)),
    on("session.deleted", (event) => known.forget(infoOf(event).id)),
    on("server.connected", () => reading.reload()),
    ...EVENTS.map((type) =>
      on(type, (event) => {
        const heard = events.read(event, Date.now())
        if (heard) return known.handleEvent(heard)
        // The event reader reports no status `idle`, but this status ends a retry, too.
        if (type === "session.status") known.calm((event.properties as { sessionID: string }).sessionID)
      }),
    ),
  ]
  return {
    load: (sessionID: string) => reading.load(sessionID),
    tasksOf: (sessionID: string) => known.tasksOf(sessionID),
    all: () => known.all(),
    cleared: () => known.cleared(),
    taskIn: (sessionID: string) => known.taskIn(sessionID),
    dispose: () => {
      for (const stop of stops) stop()
      reading.dispose()
      known.dispose()
    },
  }
}

const RETRY_MS = 3000
/** Runs without events here are read at this interval, in ms, and of each run this number of messages. */
const UNHEARD_MS = 15_000
const UNHEARD_MESSAGES = 20

/** Reads state that no event reports: from before the start, and of other processes. */
class Reading {
  readonly #api: TuiPluginApi
  readonly #known: KnownTasks
  readonly #deepest: () => number
  readonly #loading = new Map<string, Promise<void>>()
  /** For each read in progress, the ids of objects with newer events. The read must not overwrite their state. */
  readonly #reads = new Set<Set<string>>()
  /** The pending timer of each session. A new timer replaces it. */
  readonly #timers = new Map<string, ReturnType<typeof setTimeout>>()
  #isDisposed = false

  /** `deepest`: depth to which tasks are read, 0 for any. */
  constructor(api: TuiPluginApi, known: KnownTasks, deepest: () => number) {
    this.#api = api
    this.#known = known
    this.#deepest = deepest
  }

  heard(event: RawEvent): void {
    for (const heard of this.#reads) heard.add(keyOf(event))
  }

  /** Reads the earlier state of a session, only once for each session. */
  load(sessionID: string): Promise<void> {
    return this.#loading.get(sessionID) ?? this.#load(sessionID)
  }

  /** Reads all sessions again, because events were missed while the connection was lost. */
  reload(): void {
    for (const sessionID of [...this.#loading.keys()]) void this.#load(sessionID)
  }

  dispose(): void {
    this.#isDisposed = true
    for (const timer of this.#timers.values()) clearTimeout(timer)
  }

  #load(sessionID: string): Promise<void> {
    const loaded = this.#readAll(sessionID)
    this.#loading.set(sessionID, loaded)
    return loaded
  }

  /** Never rejects. After a failed read the known state stays, and the read is repeated later. */
  async #readAll(sessionID: string, messages?: number): Promise<void> {
    const heard = new Set<string>()
    this.#reads.add(heard)
    try {
      await this.#read(sessionID, heard, messages)
      if (this.#known.runsUnheard(sessionID))
        this.#later(sessionID, UNHEARD_MS, () => this.#readAll(sessionID, UNHEARD_MESSAGES))
    } catch {
      this.#loading.delete(sessionID)
      this.#later(sessionID, RETRY_MS, () => this.#load(sessionID))
    } finally {
      this.#reads.delete(heard)
    }
  }

  async #read(sessionID: string, heard: ReadonlySet<string>, messages: number | undefined): Promise<void> {
    const known = this.#known
    const before = known.entries()
    const launches = (session: Session) => this.#launches(session)
    const sessions = await readSessions(this.#api, sessionID, launches)
    const present = new Set(sessions.map(({ id }) => id))
    const parents = new Set([sessionID, ...sessions.filter(launches).map(({ id }) => id)])
    for (const session of sessions) if (!heard.has(session.id)) known.take(session, false)
    for (const { session, task } of before)
      if (parents.has(session.parentID ?? "") && !present.has(task.sessionID) && !heard.has(task.sessionID))
        known.forget(task.sessionID)
    const found = known.entries().filter(({ task }) => parents.has(task.parentID))
    await catchUp(this.#api, found, heard, messages)
    known.tell()
  }

  #launches(session: Session): boolean {
    const task = this.#known.decode(session)?.task
    const deepest = this.#deepest()
    return task !== undefined && (deepest === 0 || task.depth < deepest)
  }

  #later(sessionID: string, ms: number, work: () => Promise<void>): void {
    clearTimeout(this.#timers.get(sessionID))
    this.#timers.delete(sessionID)
    if (this.#isDisposed) return
    const timer = setTimeout(() => {
      this.#timers.delete(sessionID)
      void work()
    }, ms)
    timer.unref?.()
    this.#timers.set(sessionID, timer)
  }
}

/** Key in OpenCode's store, which all projects share. */
export const USED_KEY = "superagents.used"

/** Whether an agent was ever launched. Stored only once, because each write makes OpenCode write its whole file. */
export function createUsed({ kv }: Pick<TuiPluginApi, "kv">, tasks: Accessor<readonly unknown[]>): Accessor<boolean> {
  const launched = createMemo(() => tasks().length > 0)
  const isWritten = () => kv.get(USED_KEY, false)
  createEffect(() => {
    if (launched() && !untrack(isWritten)) kv.set(USED_KEY, true)
  })
  return () => launched() || isWritten()
}
