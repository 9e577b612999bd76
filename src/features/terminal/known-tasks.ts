import type { Session } from "@opencode-ai/sdk/v2"
import { createSignal } from "solid-js"
import type { OpencodeEvent } from "../../core/ports.ts"
import { type Ask, isActive, type Task, type Usage } from "../../core/task.ts"
import { toUsage } from "../../opencode/convert.ts"
import { decodeRecord } from "../../runtime/record/codec.ts"
import { decodeUiMetadata } from "../../runtime/record/ui-metadata.ts"
import { ProgressTracker, type TrackedTask } from "./catch-up.ts"
import type { ObservedTask } from "./view-model.ts"

/** Shortest interval of updates: a streaming child has hundreds of events a second. */
const TELL_EVERY_MS = 100

/** A task's record before and after a change. */
export type TaskChange = { readonly seen: ObservedTask; readonly before: Task | undefined }

/** Called for each later change; must not throw. */
export type Listeners = {
  readonly onChange?: (change: TaskChange) => void
  readonly onAsk?: (ask: Ask, change: TaskChange) => void
}

type TaskHandle = TrackedTask & { readonly usage: Usage; readonly fetches?: true }

/** Tasks known to the terminal, with live state of running ones. */
export class KnownTasks {
  readonly #listeners: Listeners
  readonly #entries = new Map<string, TaskHandle>()
  /** Cleared tasks whose cost still counts, by session. */
  readonly #cleared = new Map<string, ObservedTask>()
  /** Sessions with events: those of this OpenCode process. */
  readonly #audible = new Set<string>()
  readonly #version = createSignal(0)
  #telling: ReturnType<typeof setTimeout> | undefined
  #isDisposed = false

  constructor(listeners: Listeners) {
    this.#listeners = listeners
  }

  /** All tasks. Reactive, like the other readers. */
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

  /** Whether a task of this session runs without events here. */
  runsUnheard(parentID: string): boolean {
    return this.#of(parentID).some(({ task }) => isActive(task) && !this.#audible.has(task.sessionID))
  }

  /** Adds a session. Only its record and usage count. */
  take(session: Session, live: boolean): void {
    const record = decodeRecord(session)
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
    const tracker = isActive(task) ? (sameRun && known?.tracker) || new ProgressTracker(Date.now()) : undefined
    const uiMetadata = decodeUiMetadata(session.metadata)
    const entry = { task, tracker, usage, row: session, ...(uiMetadata?.fetches && { fetches: uiMetadata.fetches }) }
    this.#entries.set(session.id, entry)
    const asked = tracker?.elsewhere(uiMetadata) ?? []
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

  hear(event: OpencodeEvent): void {
    const sessionID = event.type === "asked" ? event.ask.sessionID : event.sessionID
    const handle = this.#entries.get(sessionID)
    if (!handle?.tracker) return
    this.#audible.add(sessionID)
    if (!apply(handle.task, handle.tracker, event)) return
    if (event.type === "asked") this.#listeners.onAsk?.(event.ask, { seen: seenOf(handle), before: handle.task })
    this.tell()
  }

  /** The session's retry is over. */
  calm(sessionID: string): void {
    this.#entries.get(sessionID)?.tracker?.retrying(undefined)
  }

  /** Schedules an update of the readers. */
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

/** Usage of the whole session, including the time before events arrived. */
const seenOf = ({ task, tracker, usage, fetches }: TaskHandle): ObservedTask => ({
  task,
  progress: tracker && { ...tracker.snapshot(), usage },
  ...(fetches && { fetches }),
})

/** True if the event changes the run's state. */
function apply(task: Task, tracker: ProgressTracker, event: OpencodeEvent): boolean {
  switch (event.type) {
    case "tool":
      // Message ids ascend in time: one before the prompt belongs to an earlier run.
      if (event.messageID <= task.run.promptID) return false
      tracker.tool(event.callID, event.tool, event.state, event.messageID)
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
