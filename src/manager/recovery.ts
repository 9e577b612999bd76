import { messageID } from "../core/ids.ts"
import type { Clock, Host, TaskRecord } from "../core/ports.ts"
import { isActive, isQueued, type Task } from "../core/task.ts"
import { changedFiles, judge } from "../core/verdict.ts"
import { NOTICE_PARTS } from "../delivery/compose.ts"
import type { Outbox } from "../delivery/outbox.ts"
import type { Ending, Lifecycle } from "./lifecycle.ts"
import type { TaskStore } from "./store.ts"

/** How far back the start looks. Older tasks are found when their parent's session is used. */
const LOOK_BACK_MS = 7 * 24 * 3_600_000
/** A parent that waited this recently is woken by what is told after a restart; an older one finds it when it is used. */
const WAKE_WINDOW_MS = 900_000

export type RecoveryPorts = {
  readonly host: Host
  readonly clock: Clock
  readonly store: TaskStore
  readonly lifecycle: Lifecycle
  readonly outbox: Outbox
  /** Writes the task's record, and with it this process as its owner. */
  readonly save: (task: Task) => Promise<void>
  /** Queued tasks were taken over: start what may start. */
  readonly pump: () => void
}

/**
 * Brings tasks back after a crash or a restart from the records in their sessions:
 *
 * - ended and told: known again;
 * - ended, and the parent has the message: recorded as told;
 * - ended and not told: told;
 * - running when its process died: judged by its messages, a finished one told as finished, any other as interrupted;
 * - queued: queued again;
 * - running in another process that lives: shown and left alone, taken over when that process dies.
 */
export class Recovery {
  readonly #ports: RecoveryPorts
  readonly #loaded = new Map<string, Promise<void>>()

  constructor(ports: RecoveryPorts) {
    this.#ports = ports
  }

  /** Takes in the tasks of all sessions that changed lately. Rejects with a `HostError`. */
  async recover(): Promise<void> {
    const { host, clock } = this.#ports
    await this.#takeIn(await host.recordsSince(clock.now() - LOOK_BACK_MS))
  }

  /** Takes in the tasks of a session at its first use; reads again what another process runs. Never rejects. */
  async ready(parentID: string): Promise<void> {
    const loading = this.#loaded.get(parentID) ?? this.#load(parentID)
    this.#loaded.set(parentID, loading)
    await loading
    await this.refreshForeign(parentID)
  }

  /** Looks at the tasks that other processes run, of one parent or of all: did they end, did their process die? */
  async refreshForeign(parentID?: string): Promise<void> {
    const { store, host } = this.#ports
    const foreign = store.foreign().filter((task) => parentID === undefined || task.parentID === parentID)
    for (const task of foreign) {
      const session = await host.session(task.sessionID).catch(() => undefined)
      if (session?.record) await this.#takeIn([session.record])
      else if (session === undefined) store.remove(task.id)
    }
  }

  forget(parentID: string): void {
    this.#loaded.delete(parentID)
  }

  async #load(parentID: string): Promise<void> {
    const { host } = this.#ports
    try {
      await this.#takeIn(await host.recordsOf(parentID))
    } catch (error) {
      this.#loaded.delete(parentID)
      host.log("warn", "could not read a session's tasks", { session: parentID, error: String(error) })
    }
  }

  async #takeIn(records: readonly TaskRecord[]): Promise<void> {
    const { store, host, clock, lifecycle } = this.#ports
    const orphans: TaskRecord[] = []
    for (const record of records) {
      const { task, owner } = record
      if (store.get(task.id) && !store.isForeign(task.id)) continue
      const ownership = host.ownership(owner)
      if (ownership === "ours") continue
      if (ownership === "alive") {
        store.addForeign(task)
        if (!isActive(task)) lifecycle.letGo(task.id)
        continue
      }
      store.add(task, clock.now())
      orphans.push(record)
    }
    for (const orphan of orphans) await this.#adopt(orphan)
    if (orphans.some(({ task }) => isQueued(task))) this.#ports.pump()
  }

  /** Settles what a dead process left of a task. Never rejects: what fails is left for the next use of its parent. */
  async #adopt({ task, owner }: TaskRecord): Promise<void> {
    const { host, store } = this.#ports
    try {
      if (!isActive(task)) await this.#tell(task, owner.seenAt)
      else if (isQueued(task)) await this.#ports.save(task)
      else await this.#settle(task, owner.seenAt)
    } catch (error) {
      store.remove(task.id)
      this.#loaded.delete(task.parentID)
      host.log("warn", "could not recover a task", { task: task.id, session: task.sessionID, error: String(error) })
    }
  }

  async #tell(task: Task, seenAt: number): Promise<void> {
    const { host, store, outbox, clock, save } = this.#ports
    const { delivery, run } = task
    if (delivery.state !== "pending" && delivery.state !== "sent") return
    const id = messageID("notification", task.id, run.generation, run.endedAt ?? 0)
    if (!(await host.hasMessage(task.parentID, id, NOTICE_PARTS))) {
      outbox.post(this.#wakes(seenAt) ? task : { ...task, delivery: { ...delivery, wake: false } })
      return
    }
    const event = { type: "notified", generation: run.generation, state: "confirmed" } as const
    const change = store.apply(task.id, event, clock.now())
    if (change) await save(change.after)
  }

  async #settle(task: Task, seenAt: number): Promise<void> {
    const { host, lifecycle } = this.#ports
    const [messages, session, openTodos] = await Promise.all([
      host.messagesSince(task.sessionID, task.run.promptID),
      host.session(task.sessionID),
      host.openTodos(task.sessionID),
    ])
    const verdict = judge(messages)
    const facts = { usage: session?.usage, filesChanged: changedFiles(messages), openTodos, wake: this.#wakes(seenAt) }
    const toolCalls = messages.reduce((sum, { parts }) => sum + parts.filter(({ type }) => type === "tool").length, 0)
    const ending: Ending =
      verdict.kind === "completed"
        ? { type: "completed", note: verdict.note }
        : verdict.kind === "failed"
          ? { type: "failed", reason: { code: "provider", text: verdict.message } }
          : { type: "failed", reason: { code: "interrupted", text: interruptedText(messages.length > 0) } }
    lifecycle.end(task.id, task.run.generation, { ...facts, toolCalls, ...ending })
  }

  #wakes(seenAt: number): boolean {
    return this.#ports.clock.now() - seenAt < WAKE_WINDOW_MS
  }
}

const interruptedText = (begun: boolean): string =>
  begun
    ? "OpenCode stopped or was restarted while it ran: it was interrupted."
    : "OpenCode stopped or was restarted before it began: it was interrupted."
