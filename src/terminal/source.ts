import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import { createSignal } from "solid-js"
import type { HostEvent } from "../core/ports.ts"
import { type Ask, isActive, type Task, type Usage } from "../core/task.ts"
import { toUsage } from "../host/opencode/convert.ts"
import { EventReader, type RawEvent } from "../host/opencode/events.ts"
import { decodeRecord } from "../host/record/codec.ts"
import { decodeSigns } from "../host/record/signs.ts"
import { catchUp, keyOf, type Listened, readSessions } from "./catch-up.ts"
import { ProgressTracker } from "./progress.ts"
import type { Seen } from "./view-model.ts"

/** Changes are told at most this often: a child that streams has hundreds of events a second. */
const TELL_EVERY_MS = 100

const RETRY_MS = 3000
/** How often is read again what runs and is not heard of, and how many of its messages: it was read whole before. */
const UNHEARD_MS = 15_000
const UNHEARD_MESSAGES = 20

/** What a session's record was, and what it has become. Told for every known task of the project. */
export type Change = { readonly seen: Seen; readonly before: Task | undefined }

export type Source = ReturnType<typeof createSource>

type Entry = Listened & { readonly usage: Usage }

const EVENTS = [
  "session.status",
  "message.part.updated",
  "permission.asked",
  "permission.replied",
  "question.asked",
  "question.replied",
  "question.rejected",
] as const

/**
 * What the companion knows of tasks: the records in the sessions' metadata, and the events of the sessions that run.
 * `onAsk` and `onChange` hear what happens from now on, once each; they must not throw. `deepest`: how deep tasks may
 * launch tasks of their own, 0 for any depth; what is deeper is not read.
 */
