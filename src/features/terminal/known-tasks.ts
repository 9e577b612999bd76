import type { Session } from "@opencode-ai/sdk/v2"
import { createSignal } from "solid-js"
import type { HostEvent } from "../../core/ports.ts"
import { type Ask, isActive, type Task, type Usage } from "../../core/task.ts"
import { toUsage } from "../../opencode/convert.ts"
import { decodeRecord } from "../../runtime/record/codec.ts"
import { decodeUiMetadata } from "../../runtime/record/ui-metadata.ts"
import type { Listened } from "./catch-up.ts"
import { ProgressTracker } from "./progress.ts"
import type { Seen } from "./view-model.ts"

/** Changes are told at most this often: a child that streams has hundreds of events a second. */
const TELL_EVERY_MS = 100

/** What a session's record was, and what it has become. Told for every known task of the project. */
export type Change = { readonly seen: Seen; readonly before: Task | undefined }

/** They hear what happens from now on, once each; they must not throw. */
export type Listeners = {
  readonly onChange?: (change: Change) => void
  readonly onAsk?: (ask: Ask, change: Change) => void
}

type TaskHandle = Listened & { readonly usage: Usage; readonly fetches?: true }

/** The tasks that the terminal knows of: their records, and how far those are that run. */
export class KnownTasks {
  readonly #listeners: Listeners
  readonly #entries = new Map<string, TaskHandle>()
  /** Tasks that have left the list and are still to be paid for, by session. */
  readonly #cleared = new Map<string, Seen>()
  /** Sessions of which something was heard: those that this host runs. Another process's tell nothing here. */
  readonly #audible = new Set<string>()
  readonly #version = createSignal(0)
  #telling: ReturnType<typeof setTimeout> | undefined
  #isDisposed = false

  constructor(listeners: Listeners) {
    this.#listeners = listeners
  }

  /** All of them. Reactive, as the others are that return what is seen. */
  all(): readonly Seen[] {
    this.#read()
    return this.entries().map(seenOf)
  }

  /** Those that a session launched. */
  tasksOf(parentID: string): readonly Seen[] {
    this.#read()
    return this.#of(parentID).map(seenOf)
  }

  /** The one that a session is the child of. */
  taskIn(sessionID: string): Seen | undefined {
    this.#read()
    const entry = this.#entries.get(sessionID)
    return entry && seenOf(entry)
  }

  /** What is left of tasks that were cleared while there was a budget: what they cost. */
  cleared(): readonly Seen[] {
    this.#read()
    return [...this.#cleared.values()]
  }

  entries(): readonly TaskHandle[] {
    return [...this.#entries.values()]
  }

  /** Whether a task of this session runs that tells nothing here. */
  runsUnheard(parentID: string): boolean {
    return this.#of(parentID).some(({ task }) => isActive(task) && !this.#audible.has(task.sessionID))
  }

  /** Takes a session as the host tells it. The record decides; the rest of the row is usage. */
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

  hear(event: HostEvent): void {
    const sessionID = event.type === "asked" ? event.ask.sessionID : event.sessionID
    const entry = this.#entries.get(sessionID)
    if (!entry?.tracker) return
    this.#audible.add(sessionID)
    if (!apply(entry.task, entry.tracker, event)) return
    if (event.type === "asked") this.#listeners.onAsk?.(event.ask, { seen: seenOf(entry), before: entry.task })
    this.tell()
  }

  /** A session is tried no more. */
  calm(sessionID: string): void {
    this.#entries.get(sessionID)?.tracker?.retrying(undefined)
  }

  /** Has what is seen read anew, soon. */
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

/** The row's usage is the whole session's, what was before we listened included. */
const seenOf = ({ task, tracker, usage, fetches }: TaskHandle): Seen => ({
  task,
  progress: tracker && { ...tracker.snapshot(), usage },
  ...(fetches && { fetches }),
})

/** True if the event says something new of the run. */
function apply(task: Task, tracker: ProgressTracker, event: HostEvent): boolean {
  switch (event.type) {
    case "tool":
      // Message ids ascend in time: what is older than the prompt belongs to an earlier run.
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
