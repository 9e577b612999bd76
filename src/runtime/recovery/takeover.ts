import type { Pauser } from "../../core/feature.ts"
import { winnerIn } from "../../core/group.ts"
import { answerText, keptTodos } from "../../core/outcome.ts"
import type { Message, TaskRecord } from "../../core/ports.ts"
import { newRun } from "../../core/run/active-run.ts"
import { type Ask, type Ending, isActive, isPaused, type Task } from "../../core/task.ts"
import { transition } from "../../core/transition.ts"
import { sleepFor } from "../../lib/clock.ts"
import { answerBeforeNotice } from "../answer-before-notice.ts"
import type { Dispatcher } from "../dispatcher.ts"
import type { Groups } from "../groups/groups.ts"
import { membersOf } from "../groups/members-of.ts"
import type { Outbox } from "../mailbox/outbox.ts"
import { parentFolderOf } from "../merge-target.ts"
import type { Parts } from "../parts.ts"
import type { Places } from "../places/places.ts"
import { replacingPrompt } from "../prompt-run.ts"
import { deleteRefusedStep, unfinishedAnswer } from "../stop-session.ts"
import type { Verifiers } from "../verifiers.ts"
import {
  endOf,
  groupEndOf,
  hasWon,
  isUnclosed,
  lastLaunchBy,
  mayBeInOtherFolder,
  mayLaunch,
  promptFromMessages,
  remainingPrompts,
} from "./orphan.ts"
import { remove } from "./records.ts"

/** Delay between claiming a task and checking whether another process claimed it later, in ms. */
const CLAIM_MS = 300
/** Parents active within this time are woken after a restart; others find the end when they are used. */
const WAKE_WINDOW_MS = 900_000

export type SettlingPorts = {
  readonly dispatcher: Dispatcher
  readonly pauser?: Pauser
  readonly places: Places
  readonly outbox: Outbox
  readonly verifiers: Verifiers
  readonly groups: Pick<Groups, "reopen">
  /** Called when foreign tasks have ended or gone, since others may wait for them. */
  readonly changed: () => void
}

/** Settles tasks of dead processes: takes each over, then tells, ends or continues it. */
export class Settling {
  readonly #parts: Parts
  readonly #ports: SettlingPorts
  readonly #takeIn: (records: readonly TaskRecord[]) => void

  constructor(parts: Parts, ports: SettlingPorts, takeIn: (records: readonly TaskRecord[]) => void) {
    this.#parts = parts
    this.#ports = ports
    this.#takeIn = takeIn
  }

