import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import { createSignal } from "solid-js"
import type { HostEvent } from "../core/ports.ts"
import { type Ask, isActive, type Task, type Usage } from "../core/task.ts"
import { describePermission, describeQuestion } from "../host/asks.ts"
import { toMessage, toUsage } from "../host/convert.ts"
import { EventReader, type RawEvent } from "../host/events.ts"
import { decodeRecord } from "../host/record.ts"
import { ProgressTracker } from "../manager/progress.ts"
import type { Seen } from "./view-model.ts"

/** Changes are told at most this often: a child that streams has hundreds of events a second. */
const TELL_EVERY_MS = 100

const RETRY_MS = 3000

/** What a session's record was, and what it has become. Told for every known task of the project. */
export type Change = { readonly seen: Seen; readonly before: Task | undefined }

export type Source = ReturnType<typeof createSource>

type Entry = { task: Task; tracker: ProgressTracker | undefined; usage: Usage }

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
 * `onAsk` and `onChange` hear what happens from now on, once each; they must not throw.
 */
export function createSource(
  api: TuiPluginApi,
  listeners: { onChange?: (change: Change) => void; onAsk?: (ask: Ask, change: Change) => void } = {},
) {
  const events = new EventReader()
  const entries = new Map<string, Entry>()
  /** Tasks that have left the list and are still to be paid for, by session. */
  const cleared = new Map<string, Seen>()
  const loading = new Map<string, Promise<void>>()
  const [version, setVersion] = createSignal(0)
  let telling: ReturnType<typeof setTimeout> | undefined

  const tell = () => {
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
    const entry = { task, tracker, usage }
    entries.set(session.id, entry)
    if (live) listeners.onChange?.({ seen: seenOf(entry), before: known?.task })
    tell()
  }

  const forget = (sessionID: string) => {
    const known = [entries.delete(sessionID), cleared.delete(sessionID)]
    if (known.includes(true)) tell()
  }

  const hear = (event: HostEvent) => {
    const sessionID = event.type === "asked" ? event.ask.sessionID : event.sessionID
    const entry = entries.get(sessionID)
    if (!entry?.tracker) return
    if (!apply(entry.task, entry.tracker, event)) return
    if (event.type === "asked") listeners.onAsk?.(event.ask, { seen: seenOf(entry), before: entry.task })
    tell()
  }

  const on = <Type extends Parameters<typeof api.event.on>[0]>(type: Type, handle: (event: RawEvent) => void) =>
    api.event.on(type, (event) => handle(event as unknown as RawEvent))
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
    const loaded = readSessions(api, sessionID).then(async (sessions) => {
      for (const session of sessions) if (!entries.has(session.id) || again) take(session, false)
      await catchUp(
        api,
        [...entries.values()].filter(({ task }) => task.parentID === sessionID),
      )
      tell()
    })
    // What could not be read is not gone: what is known stays, and it is read again.
    const settled = loaded.catch(() => {
      loading.delete(sessionID)
      retryLater(sessionID)
    })
    loading.set(sessionID, settled)
    return settled
  }

  const retries = new Set<ReturnType<typeof setTimeout>>()
  const retryLater = (sessionID: string) => {
    const timer = setTimeout(() => {
      retries.delete(timer)
      void load(sessionID, true)
    }, RETRY_MS)
    timer.unref?.()
    retries.add(timer)
  }

  return {
    load,
    /** The tasks that a session launched. Reactive. */
    tasksOf: (sessionID: string): readonly Seen[] => {
      version()
      return [...entries.values()].filter(({ task }) => task.parentID === sessionID).map(seenOf)
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
      for (const stop of stops) stop()
      for (const timer of [telling, ...retries]) clearTimeout(timer)
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

/** The session itself, which may be a task's, and its children: none where it is gone. Rejects what cannot be read. */
async function readSessions(api: TuiPluginApi, sessionID: string): Promise<readonly Session[]> {
  const [session, children] = await Promise.all([
    api.client.session.get({ sessionID }),
    api.client.session.children({ sessionID }),
  ])
  if (isGone(session.error)) return []
  if (!session.data || !children.data) throw new Error(`session ${sessionID} could not be read`)
  return [session.data, ...children.data]
}

const isGone = (error: unknown): boolean => (error as { name?: unknown } | undefined)?.name === "NotFoundError"

/** Tool calls, retries and questions of runs that began before we listened. */
async function catchUp(api: TuiPluginApi, entries: readonly Entry[]): Promise<void> {
  const running = entries.filter(({ task }) => isActive(task))
  if (running.length === 0) return
  const [statuses, permissions, questions] = await Promise.all([
    api.client.session.status(),
    api.client.permission.list(),
    api.client.question.list(),
  ])
  const now = Date.now()
  await Promise.all(
    running.map(async ({ task, tracker }) => {
      if (!tracker) return
      const { sessionID } = task
      const status = statuses.data?.[sessionID]
      if (status?.type === "retry") tracker.retrying(status)
      for (const { id, permission, patterns, ...rest } of permissions.data ?? []) {
        if (rest.sessionID !== sessionID) continue
        tracker.asked({
          id,
          sessionID,
          kind: "permission",
          what: describePermission(permission, patterns),
          askedAt: now,
        })
      }
      for (const { id, questions: asked, ...rest } of questions.data ?? []) {
        if (rest.sessionID === sessionID) {
          tracker.asked({ id, sessionID, kind: "question", what: describeQuestion(asked), askedAt: now })
        }
      }
      const { data: messages } = await api.client.session.messages({ sessionID })
      for (const message of (messages ?? []).map(toMessage)) {
        if (message.id <= task.run.promptID) continue
        for (const part of message.parts) {
          if (part.type !== "tool") continue
          tracker.tool(part.callID, part.tool, part.state === "completed" || part.state === "error", message.id)
        }
      }
    }),
  )
}
