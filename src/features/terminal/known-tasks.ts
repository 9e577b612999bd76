import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import { createSignal } from "solid-js"
import { type GroupKind, groupKindAmong } from "../../core/feature.ts"
import type { OpencodeEvent } from "../../core/ports.ts"
import { callState, NOTHING_OBSERVED, type Observed, withTool } from "../../core/run/progress.ts"
import {
  type Ask,
  addUsage,
  isActive,
  isMember,
  isUnattended,
  type Progress,
  type Task,
  type Usage,
} from "../../core/task.ts"
import { grouped, totalOver } from "../../lib/collections.ts"
import { oneLine } from "../../lib/text.ts"
import { toMessage, toUsage } from "../../opencode/convert.ts"
import { permissionAsk, questionAsk, type RawEvent } from "../../opencode/events.ts"
import { askToast, endToast } from "../../present/toasts.ts"
import { decodeUiMetadata, type RecordDecoder, recordDecoder, type UiMetadata } from "../../runtime/record/codec.ts"
import type { ObservedTask } from "./view-model.ts"

/** Live state of a run, for display. */
type Live = {
  readonly asks: Map<string, Ask>
  retry?: Progress["retry"]
  observed: Observed
}

/** A task and its session. `live`: only while the task is at work. */
type TrackedTask = Pick<ObservedTask, "task" | "groupKind"> & {
  readonly session: Session
  readonly uiMetadata: UiMetadata
  readonly live: Live | undefined
}

/** Id of the object that an event is about: a session, a session's status, or a question. */
export function keyOf({ type, properties }: RawEvent): string {
  const { info, sessionID, requestID, id } = (properties ?? {}) as Readonly<Record<string, unknown>>
  if (type === "session.status") return statusOf(String(sessionID))
  return String((info as { id?: unknown } | undefined)?.id ?? requestID ?? id)
}

const statusOf = (sessionID: string): string => `status of ${sessionID}`

/** Also the children of a child for which `launches` is true. Empty where the session is gone; may reject. */
export async function readSessions(
  api: TuiPluginApi,
  sessionID: string,
  launches: (session: Session) => boolean,
): Promise<readonly Session[]> {
  const own = read(api.client.session.get({ sessionID }), undefined)
  const [session, below] = await Promise.all([own, readBelow(api, sessionID, launches)])
  return session ? [session, ...below] : []
}

async function readBelow(
  api: TuiPluginApi,
  sessionID: string,
  launches: (session: Session) => boolean,
): Promise<readonly Session[]> {
  const children = await read(api.client.session.children({ sessionID }), [])
  const below = await Promise.all(children.filter(launches).map(({ id }) => readBelow(api, id, launches)))
  return [...children, ...below.flat()]
}

/** Data of a call about a session; `gone` where the session is gone. Rejects where the call fails. */
async function read<Data, Gone>(call: Promise<{ data?: Data; error?: unknown }>, gone: Gone): Promise<Data | Gone> {
  const { data, error } = await call
  if (isGone(error)) return gone
  if (!data) throw new Error("OpenCode did not answer")
  return data
}

const isGone = (error: unknown): boolean => (error as { name?: unknown } | undefined)?.name === "NotFoundError"

/**
 * Reads tool calls, retries and questions of runs that began before events arrived, except those in `heard`, which
 * newer events have reported. `messages`: number of last messages that are read of each run.
 */
export async function catchUp(
  api: TuiPluginApi,
  entries: readonly TrackedTask[],
  heard: ReadonlySet<string>,
  messages?: number,
): Promise<void> {
  const running = entries.filter(({ task }) => isActive(task))
  const folders = [...grouped(running, ({ session }) => session.directory)]
  await Promise.all([
    ...folders.map(([directory, inFolder]) => catchUpIn(api, directory, inFolder, heard)),
    ...running.map((entry) => readCalls(api, entry, messages)),
  ])
}

/** A question of the folder that OpenCode does not report any more is over, and so is a retry. */
async function catchUpIn(
  api: TuiPluginApi,
  directory: string,
  entries: readonly TrackedTask[],
  heard: ReadonlySet<string>,
): Promise<void> {
  const [statuses, permissions, questions] = await Promise.all([
    api.client.session.status({ directory }),
    api.client.permission.list({ directory }),
    api.client.question.list({ directory }),
  ])
  if (!statuses.data || !permissions.data || !questions.data) return
  const askedAt = Date.now()
  const open: readonly Ask[] = [
    ...permissions.data.map((asked) => permissionAsk(asked, askedAt)),
    ...questions.data.map((asked) => questionAsk(asked, askedAt)),
  ]
  for (const { task, live } of entries) {
    const { sessionID } = task
    const status = statuses.data[sessionID]
    if (!live) continue
    if (!heard.has(statusOf(sessionID))) live.retry = status?.type === "retry" ? status : undefined
    const asks = open.filter((ask) => ask.sessionID === sessionID && !heard.has(ask.id))
    for (const id of live.asks.keys()) if (!heard.has(id) && !asks.some((ask) => ask.id === id)) live.asks.delete(id)
    for (const ask of asks) live.asks.set(ask.id, ask)
  }
}