export function createSource(
  api: TuiPluginApi,
  listeners: { onChange?: (change: Change) => void; onAsk?: (ask: Ask, change: Change) => void } = {},
  deepest: () => number = () => 1,
) {
  const events = new EventReader()
  const entries = new Map<string, Entry>()
  /** Tasks that have left the list and are still to be paid for, by session. */
  const cleared = new Map<string, Seen>()
  const loading = new Map<string, Promise<void>>()
  const [version, setVersion] = createSignal(0)
  let telling: ReturnType<typeof setTimeout> | undefined
  /** What each read that is under way has to leave alone: what was heard since it began is newer. */
  const reads = new Set<Set<string>>()
  /** Sessions of which something was heard: those that this host runs. Another process's tell nothing here. */
  const audible = new Set<string>()
  let disposed = false

  const tell = () => {
    if (disposed) return
    telling ??= setTimeout(() => {
      telling = undefined
      setVersion((count) => count + 1)
    }, TELL_EVERY_MS)
    telling.unref?.()
  }

  /** The row's usage is the whole session's, what was before we listened included. */
  const seenOf = ({ task, tracker, usage }: Entry): Seen => ({
    task,
    progress: tracker && { ...tracker.snapshot(), usage },
  })

  /** Takes a session as the host tells it. The record decides; the rest of the row is usage. */
  const take = (session: Session, live: boolean) => {
    const record = decodeRecord(session)
    const known = entries.get(session.id)
    if (!record) return forget(session.id)
    const { task } = record
    if (task.forgotten) {
      entries.delete(session.id)
      cleared.set(session.id, { task })
      return tell()
    }
    const sameRun = known?.task.run.generation === task.run.generation
    const usage = toUsage(session.tokens, session.cost)
    const tracker = isActive(task) ? (sameRun && known?.tracker) || new ProgressTracker(Date.now()) : undefined
    const entry = { task, tracker, usage, row: session }
    entries.set(session.id, entry)
    const asked = tracker?.elsewhere(decodeSigns(session.metadata)) ?? []
    if (live) audible.add(session.id)
    if (live) listeners.onChange?.({ seen: seenOf(entry), before: known?.task })
    if (live) for (const ask of asked) listeners.onAsk?.(ask, { seen: seenOf(entry), before: known?.task })
    tell()
  }

  const forget = (sessionID: string) => {
    audible.delete(sessionID)
    const known = [entries.delete(sessionID), cleared.delete(sessionID)]
    if (known.includes(true)) tell()
  }

  const hear = (event: HostEvent) => {
    const sessionID = event.type === "asked" ? event.ask.sessionID : event.sessionID
    const entry = entries.get(sessionID)
    if (!entry?.tracker) return
    audible.add(sessionID)
    if (!apply(entry.task, entry.tracker, event)) return
    if (event.type === "asked") listeners.onAsk?.(event.ask, { seen: seenOf(entry), before: entry.task })
    tell()
  }

  const on = <Type extends Parameters<typeof api.event.on>[0]>(type: Type, handle: (event: RawEvent) => void) =>
    api.event.on(type, (event) => {
      try {
        for (const heard of reads) heard.add(keyOf(event as unknown as RawEvent))
        handle(event as unknown as RawEvent)
      } catch {
        // Of another shape than we know: no hint. A throw would end the terminal.
      }
    })
  const infoOf = (event: RawEvent) => (event.properties as { info: Session }).info
  const stops = [
    on("session.created", (event) => take(infoOf(event), true)),
    on("session.updated", (event) => take(infoOf(event), true)),
    on("session.deleted", (event) => forget(infoOf(event).id)),
    on("server.connected", () => {
      for (const sessionID of [...loading.keys()]) void load(sessionID, true)
    }),
    ...EVENTS.map((type) =>
      on(type, (event) => {
        const heard = events.read(event, Date.now())
        if (heard) return hear(heard)
        if (type === "session.status") calm(event)
      }),
    ),
  ]

  /** The converter knows no idle status: a retry is over with it. */
  const calm = (event: RawEvent) => {
    const { sessionID } = event.properties as { sessionID: string }
    entries.get(sessionID)?.tracker?.retrying(undefined)
  }

  /** Reads what was before we listened: once a session, and again after the connection was lost. */
  const load = (sessionID: string, again = false): Promise<void> => {
    const known = loading.get(sessionID)
    if (known && !again) return known
    const loaded = readAll(sessionID)
    loading.set(sessionID, loaded)
    return loaded
  }

  const readAll = (sessionID: string, messages?: number): Promise<void> => {
    const heard = new Set<string>()
    reads.add(heard)
    // What could not be read is not gone: what is known stays, and it is read again.
    return read(sessionID, heard, messages)
      .then(() => {
        if (tasksOf(sessionID).some(({ task }) => isActive(task) && !audible.has(task.sessionID)))
          later(sessionID, UNHEARD_MS, () => readAll(sessionID, UNHEARD_MESSAGES))
      })
      .catch(() => {
        loading.delete(sessionID)
        later(sessionID, RETRY_MS, () => load(sessionID, true))
      })
      .finally(() => void reads.delete(heard))
  }

  const tasksOf = (parentID: string) => [...entries.values()].filter(({ task }) => task.parentID === parentID)

  const launches = (session: Session): boolean => {
    const task = decodeRecord(session)?.task
    return task !== undefined && (deepest() === 0 || task.depth < deepest())
  }

  const read = async (sessionID: string, heard: ReadonlySet<string>, messages: number | undefined) => {
    const before = new Map(entries)
    const sessions = await readSessions(api, sessionID, launches)
    const there = new Set(sessions.map(({ id }) => id))
    const parents = new Set([sessionID, ...sessions.filter(launches).map(({ id }) => id)])
    for (const session of sessions) if (!heard.has(session.id)) take(session, false)
    for (const [id, { row }] of before)
      if (parents.has(row.parentID ?? "") && !there.has(id) && !heard.has(id)) forget(id)
    const found = [...entries.values()].filter(({ task }) => parents.has(task.parentID))
    await catchUp(api, found, heard, messages)
    tell()
  }

  /** One timer a session: what was to come before gives way. */
  const timers = new Map<string, ReturnType<typeof setTimeout>>()
  const later = (sessionID: string, ms: number, work: () => Promise<void>) => {
    clearTimeout(timers.get(sessionID))
    timers.delete(sessionID)
    if (disposed) return
    const timer = setTimeout(() => {
      timers.delete(sessionID)
      void work()
    }, ms)
    timer.unref?.()
    timers.set(sessionID, timer)
  }

  return {
    load,
    /** The tasks that a session launched. Reactive. */
    tasksOf: (sessionID: string): readonly Seen[] => {
      version()
      return tasksOf(sessionID).map(seenOf)
    },
    /** All known tasks. Reactive. */
    all: (): readonly Seen[] => {
      version()
      return [...entries.values()].map(seenOf)
    },
    /** What is left of tasks that were cleared while there was a budget: what they cost. Reactive. */
    cleared: (): readonly Seen[] => {
      version()
      return [...cleared.values()]
    },
    /** The task that a session is the child of. Reactive. */
    taskIn: (sessionID: string): Seen | undefined => {
      version()
      const entry = entries.get(sessionID)
      return entry && seenOf(entry)
    },
    dispose: () => {
      disposed = true
      for (const stop of stops) stop()
      for (const timer of [telling, ...timers.values()]) clearTimeout(timer)
    },
  }
}

/** True if the event says something new of the run. */
function apply(task: Task, tracker: ProgressTracker, event: HostEvent): boolean {
  switch (event.type) {
    case "tool":
      // Message ids ascend in time: what is older than the prompt belongs to an earlier run.
      if (event.messageID <= task.run.promptID) return false
      tracker.tool(event.callID, event.tool, event.ended, event.messageID)
      return true
    case "active":
      tracker.begun = true
      tracker.retrying(event.activity.type === "retry" ? event.activity : undefined)
      return true
    case "asked":
      tracker.asked(event.ask)
      return true
    case "replied":
      tracker.replied(event.askID)
      return true
    default:
      return false
  }
}
