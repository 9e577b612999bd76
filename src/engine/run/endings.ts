import { batchProgress } from "../../core/batch.ts"
import { modelKey } from "../../core/limits.ts"
import type { Message } from "../../core/ports.ts"
import {
  type Ask,
  billedTokens,
  type Delivery,
  type Ending,
  elapsed,
  isActive,
  isQueued,
  isUnattended,
  NO_FIGURES,
  type Outcome,
  type Task,
} from "../../core/task.ts"
import { answerText, factsOf } from "../../core/verdict.ts"
import { notificationID, type Outbox } from "../../delivery/outbox.ts"
import type { Parts } from "../parts.ts"
import type { Answers } from "../talk/answers.ts"
import { stopSession } from "./stopping.ts"

/** How long the record of an end that its session's messages prove waits for more to be written with it. */
const PROVEN_RECORD_MS = 1000

/** What goes with an end besides how the run ended. */
export type Circumstances = {
  /** Those since its prompt; without them, they are read once the session has been stopped. */
  readonly messages?: readonly Message[]
  readonly openTodos?: number
  /** False: the notification is stored, but does not start the parent's model. */
  readonly wake?: boolean
  /** True: nobody is told at all, since the task is being forgotten. */
  readonly silent?: boolean
  /** The parent may hold the notification already: it is asked before one is sent. */
  readonly maybeTold?: boolean
}

/**
 * A run that has ended and was not told of yet, with its messages since the prompt; none where it never began. Its
 * outcome is as the steps before have made it.
 */
export type Closing = { readonly task: Task; readonly ending: Ending; readonly messages: readonly Message[] }

/**
 * What is still done for a run between its end and its parent's being told of it: it may take its time, and what it
 * resolves with becomes part of the outcome. After a crash in between it is done again. A step that rejects is logged
 * and left out.
 */
export type ClosingStep = (closing: Closing) => Promise<Partial<Outcome> | undefined>

/**
 * The one place where runs end and their sessions are stopped. An end goes through the one door at once, so that late
 * events are absorbed; then it is closed: the session stopped, what it left counted, the parent told.
 *
 * What the session's messages prove is told first and written after: a crash in between finds the same messages, and
 * with them the same end under the same id. Any other end is written before it is told.
 */
export class Endings {
  readonly #parts: Parts
  readonly #outbox: Outbox
  readonly #answers: Answers
  readonly #steps: readonly ClosingStep[]
  readonly #freed: () => void
  readonly #waiters = new Map<string, Set<() => void>>()
  /** Runs that have ended and are being closed. */
  readonly #closing = new Map<string, Promise<Task>>()
  /** By parent: takes back the writing of proven ends that is about to come. */
  readonly #recording = new Map<string, () => void>()

  /** `freed` is called when a slot has become free, after the end was recorded in memory, and when it is closed. */
  constructor(parts: Parts, outbox: Outbox, answers: Answers, steps: readonly ClosingStep[], freed: () => void) {
    this.#parts = parts
    this.#outbox = outbox
    this.#answers = answers
    this.#steps = steps
    this.#freed = freed
  }

  /** Ends the run `generation` of a task. False where it had ended already, or is not ours to end. */
  end(taskID: string, generation: number, ending: Ending, circumstances: Circumstances = {}): boolean {
    const { store, clock, toaster, host, stopped, background } = this.#parts
    const task = store.get(taskID)
    if (stopped.aborted || !task || !isActive(task) || task.run.generation !== generation) return false
    if (store.isForeign(taskID)) return false
    const asks = store.tracker(taskID)?.snapshot().asks ?? []
    const now = clock.now()
    const at = Math.max(ending.at ?? now, task.run.startedAt ?? 0)
    const outcome = this.#outcome(task, ending, circumstances)
    const delivery: Delivery = isUnattended(task) ? { state: "none" } : this.#delivery(task, circumstances)
    const change = store.apply(taskID, { type: ending.type, generation, at, outcome, delivery }, now)
    if (!change) return false
    const { after } = change
    const { silent = false, maybeTold, messages } = circumstances
    if (messages && ending.proven && !silent) this.#answers.keep(after, { text: answerText(messages), gone: false })
    const closing = this.#close(after, ending, circumstances, isQueued(task) ? undefined : asks)
    this.#closing.set(taskID, closing)
    const written = this.#write(after, closing, silent ? "never" : ending.proven ? "soon" : "now")
    background.run("close", () => written)
    // Queued now, so that news go out in the order in which the runs ended, however long their closing takes.
    this.#outbox.post(after, written, maybeTold)
    if (!silent && !isUnattended(after)) toaster.ended(after)
    host.log("info", "task ended", {
      task: taskID,
      session: after.sessionID,
      description: after.description,
      model: after.model && modelKey(after.model),
      status: after.status,
      reason: outcome.reason?.code,
      duration: elapsed(after, now),
      tokens: billedTokens(outcome.usage),
    })
    if (after.status !== "completed") this.#stopOwn(after)
    this.#freed()
    return true
  }