async function readCalls(api: TuiPluginApi, { task, live }: TrackedTask, limit?: number): Promise<void> {
  const { data: messages } = await api.client.session.messages({ sessionID: task.sessionID, limit })
  for (const message of (messages ?? []).map(toMessage)) {
    if (message.id <= task.run.promptID) continue
    for (const part of message.parts) {
      if (part.type !== "tool" || !live) continue
      const call = { id: part.callID, tool: part.tool, state: callState(part), messageID: message.id }
      live.observed = withTool(live.observed, call)
    }
  }
}

/** Shortest interval between updates, in ms: a child that streams text has hundreds of events a second. */
const TELL_EVERY_MS = 100

/** A task's record before and after a change. */
export type TaskChange = { readonly seen: ObservedTask; readonly before: Task | undefined }

/** Callbacks for changes after the first read. They must not throw. */
export type Listeners = {
  readonly onChange?: (change: TaskChange) => void
  readonly onAsk?: (ask: Ask, change: TaskChange) => void
}

/** Tasks that the terminal knows. Tasks at work have live state. */
export class KnownTasks {
  readonly #listeners: Listeners
  readonly decode: RecordDecoder
  readonly #kinds: readonly GroupKind[]
  readonly #entries = new Map<string, TrackedTask>()
  /** Cleared tasks by session. They are kept because their cost still counts. */
  readonly #cleared = new Map<string, ObservedTask>()
  /** Sessions below a task's that have no record: OpenCode's own `task` tool made them. They count for the task. */
  readonly #native = new Map<string, Session>()
  /** Sessions whose events arrive here: those of this OpenCode process. */
  readonly #audible = new Set<string>()
  readonly #version = createSignal(0)
  #telling: ReturnType<typeof setTimeout> | undefined
  #isDisposed = false

  constructor(listeners: Listeners, kinds: readonly GroupKind[]) {
    this.#listeners = listeners
    this.#kinds = kinds
    this.decode = recordDecoder(kinds)
  }