  /** Settles a task of a dead process. Never rejects: failures are retried. `openAsks`: open questions of all sessions. */
  async adopt({ task, owner }: TaskRecord, openAsks: () => Promise<readonly Ask[]>): Promise<void> {
    const { host } = this.#parts
    const handle = this.#parts.store.handle(task.id)
    // May be settled already.
    if (!handle?.run || !this.#parts.store.isForeign(task.id) || handle.run.orphaned?.settling) return
    const { seenAt = owner.seenAt } = handle.run.orphaned ?? {}
    handle.run = { ...handle.run, heldBy: "orphan", orphaned: { seenAt, settling: true } }
    try {
      // Reading the session in its old folder would start an OpenCode instance there.
      if (mayBeInOtherFolder(task) && !this.#ports.places.outlives(task))
        await host.move(task.sessionID, parentFolderOf(this.#parts, task))
      const isMine = await this.#claim(task)
      // Its children are settled with it.
      if (isMine && mayLaunch(task, this.#parts.options)) this.#takeIn(await host.recordsOf(task.sessionID))
      if (isMine && isActive(task)) await this.#settle(task, seenAt, openAsks)
      else if (isMine) this.#tell(task, seenAt)
      // Other tasks may have waited for it.
      this.#ports.changed()
      if (handle.run?.heldBy === "orphan") handle.run = { ...handle.run, heldBy: "foreign", orphaned: undefined }
    } catch (error) {
      host.log("warn", "could not recover a task", { task: task.id, session: task.sessionID, error: String(error) })
    } finally {
      if (handle.run?.orphaned) handle.run = { ...handle.run, orphaned: { seenAt, settling: false } }
    }
  }

  /** Records this process as the task's owner. The last writer wins: both read the record again a moment later. */
  async #claim(task: Task): Promise<boolean> {
    const { host, clock } = this.#parts
    await host.saveRecord(task.sessionID, task)
    await sleepFor(clock, CLAIM_MS)
    const record = (await host.session(task.sessionID))?.record
    return record !== undefined && host.ownership(record.owner) === "ours"
  }

  #tell(task: Task, seenAt: number): void {
    const { delivery } = task
    this.#own(task)
    const mayWake = this.#wakes(task, seenAt) || delivery.state === "none"
    const cleanup = mayWake ? task : { ...task, delivery: { ...delivery, wake: false } }
    if (isUnclosed(task)) this.#ports.dispatcher.closeAgain(cleanup)
    else this.#ports.outbox.post(cleanup, true)
  }

  async #settle(given: Task, seenAt: number, openAsks: () => Promise<readonly Ask[]>): Promise<void> {
    if (given.group) return this.#settleTeam(given, seenAt)
    const { host, store } = this.#parts
    if (this.#goesOn(given)) return
    const { task, stored } = await this.#read(given)
    // Deleted meanwhile: its result is lost, and the parent may have been told.
    if (stored.length === 0 && !(await host.session(task.sessionID))) return remove(this.#parts, task.id)
    const { messages, told } = await answerBeforeNotice(host, given, stored)
    if (!told && (await this.#standsOn(task, messages))) return
    const openTodos = keptTodos(messages) ? await host.openTodos(task.sessionID) : 0
    const lastSeen = Math.max(seenAt, lastLaunchBy(task, store))
    const found = told ?? endOf(task, messages, lastSeen, hasWon(task, store))
    if (!found) return
    // No process heard what its agent asked meanwhile: the end refuses it.
    const asks = (await openAsks()).filter(({ sessionID }) => store.responsibleFor(sessionID)?.id === task.id)
    if (!this.#own(told ? given : task)) return
    const handle = store.handle(task.id)
    if (handle?.run) handle.run = { ...handle.run, asks }
    const ending = told ?? (await this.#validated(task, found, messages))
    const endOptions = { messages, openTodos, wake: this.#wakes(task, seenAt), maybeDelivered: true }
    this.#ports.dispatcher.end(task.id, task.run.generation, ending, endOptions)
  }

  /** Messages of a run, also where its session's user has replaced the prompt. */
  async #read(task: Task): Promise<{ task: Task; stored: readonly Message[] }> {
    const { host } = this.#parts
    const { sessionID, run } = task
    const stored = await host.messagesSince(sessionID, run.promptID)
    const promptID = stored.length === 0 ? await replacingPrompt(host, task) : undefined
    if (promptID === undefined) return { task, stored }
    return {
      task: transition(task, { type: "asked anew", generation: run.generation, promptID }),
      stored: await host.messagesSince(sessionID, promptID),
    }
  }

  /** Continues a group if its members can go on, otherwise ends it. */
  async #settleTeam(task: Task, seenAt: number): Promise<void> {
    const { store, clock } = this.#parts
    const members = membersOf(store, task)
    const isAlive = this.#ports.places.outlives(task) || members.some((member) => isPaused(member.task))
    const prompt = isAlive ? remainingPrompts(task, members) : undefined
    const done = prompt === undefined ? undefined : await this.#ports.groups.reopen(task)
    if (!this.#own(task)) return
    const handle = store.handle(task.id)
    if (handle && done) {
      handle.run = { ...newRun(task, "supervising", clock.now()), prompt, done }
      return this.#ports.dispatcher.deliver(task.id, { type: "members" })
    }
    const endOptions = { messages: [], wake: this.#wakes(task, seenAt), maybeDelivered: true }
    this.#ports.dispatcher.end(task.id, task.run.generation, { at: seenAt, ...groupEndOf(task) }, endOptions)
  }

  /** Validates an answer that no process has validated yet. */
  async #validated(task: Task, ending: Ending, messages: readonly Message[]): Promise<Ending> {
    if (ending.type !== "completed") return ending
    const verdict = await this.#ports.verifiers.afterCrash(task, answerText(messages))
    if (!verdict) return ending
    const handle = this.#parts.store.handle(task.id)
    if (handle?.run) handle.run = { ...handle.run, ...verdict.finding }
    return verdict.ok ? ending : { type: "failed", reason: verdict.failure, at: ending.at }
  }

  /** A remote task was not interrupted: its run continues without a notification. */
  #goesOn(task: Task): boolean {
    const { store, clock } = this.#parts
    const mayGoOn = this.#ports.places.outlives(task) && task.run.startedAt !== undefined && !isPaused(task)
    if (!mayGoOn || hasWon(task, this.#parts.store) || !this.#own(task)) return false
    const handle = store.handle(task.id)
    const now = clock.now()
    if (handle) handle.run = newRun(task, "working", now)
    this.#ports.places.rejoin(task)
    this.#ports.dispatcher.deliver(task.id, { type: "contact", lost: now })
    return true
  }

  /** Only paused runs continue after a restart: at their time, with their prompt. */
  async #standsOn(task: Task, messages: readonly Message[]): Promise<boolean> {
    const { store, clock } = this.#parts
    const goOn = this.#ports.pauser?.afterRestart(task)
    const asked = promptFromMessages(task, messages)
    if (!goOn || !this.#mayGoOn(task) || !asked) return false
    // The dead process may not have undone the refused turn.
    if (unfinishedAnswer(messages)) await deleteRefusedStep(this.#parts, task)
    if (!this.#own(task)) return false
    const handle = store.handle(task.id)
    if (handle)
      handle.run = { ...newRun(task, "parked", clock.now()), ...asked, ...(task.place && { preparesAgain: true }) }
    goOn()
    return true
  }

  /** True unless the task is a member of a group that has ended. */
  #mayGoOn({ member }: Task): boolean {
    const group = member && this.#parts.store.get(member.of)
    return !member || (group !== undefined && isActive(group) && winnerIn(group.group) === undefined)
  }

  /** Takes a task over. False where it changed since the dead process left it. */
  #own(task: Task): boolean {
    const { store, clock, stopped } = this.#parts
    if (stopped.aborted || !store.isForeign(task.id)) return false
    store.add(task, clock.now())
    return true
  }

  /** Whether the notification starts the parent. `seenAt`: last sign of the dead process. */
  #wakes({ parentID }: Task, seenAt: number): boolean {
    const { store, clock } = this.#parts
    // The parent's task ended with that process: nobody would supervise this one.
    if (store.bySession(parentID)) return false
    return clock.now() - seenAt < WAKE_WINDOW_MS
  }
}