  /** Closes an end that a dead process had written and perhaps not closed. Never rejects. */
  closeAgain(task: Task): Promise<Task> {
    const closing = this.#closeAgain(task).finally(() => {
      this.#closing.delete(task.id)
      this.#freed()
    })
    this.#closing.set(task.id, closing)
    return closing
  }

  async #closeAgain(task: Task): Promise<Task> {
    const { store, clock, journal } = this.#parts
    const type = task.status === "error" ? "failed" : task.status === "cancelled" ? "cancelled" : "completed"
    let { outcome } = task
    for (const step of this.#steps) {
      const closing = { task: { ...task, outcome }, ending: { type, reason: outcome?.reason } as const, messages: [] }
      const more = await this.#attempt(() => step(closing), task)
      if (outcome && more) outcome = { ...outcome, ...more }
    }
    if (!outcome || outcome === task.outcome) return task
    const event = { type: "closed", generation: task.run.generation, outcome } as const
    const change = store.apply(task.id, event, clock.now())
    if (change) await journal.save(change.after)
    return { ...task, outcome }
  }

  /** Resolves when the task's last end has been closed: its session is stopped, and its outcome final. */
  async closed(taskID: string): Promise<void> {
    await this.#closing.get(taskID)
  }

  /** Resolves when another run may begin: the last one is closed, and nothing of it is to come into its session any more. */
  async over({ id, sessionID }: Task): Promise<void> {
    await this.closed(id)
    await this.#parts.underway.none(sessionID)
  }

  isClosing(taskID: string): boolean {
    return this.#closing.has(taskID)
  }

  /** Records how far the notification of a run has come. `handedOver`: the parent has the whole answer with it. */
  async told(task: Task, state: "confirmed" | "abandoned", handedOver: boolean): Promise<void> {
    const { store, clock, journal, host } = this.#parts
    const { generation } = task.run
    const now = clock.now()
    if (handedOver && state === "confirmed" && store.get(task.id)?.run.generation === generation)
      store.apply(task.id, { type: "retrieved", at: now }, now)
    const change = store.apply(task.id, { type: "notified", generation, state }, now)
    if (!change) return
    host.log("info", "task notified", {
      task: task.id,
      session: task.parentID,
      message: notificationID(task),
      state,
      handedOver,
    })
    // After a crash the parent's own messages tell what it was told: this write may wait.
    if (state !== "confirmed") return journal.save(change.after)
    journal.saveLater(change.after)
    if (this.#recording.has(task.parentID)) this.#recordSoon(task.parentID)
  }

  /**
   * Waits until the task's present run has ended, `ms` have passed or `signal` fires. While it waits, the end of the
   * run will not wake the parent: the waiting call hands the answer over itself.
   */
  async wait(task: Task, ms: number, signal?: AbortSignal): Promise<void> {
    if (!isActive(task) || signal?.aborted) return
    const waiters = this.#waiters.get(task.id) ?? new Set()
    this.#waiters.set(task.id, waiters)
    await new Promise<void>((resolve) => {
      const finish = () => {
        waiters.delete(finish)
        cancelTimer()
        signal?.removeEventListener("abort", finish)
        resolve()
      }
      const cancelTimer = this.#parts.clock.after(ms, finish)
      signal?.addEventListener("abort", finish)
      waiters.add(finish)
    })
    if (waiters.size === 0 && this.#waiters.get(task.id) === waiters) this.#waiters.delete(task.id)
  }

  /** Lets the calls go that wait for this task: its run has ended, here or in the process that runs it. */
  letGo(taskID: string): void {
    for (const finish of [...(this.#waiters.get(taskID) ?? [])]) finish()
  }

  /** Lets every waiting call go, at the plugin's own end. */
  releaseAll(): void {
    for (const id of [...this.#waiters.keys()]) this.letGo(id)
  }

  /** `asks` are the questions that were open; undefined for a run that had not begun. Never rejects. */
  async #close(task: Task, ending: Ending, circumstances: Circumstances, asks?: readonly Ask[]): Promise<Task> {
    const { store, clock, host } = this.#parts
    if (asks && (!ending.proven || asks.length > 0)) await stopSession(this.#parts, task.sessionID, asks)
    const { promptID, generation } = task.run
    const read = async () => (asks ? host.messagesSince(task.sessionID, promptID) : [])
    const messages = circumstances.messages ?? (await this.#attempt(read, task)) ?? []
    let outcome = this.#outcome(task, ending, { ...circumstances, messages })
    for (const step of this.#steps)
      outcome = {
        ...outcome,
        ...(await this.#attempt(() => step({ task: { ...task, outcome }, ending, messages }), task)),
      }
    store.apply(task.id, { type: "closed", generation, outcome }, clock.now())
    this.#closing.delete(task.id)
    this.#freed()
    return { ...task, outcome }
  }

  /** Has the end written down, and lets the calls go that wait for it; resolves with what may now be told. */
  async #write(task: Task, closing: Promise<Task>, when: "now" | "soon" | "never"): Promise<Task> {
    const { journal } = this.#parts
    if (when === "never") this.letGo(task.id)
    if (when === "now") await journal.save(task)
    const closed = await closing
    if (when === "soon") {
      journal.saveLater(closed)
      this.#recordSoon(closed.parentID)
    }
    // What came of its check no message tells: that is written before it is told.
    else if (when === "now" && closed.outcome?.receipt?.check) await journal.save(closed)
    this.letGo(task.id)
    return closed
  }

  /** Once no task of this parent has ended and none was told of for a moment: then one write has both. */
  #recordSoon(parentID: string): void {
    const { clock, journal } = this.#parts
    this.#recording.get(parentID)?.()
    const write = () => {
      this.#recording.delete(parentID)
      journal.flush(parentID)
    }
    this.#recording.set(parentID, clock.after(PROVEN_RECORD_MS, write))
  }

  async #attempt<Result>(work: () => Promise<Result>, task: Task): Promise<Result | undefined> {
    try {
      return await work()
    } catch (error) {
      this.#parts.host.log("warn", "an end could not be closed in full", { task: task.id, error: String(error) })
      return undefined
    }
  }

  /** What is known of the run: from its messages where there are any, else from what was heard of it. */
  #outcome(task: Task, ending: Ending, { messages = [], openTodos = 0 }: Circumstances): Outcome {
    const { reason, note, saidLastWord } = ending
    const tracker = this.#parts.store.tracker(task.id)
    const unanswered = task.outcome?.unanswered ?? tracker?.unanswered ?? []
    const told = {
      reason,
      note,
      saidLastWord,
      openTodos,
      ...(unanswered.length > 0 && { unanswered: [...unanswered] }),
    }
    if (messages.length > 0) return { ...told, ...factsOf(messages) }
    const heard = task.outcome ?? tracker?.snapshot() ?? NO_FIGURES
    const { toolCalls, usage, recentTools } = { recentTools: [], ...heard }
    return { ...told, toolCalls, usage, recentTools, filesChanged: [], moreFiles: 0 }
  }

  #delivery(task: Task, { silent, wake }: Circumstances): Delivery {
    if (silent) return { state: "none" }
    const before = batchProgress(task.batch, this.#parts.store.ofParent(task.parentID))
    const running = before.running - 1
    const handedOver = (this.#waiters.get(task.id)?.size ?? 0) > 0
    const { wake: which } = this.#parts.options
    const wakes = which === "each" || (which === "last" && running === 0)
    const progress = { done: before.done + 1, total: before.total, running }
    return { state: "pending", wake: wakes && !handedOver && wake !== false, ...progress }
  }

  /** Whatever ends a task but completion stops the tasks that it launched. */
  #stopOwn({ sessionID }: Task): void {
    for (const own of this.#parts.store.ofParent(sessionID))
      this.end(own.id, own.run.generation, PARENT_ENDED, { wake: false })
  }
}

export const DELETED: Ending = { type: "cancelled", reason: { code: "deleted", text: "Its session was deleted." } }

export const PARENT_ENDED: Ending = {
  type: "cancelled",
  reason: { code: "parent-ended", text: "The agent that launched it has ended." },
}