  /** All tasks. A component that calls a reading method of this class is updated when the tasks change. */
  all(): readonly ObservedTask[] {
    this.#read()
    return this.entries().map(this.#toDisplay())
  }

  tasksOf(parentID: string): readonly ObservedTask[] {
    this.#read()
    return this.#of(parentID).map(this.#toDisplay())
  }

  taskIn(sessionID: string): ObservedTask | undefined {
    this.#read()
    const found = this.#entries.get(sessionID)
    return found && this.#toDisplay()(found)
  }

  /** Cleared tasks, for their cost. */
  cleared(): readonly ObservedTask[] {
    this.#read()
    return [...this.#cleared.values()]
  }

  entries(): readonly TrackedTask[] {
    return [...this.#entries.values()]
  }

  /** Whether a task of this session is active in another process, whose events do not arrive here. */
  runsUnheard(parentID: string): boolean {
    return this.#of(parentID).some(({ task }) => isActive(task) && !this.#audible.has(task.sessionID))
  }

  /** Takes over a session as it was read, or as an event reports it. */
  take(session: Session, isEvent: boolean): void {
    const record = this.decode(session)
    const known = this.#entries.get(session.id)
    if (!record) return this.#takeNative(session)
    this.#native.delete(session.id)
    const { task } = record
    if (task.forgotten) {
      this.#entries.delete(session.id)
      this.#cleared.set(session.id, { task })
      return this.tell()
    }
    const sameRun = known?.task.run.generation === task.run.generation
    const earlier = sameRun ? known?.live : undefined
    const live = isActive(task) ? (earlier ?? { asks: new Map(), observed: NOTHING_OBSERVED }) : undefined
    const uiMetadata = decodeUiMetadata(session.metadata) ?? { asks: [] }
    const entry = { task, live, session, uiMetadata, groupKind: groupKindAmong(this.#kinds, task) }
    this.#entries.set(session.id, entry)
    if (isEvent) {
      const change = { seen: this.#toDisplay()(entry), before: known?.task }
      this.#audible.add(session.id)
      this.#listeners.onChange?.(change)
      const asked = earlier ? known?.uiMetadata.asks : []
      for (const ask of live ? uiMetadata.asks : [])
        if (!asked?.some(({ id }) => id === ask.id)) this.#listeners.onAsk?.(ask, change)
    }
    this.tell()
  }

  forget(sessionID: string): void {
    this.#audible.delete(sessionID)
    const known = [this.#entries, this.#cleared, this.#native].map((sessions) => sessions.delete(sessionID))
    if (known.includes(true)) this.tell()
  }

  #takeNative(session: Session): void {
    const { id, parentID = "" } = session
    this.forget(id)
    if (!this.#entries.has(parentID) && !this.#native.has(parentID)) return
    this.#native.set(id, session)
    this.tell()
  }

  handleEvent(event: OpencodeEvent): void {
    const sessionID = event.type === "asked" ? event.ask.sessionID : event.sessionID
    const known = this.#entries.get(sessionID)
    if (!known?.live) return
    this.#audible.add(sessionID)
    if (!apply(known.task, known.live, event)) return
    if (event.type === "asked")
      this.#listeners.onAsk?.(event.ask, { seen: this.#toDisplay()(known), before: known.task })
    this.tell()
  }

  /** Called when the session's retry is over. */
  calm(sessionID: string): void {
    const live = this.#entries.get(sessionID)?.live
    if (live) live.retry = undefined
  }

  /** Updates the display after a short delay. */
  tell(): void {
    if (this.#isDisposed) return
    this.#telling ??= setTimeout(() => {
      this.#telling = undefined
      this.#version[1]((count) => count + 1)
    }, TELL_EVERY_MS)
    this.#telling.unref?.()
  }

  dispose(): void {
    this.#isDisposed = true
    clearTimeout(this.#telling)
  }

  #of(parentID: string): readonly TrackedTask[] {
    return this.entries().filter(({ task }) => task.parentID === parentID)
  }

  #read(): void {
    this.#version[0]()
  }

  /** Returns a function for many entries, since the sessions below them are grouped once. */
  #toDisplay(): (entry: TrackedTask) => ObservedTask {
    const usageOf = totalOver<Session, Usage>([...this.#native.values()], usageIn, addUsage)
    const members = grouped(
      this.entries().filter(({ task }) => task.member),
      ({ task }) => task.parentID,
    )
    return (entry) => {
      const { task } = entry
      // A group's own session is never prompted: its members ask.
      const asking = task.group ? (members.get(task.sessionID) ?? []) : [entry]
      return seenOf(entry, usageOf, asking.flatMap(asksIn))
    }
  }
}

const usageIn = ({ tokens, cost }: Session): Usage => toUsage(tokens, cost)

const asksIn = ({ live, uiMetadata }: TrackedTask): readonly Ask[] =>
  live ? [...live.asks.values(), ...uiMetadata.asks] : []

/**
 * A task as the display shows it. `usageOf`: usage of a whole session, even from before the first event, and of those
 * below it that are no tasks.
 */
function seenOf(
  { task, live, session, uiMetadata, groupKind }: TrackedTask,
  usageOf: (session: Session) => Usage,
  asks: readonly Ask[],
): ObservedTask {
  const { away, preparing, fetches } = uiMetadata
  return {
    task,
    groupKind,
    progress: live && {
      toolCalls: live.observed.calls.size,
      recentTools: live.observed.recentTools,
      usage: usageOf(session),
      retry: live.retry,
      asks,
      ...(away !== undefined && { away: { host: away, since: 0, most: 0 } }),
      ...(preparing !== undefined && { preparing }),
    },
    ...(fetches && { fetches }),
  }
}

/** Applies an event to a run's state. True if the state has changed. */
function apply(task: Task, live: Live, event: OpencodeEvent): boolean {
  switch (event.type) {
    case "tool": {
      // Message ids ascend in time, so a message before the prompt belongs to an earlier run.
      if (event.messageID <= task.run.promptID) return false
      const { callID: id, tool, state, messageID } = event
      live.observed = withTool(live.observed, { id, tool, state, messageID })
      return true
    }
    case "active":
      live.retry = event.activity.type === "retry" ? event.activity : undefined
      return true
    case "asked":
      live.asks.set(event.ask.id, event.ask)
      return true
    case "replied":
      live.asks.delete(event.askID)
      return true
    default:
      return false
  }
}

/** OpenCode itself plays sounds and notifies about root sessions, threads included, so only children are added. */
export function createAttention(api: TuiPluginApi, enabled: () => boolean) {
  const notify = ({ title, message }: { title: string; message: string }) => {
    if (!enabled()) return
    api.attention.notify({ title, message, notification: { when: "blurred" }, sound: false }).catch(() => {})
  }
  return {
    onChange: ({ seen: { task }, before }: TaskChange) => {
      if (!isUnattended(task) && !isMember(task) && before && isActive(before) && !isActive(task))
        notify(endToast(task))
    },
    onNeed: (title: string, what: string) => notify({ title: oneLine(title), message: oneLine(what) }),
    onAsk: (ask: Ask, { seen: { task } }: TaskChange) => {
      if (!isUnattended(task)) notify(askToast(task, ask))
    },
  }
}
