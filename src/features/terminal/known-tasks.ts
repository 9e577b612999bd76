import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import { createSignal } from "solid-js"
import { type GroupKind, groupKindAmong } from "../../core/feature.ts"
import type { CallState, OpencodeEvent } from "../../core/ports.ts"
import { callState, NOTHING_OBSERVED, withTool } from "../../core/run/progress.ts"
import { type Ask, isActive, type Progress, type Task, type Usage } from "../../core/task.ts"
import { toMessage, toUsage } from "../../opencode/convert.ts"
import { permissionAsk, questionAsk, type RawEvent } from "../../opencode/events.ts"
import { decodeUiMetadata, type RecordDecoder, type UiMetadata } from "../../runtime/record/codec.ts"
import type { ObservedProgress, ObservedTask } from "./view-model.ts"

/** A task, its live state, and its session's parent and folder. */
export type TrackedTask = {
  readonly task: Task
  readonly tracker: ProgressTracker | undefined
  readonly row: Pick<Session, "parentID" | "directory">
}

/** Id of the object that an event is about: a session, a session's status, or a question. */
export function keyOf({ type, properties }: RawEvent): string {
  const { info, sessionID, requestID, id } = (properties ?? {}) as Readonly<Record<string, unknown>>
  if (type === "session.status") return statusOf(String(sessionID))
  return String((info as { id?: unknown } | undefined)?.id ?? requestID ?? id)
}

const statusOf = (sessionID: string): string => `status of ${sessionID}`

/**
 * Reads a session and its children, and also the children of a child for which `launches` is true. Empty where the
 * session is gone; rejects where a read fails.
 */
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
  const folders = new Set(running.map(({ row }) => row.directory))
  await Promise.all([
    ...[...folders].map((directory) =>
      catchUpIn(
        api,
        directory,
        running.filter(({ row }) => row.directory === directory),
        heard,
      ),
    ),
    ...running.map((entry) => readCalls(api, entry, messages)),
  ])
}

/**
 * Reads statuses and questions of a folder. A question that OpenCode does not report any more is over, and so is a
 * retry.
 */
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
  for (const { task, tracker } of entries) {
    const { sessionID } = task
    const status = statuses.data[sessionID]
    if (!tracker) continue
    if (!heard.has(statusOf(sessionID))) tracker.retry = status?.type === "retry" ? status : undefined
    const asks = open.filter((ask) => ask.sessionID === sessionID && !heard.has(ask.id))
    for (const id of tracker.asks.keys())
      if (!heard.has(id) && !asks.some((ask) => ask.id === id)) tracker.asks.delete(id)
    for (const ask of asks) tracker.asks.set(ask.id, ask)
  }
}

async function readCalls(api: TuiPluginApi, { task, tracker }: TrackedTask, limit?: number): Promise<void> {
  const { data: messages } = await api.client.session.messages({ sessionID: task.sessionID, limit })
  for (const message of (messages ?? []).map(toMessage)) {
    if (message.id <= task.run.promptID) continue
    for (const part of message.parts) {
      if (part.type !== "tool") continue
      tracker?.tool(part.callID, part.tool, callState(part), message.id)
    }
  }
}

const NO_UI_METADATA: UiMetadata = { asks: [] }

/** Collects the live state of a run, for display. */
class ProgressTracker {
  readonly asks = new Map<string, Ask>()
  retry: Progress["retry"]
  #observed = NOTHING_OBSERVED
  #uiMetadata: UiMetadata = NO_UI_METADATA
  /** Set once the session was seen at work. */
  begun = false

  tool(id: string, tool: string, state: CallState, messageID: string): void {
    this.#observed = withTool(this.#observed, { id, tool, state, messageID })
  }

  /** Applies the UI metadata of a remote task. Returns the questions that are new. */
  remoteAsks(uiMetadata: UiMetadata = NO_UI_METADATA): readonly Ask[] {
    const before = this.#uiMetadata.asks
    this.#uiMetadata = uiMetadata
    return uiMetadata.asks.filter(({ id }) => !before.some((ask) => ask.id === id))
  }

  snapshot(): Omit<ObservedProgress, "usage"> {
    const { away, preparing, asks } = this.#uiMetadata
    const { calls, recentTools } = this.#observed
    return {
      toolCalls: calls.size,
      recentTools,
      retry: this.retry,
      asks: [...this.asks.values(), ...asks],
      ...(away !== undefined && { away: { host: away, since: 0, most: 0 } }),
      ...(preparing !== undefined && { preparing }),
      ...(this.begun && { begun: true }),
    }
  }
}

/**
 * Shortest interval between updates of the display, in ms: a child that streams text has hundreds of events a second.
 */
const TELL_EVERY_MS = 100

/** A task's record before and after a change. */
export type TaskChange = { readonly seen: ObservedTask; readonly before: Task | undefined }

/** Callbacks for changes after the first read. They must not throw. */
export type Listeners = {
  readonly onChange?: (change: TaskChange) => void
  readonly onAsk?: (ask: Ask, change: TaskChange) => void
}

type TaskHandle = TrackedTask & Pick<ObservedTask, "groupKind" | "fetches"> & { readonly usage: Usage }

/** Tasks that the terminal knows. Tasks at work have live state. */
export class KnownTasks {
  readonly #listeners: Listeners
  readonly decode: RecordDecoder
  readonly #kinds: readonly GroupKind[]
  readonly #entries = new Map<string, TaskHandle>()
  /** Cleared tasks by session. They are kept because their cost still counts. */
  readonly #cleared = new Map<string, ObservedTask>()
  /** Sessions whose events arrive here: those of this OpenCode process. */
  readonly #audible = new Set<string>()
  readonly #version = createSignal(0)
  #telling: ReturnType<typeof setTimeout> | undefined
  #isDisposed = false

  constructor(listeners: Listeners, decode: RecordDecoder, kinds: readonly GroupKind[]) {
    this.#listeners = listeners
    this.decode = decode
    this.#kinds = kinds
  }

  /** All tasks. A component that calls a reading method of this class is updated when the tasks change. */
  all(): readonly ObservedTask[] {
    this.#read()
    return this.entries().map(seenOf)
  }

  /** Tasks launched by a session. */
  tasksOf(parentID: string): readonly ObservedTask[] {
    this.#read()
    return this.#of(parentID).map(seenOf)
  }

  /** Task whose own session this is. */
  taskIn(sessionID: string): ObservedTask | undefined {
    this.#read()
    const handle = this.#entries.get(sessionID)
    return handle && seenOf(handle)
  }

  /** Cleared tasks, for their cost. */
  cleared(): readonly ObservedTask[] {
    this.#read()
    return [...this.#cleared.values()]
  }

  entries(): readonly TaskHandle[] {
    return [...this.#entries.values()]
  }

  /** Whether a task of this session is active in another process, whose events do not arrive here. */
  runsUnheard(parentID: string): boolean {
    return this.#of(parentID).some(({ task }) => isActive(task) && !this.#audible.has(task.sessionID))
  }

  /**
   * Takes over a session's record and usage, and nothing else of the session. `live`: the session comes from an event.
   */
  take(session: Session, live: boolean): void {
    const record = this.decode(session)
    const known = this.#entries.get(session.id)
    if (!record) return this.forget(session.id)
    const { task } = record
    if (task.forgotten) {
      this.#entries.delete(session.id)
      this.#cleared.set(session.id, { task })
      return this.tell()
    }
    const sameRun = known?.task.run.generation === task.run.generation
    const usage = toUsage(session.tokens, session.cost)
    const tracker = isActive(task) ? (sameRun && known?.tracker) || new ProgressTracker() : undefined
    const uiMetadata = decodeUiMetadata(session.metadata)
    const groupKind = groupKindAmong(this.#kinds, task)
    const fetches = uiMetadata?.fetches && { fetches: uiMetadata.fetches }
    const entry = { task, tracker, usage, row: session, groupKind, ...fetches }
    this.#entries.set(session.id, entry)
    const asked = tracker?.remoteAsks(uiMetadata) ?? []
    if (live) {
      const change = { seen: seenOf(entry), before: known?.task }
      this.#audible.add(session.id)
      this.#listeners.onChange?.(change)
      for (const ask of asked) this.#listeners.onAsk?.(ask, change)
    }
    this.tell()
  }

  forget(sessionID: string): void {
    this.#audible.delete(sessionID)
    const known = [this.#entries.delete(sessionID), this.#cleared.delete(sessionID)]
    if (known.includes(true)) this.tell()
  }

  handleEvent(event: OpencodeEvent): void {
    const sessionID = event.type === "asked" ? event.ask.sessionID : event.sessionID
    const handle = this.#entries.get(sessionID)
    if (!handle?.tracker) return
    this.#audible.add(sessionID)
    if (!apply(handle.task, handle.tracker, event)) return
    if (event.type === "asked") this.#listeners.onAsk?.(event.ask, { seen: seenOf(handle), before: handle.task })
    this.tell()
  }

  /** Called when the session's retry is over. */
  calm(sessionID: string): void {
    const tracker = this.#entries.get(sessionID)?.tracker
    if (tracker) tracker.retry = undefined
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

  #of(parentID: string): readonly TaskHandle[] {
    return this.entries().filter(({ task }) => task.parentID === parentID)
  }

  #read(): void {
    this.#version[0]()
  }
}

/** A task as the display shows it. The usage is the whole session's, even from before the first event. */
const seenOf = ({ task, tracker, usage, groupKind, fetches }: TaskHandle): ObservedTask => ({
  task,
  groupKind,
  progress: tracker && { ...tracker.snapshot(), usage },
  ...(fetches && { fetches }),
})

/** Applies an event to a run's state. True if the state has changed. */
function apply(task: Task, tracker: ProgressTracker, event: OpencodeEvent): boolean {
  switch (event.type) {
    case "tool":
      // Message ids ascend in time, so a message before the prompt belongs to an earlier run.
      if (event.messageID <= task.run.promptID) return false
      tracker.tool(event.callID, event.tool, event.state, event.messageID)
      return true
    case "active":
      tracker.begun = true
      tracker.retry = event.activity.type === "retry" ? event.activity : undefined
      return true
    case "asked":
      tracker.asks.set(event.ask.id, event.ask)
      return true
    case "replied":
      tracker.asks.delete(event.askID)
      return true
    default:
      return false
  }
}
