import type { GroupKind, Pauser } from "../../core/feature.ts"
import { isBegunIn, type MemberState, sizeOf, winnerIn } from "../../core/group.ts"
import { answerText, classify, interrupted, keptTodos, lastAnswerAt } from "../../core/outcome.ts"
import type { Message, TaskRecord } from "../../core/ports.ts"
import { newRun } from "../../core/run/active-run.ts"
import { withMessages, withoutOpenCalls } from "../../core/run/progress.ts"
import { constraintsOf } from "../../core/spending.ts"
import {
  type Ending,
  elapsed,
  hasPendingNotification,
  holdsPlace,
  isActive,
  isPaused,
  isQueued,
  type LastWord,
  type Reason,
  type Task,
} from "../../core/task.ts"
import { transition } from "../../core/transition.ts"
import { endAfterCrash } from "../../core/watchdog.ts"
import { sleepFor } from "../../lib/clock.ts"
import { SerialQueue } from "../../lib/promises.ts"
import type { Options } from "../../options/options.ts"
import { answerBeforeNotice } from "../answers.ts"
import type { CostLedger } from "../budgets.ts"
import type { Dispatcher } from "../dispatcher.ts"
import type { Groups } from "../groups.ts"
import type { Outbox } from "../mailbox/outbox.ts"
import type { Places } from "../places/places.ts"
import type { Services } from "../services.ts"
import { deleteRefusedStep, isByOthers, parentFolderOf, replacingPrompt, unfinishedAnswer } from "../sessions.ts"
import type { TaskStore } from "../tasks/store.ts"
import type { Verifiers } from "../verifiers.ts"

/** The session may be in another folder: the task has a place, or its parent may have one. */
const mayBeInOtherFolder = (task: Task): boolean => isUnclosed(task) || (task.depth > 1 && isActive(task))

/** A place or group whose end was not recorded. */
const isUnclosed = (task: Task): boolean =>
  holdsPlace(task) || (task.group !== undefined && task.outcome?.group === undefined)

/**
 * True if the agent may have launched tasks that only its dead process knew. Such tasks are settled together with this
 * one.
 */
const mayLaunch = (task: Task, { maxDepth }: Pick<Options, "maxDepth">): boolean =>
  isActive(task) && (maxDepth === 0 || task.depth < maxDepth)

/** Time of the agent's last launch or resume, which proves that the agent worked then; 0 for never. */
const lastLaunchBy = ({ sessionID }: Task, store: TaskStore): number =>
  Math.max(0, ...store.ofParent(sessionID).map(({ run }) => run.createdAt))

/** The group's record shows that the try passed its check. */
const hasWon = ({ id, member }: Task, store: TaskStore): boolean =>
  member !== undefined && winnerIn(store.get(member.of)?.group) === id

/**
 * How a run of a dead process ended, judged by its messages; undefined where they show no end. `seenAt`: last sign of
 * that process; `isWinner`: the group's record names the task as winner.
 */
function endOf(task: Task, messages: readonly Message[], seenAt: number, isWinner: boolean): Ending | undefined {
  const classified = classify(messages, "orphaned")
  if (!classified) return undefined
  if (isWinner) return classified
  return {
    at: Math.max(seenAt, lastAnswerAt(messages)),
    ...unchecked(task, endAfterCrash(classified, task.run, messages)),
  }
}

/**
 * A run that answered without a recorded check counts as interrupted, because nobody knows whether it would have
 * passed.
 */
function unchecked(task: Task, ending: Ending): Ending {
  if (ending.type !== "completed" || task.run.check === undefined) return ending
  const text = "OpenCode stopped or was restarted before its check had passed. It had answered."
  return { type: "failed", reason: { code: "interrupted", text }, at: ending.at }
}

/**
 * Prompts of the remaining members when a group continues after a restart. Undefined where the group cannot continue,
 * because no member has begun or the prompts are lost. `members`: all members.
 */
export function remainingPrompts({ group, run }: Task, members: readonly MemberState[]): string | undefined {
  if (!group || winnerIn(group) !== undefined || run.startedAt === undefined) return undefined
  const begun = members.filter(({ task }) => isBegunIn(task, run.generation))
  const isAllBegun = begun.length >= sizeOf(group)
  if (begun.length === 0 || ((run.after || run.generation > 0) && !isAllBegun)) return undefined
  return group.prompt
}

/**
 * How a group ends whose process died: with a recorded winner it is completed, otherwise interrupted, so that it can be
 * resumed. `kind` has rows: only the process that died knew its members before they were written to the file.
 */
function groupEndOf({ group, run }: Task, kind: GroupKind | undefined): Ending {
  if (winnerIn(group) !== undefined) return { type: "completed" }
  if (kind?.rows && run.generation === 0 && run.startedAt === undefined) return interrupted(false)
  return { type: "failed", reason: GROUP_INTERRUPTED }
}

const GROUP_INTERRUPTED: Reason = {
  code: "interrupted",
  text: "OpenCode stopped or was restarted before it had come to an end.",
}

/**
 * Reads the prompt of a paused run from its stored message. Undefined if the message is missing, or later messages show
 * that the run continued and completed.
 */
function promptFromMessages(task: Task, messages: readonly Message[], kind: GroupKind | undefined) {
  const asked = messages.find(({ id }) => id === task.run.promptID)
  if (!asked || classify(messages, "working")?.type === "completed") return undefined
  const texts = asked.parts.flatMap((part) => (part.type === "text" ? [part] : []))
  const textOf = (synthetic: boolean) => texts.find((part) => part.synthetic === synthetic)?.text ?? ""
  // The constraints are removed here, because they are appended again when the prompt is sent.
  const [hidden, constraints] = [textOf(true), constraintsOf(task, kind?.picksOne === true)]
  const preface = hidden.endsWith(constraints) ? hidden.slice(0, hidden.length - constraints.length) : hidden
  return { prompt: textOf(false), preface: preface.trim() }
}

/**
 * The last word of a paused run that was asked for it and could not answer. It is asked again when it goes on, with time
 * of its own: the limit may be passed.
 */
function lastWordAgain(task: Task, now: number): LastWord | undefined {
  const { lastWordFor: reason } = task.run
  const at = elapsed(task, now)
  return reason && { state: "requested", reason, at, againAt: at }
}

/**
 * Adds the tasks of records that other or earlier processes wrote. Returns those of dead processes, called orphans;
 * they count as foreign until they are settled.
 */
export function importRecords(
  services: Services,
  ledger: CostLedger,
  records: readonly TaskRecord[],
): readonly TaskRecord[] {
  const { store, opencode, journal } = services
  return records.filter(({ task, owner }) => {
    if (task.forgotten) {
      ledger.keep(task)
      if (store.isForeign(task.id)) remove(services, task.id)
      return false
    }
    if (store.wasCleared(task.id)) return false
    const ownership = opencode.ownership({ ...owner, seenAt: Math.max(owner.seenAt, journal.wokenAt) })
    const isOrphan = ownership === "dead" || (ownership === "ours" && store.run(task.id)?.orphaned !== undefined)
    if ((ownership === "ours" && !isOrphan) || isKnown(services, task, isOrphan)) return false
    show(services, task, isOrphan)
    return isOrphan && store.isForeign(task.id)
  })
}

/** Drops a task whose session or record is gone. */
export function remove({ store }: Services, taskID: string): void {
  store.remove(taskID)?.releaseWaiters()
}

/** True if this process knows more of the task than the record says, because the task runs or ended here. */
function isKnown({ store }: Services, task: Task, isOrphan: boolean): boolean {
  const shown = store.get(task.id)
  // The record was read before a later run of the task began.
  const isLost = store.isForeign(task.id) && store.handle(task.id)?.isLost
  if (shown && shown.run.generation > task.run.generation && !isLost) return true
  // Another process took the task over without knowing the end that this process found. That process will find the same
  // end.
  const isFound = shown && isActive(task) && !isActive(shown) && shown.run.generation >= task.run.generation
  if (isFound && (!isOrphan || shown.delivery.state === "confirmed")) return true
  const known = store.isOwn(task.id) ? shown : undefined
  // A task that ended here may have been resumed by another process that is gone, too.
  return known !== undefined && (isActive(known) || (isOrphan && known.run.generation >= task.run.generation))
}

/** Adds what this process has read or merged of another's ended task, which that task's record does not say. */
function withOwnNews(task: Task, known: Task | undefined): Task {
  if (isActive(task) || known?.run.generation !== task.run.generation) return task
  const { outcome, retrievedAt = known.retrievedAt } = task
  const merge = outcome?.work?.merge ?? known.outcome?.work?.merge
  return {
    ...task,
    ...(retrievedAt !== undefined && { retrievedAt }),
    ...(outcome?.work && merge && { outcome: { ...outcome, work: { ...outcome.work, merge } } }),
  }
}

function show({ store, clock }: Services, read: Task, isOrphan: boolean): void {
  const task = withOwnNews(read, store.get(read.id))
  // An orphan that is not settled yet counts as foreign, so that a failed attempt is repeated.
  if (isOrphan && !isActive(task) && !hasPendingNotification(task)) store.add(task, clock.now())
  else store.addForeign(task)
  if (!isActive(task) && !(isOrphan && hasPendingNotification(task))) store.handle(task.id)?.releaseWaiters()
}

/** Delay between claiming a task and checking whether another process claimed it later, in ms. */
const CLAIM_MS = 300
/**
 * A parent is woken after a restart if the dead process was seen within this time, in ms. Other parents learn of the
 * end when they are used.
 */
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
  /**
   * Called before the age of a lease is judged, whose owner may have slept with this process, and before the time without
   * a process is counted, which a sleep is a part of.
   */
  readonly noticeSleep: () => void
}

/** Settles tasks of dead processes: takes each task over, then sends its notification, ends it or continues it. */
export class OrphanSettler {
  readonly #services: Services
  readonly #ports: SettlingPorts
  readonly #takeIn: (records: readonly TaskRecord[]) => void
  /** Claims of ended tasks, by parent: notifications are sent in the order of the ends. */
  readonly #ended = new SerialQueue()

  constructor(services: Services, ports: SettlingPorts, takeIn: (records: readonly TaskRecord[]) => void) {
    this.#services = services
    this.#ports = ports
    this.#takeIn = takeIn
  }

  /** Settles a task of a dead process. Never rejects: a failed attempt is repeated. */
  async adopt({ task, owner }: TaskRecord): Promise<void> {
    const { opencode, store } = this.#services
    const handle = store.handle(task.id)
    // The task may be settled already, or another call may be settling it.
    if (!handle?.run || !store.isForeign(task.id) || handle.run.orphaned?.settling) return
    const { seenAt = owner.seenAt } = handle.run.orphaned ?? {}
    handle.run = { ...handle.run, heldBy: "orphan", orphaned: { seenAt, settling: true } }
    try {
      const isMine = await this.#claimInOrder(task)
      const { parentStopped } = task.run
      if (isMine && parentStopped !== undefined && !(await this.#isTakenUp(task.parentID, Number(parentStopped))))
        store.stopped(task.parentID, true)
      // Tasks that this task's agent launched are settled with it. A group's state is derived from its members, so they
      // are settled first.
      if (isMine && (task.group || mayLaunch(task, this.#services.options)))
        this.#takeIn(await opencode.recordsOf(task.sessionID))
      if (isMine && task.group) await this.#membersAdopted(task)
      if (isMine && isActive(task)) await this.#settle(task, seenAt)
      else if (isMine) this.#tell(task, seenAt)
      // Other tasks may have waited for it.
      this.#ports.changed()
      if (handle.run?.heldBy === "orphan") handle.run = { ...handle.run, heldBy: "foreign", orphaned: undefined }
    } catch (error) {
      opencode.log("warn", "could not recover a task", { task: task.id, session: task.sessionID, error: String(error) })
    } finally {
      if (handle.run?.orphaned) handle.run = { ...handle.run, orphaned: { seenAt, settling: false } }
    }
  }

  /**
   * Whether the user of a session that was stopped then has written in it since: another process than that of its tasks
   * may have read it. OpenCode stores nothing of a stop that comes before the answer to a message has begun.
   */
  async #isTakenUp(sessionID: string, stoppedAt: number): Promise<boolean> {
    const { opencode } = this.#services
    const last = await opencode.lastMessage(
      sessionID,
      (message) => message.error?.aborted === true || isByOthers(opencode, message),
    )
    return last?.role === "user" && last.createdAt > stoppedAt
  }

  /** Resolves when it is known how each member stands. Their ends may not be closed while a host is out of reach. */
  async #membersAdopted(group: Task): Promise<void> {
    const { store } = this.#services
    await Promise.all(store.membersOf(group).map(({ task }) => store.handle(task.id)?.adopting))
  }

  /** Like `#claim`. For a task that has ended, resolves after all earlier calls for its parent's ended tasks. */
  #claimInOrder(task: Task): Promise<boolean> {
    const claim = this.#claim(task)
    if (isActive(task)) return claim
    // The queue looks at the result only later.
    claim.catch(() => {})
    return this.#ended.take(() => claim, task.parentID)
  }

  /**
   * Records this process as the task's owner, and returns whether it is. If two processes do so at once, the last
   * writer wins: each reads the record again a moment later.
   */
  async #claim(task: Task): Promise<boolean> {
    const { opencode, clock, journal } = this.#services
    // Reading the session in its old folder would start an OpenCode instance there.
    if (mayBeInOtherFolder(task) && !this.#ports.places.outlives(task))
      await opencode.move(task.sessionID, parentFolderOf(this.#services, task))
    await journal.claim(task)
    await sleepFor(clock, CLAIM_MS)
    const record = (await opencode.session(task.sessionID))?.record
    return record !== undefined && opencode.ownership(record.owner) === "ours"
  }

  #tell(task: Task, seenAt: number): void {
    const { delivery } = task
    this.#own(task)
    // The end is known, even if the notification has to wait.
    this.#services.store.handle(task.id)?.releaseWaiters()
    const mayWake = this.#wakes(task, seenAt) || delivery.state === "none"
    const notified = mayWake ? task : { ...task, delivery: { ...delivery, wake: false } }
    if (isUnclosed(task)) this.#ports.dispatcher.closeAgain(notified)
    else this.#ports.outbox.post(notified, true)
  }

  async #settle(given: Task, seenAt: number): Promise<void> {
    if (given.group) return this.#settleGroup(given, seenAt)
    const { opencode, store, commands } = this.#services
    // The check that ran when the process died would go on, although its task is reported as ended.
    if (commands && given.run.check !== undefined) {
      const { endLeftovers } = await import("../places/process.ts")
      await endLeftovers(commands)
    }
    if (this.#continueRemote(given, seenAt)) return
    // Only by a connection is the agent of a paused run stopped, and a prompt read that is not stored here.
    if (given.run.parked?.found) this.#ports.places.rejoin(given)
    const { task, stored } = await this.#read(given)
    // The session was deleted meanwhile: no result is left, and the parent may already have a notification.
    if (stored.length === 0 && !(await opencode.session(task.sessionID))) return remove(this.#services, task.id)
    const { messages, reportedEnding } = await answerBeforeNotice(opencode, given, stored)
    if (!reportedEnding && (await this.#keepPaused(task, messages))) return
    const openTodos = keptTodos(messages) ? await opencode.openTodos(task.sessionID) : 0
    const lastSeen = Math.max(seenAt, lastLaunchBy(task, store))
    const found = reportedEnding ?? endOf(task, messages, lastSeen, hasWon(task, store))
    if (!found) return
    // Questions that the agent asked after its process died are read now, so that the end of the run refuses them.
    const asks = (await opencode.openAsks()).filter(({ sessionID }) => store.responsibleFor(sessionID)?.id === task.id)
    if (!this.#own(reportedEnding ? given : task)) return
    const handle = store.handle(task.id)
    if (handle?.run) handle.run = { ...handle.run, asks }
    const ending = reportedEnding ?? (await this.#validated(task, found, messages))
    const endOptions = { messages, openTodos, wake: this.#wakes(task, seenAt), maybeDelivered: true }
    this.#ports.dispatcher.end(task.id, task.run.generation, ending, endOptions)
  }

  /** Reads the messages of a task's run. Where a user has replaced the run's prompt, those since the new prompt. */
  async #read(task: Task): Promise<{ task: Task; stored: readonly Message[] }> {
    const { opencode } = this.#services
    const { sessionID, run } = task
    // Nothing is stored of a queued run, and its host may be out of reach.
    if (isQueued(task)) return { task, stored: [] }
    const stored = await opencode.messagesSince(sessionID, run.promptID)
    const promptID = stored.length === 0 ? await replacingPrompt(opencode, task) : undefined
    if (promptID === undefined) return { task, stored }
    return {
      task: transition(task, { type: "prompt replaced", generation: run.generation, promptID }),
      stored: await opencode.messagesSince(sessionID, promptID),
    }
  }

  /** Continues a group if its members can go on, otherwise ends it. */
  async #settleGroup(task: Task, seenAt: number): Promise<void> {
    const { store, clock, groupKindOf } = this.#services
    const members = store.membersOf(task)
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
    const ending = groupEndOf(task, groupKindOf(task))
    this.#ports.dispatcher.end(task.id, task.run.generation, { at: seenAt, ...ending }, endOptions)
  }

  /** Validates an answer that no process has validated yet. */
  async #validated(task: Task, ending: Ending, messages: readonly Message[]): Promise<Ending> {
    if (ending.type !== "completed") return ending
    const verdict = await this.#ports.verifiers.afterCrash(task, answerText(messages))
    if (!verdict) return ending
    const handle = this.#services.store.handle(task.id)
    if (handle?.run) handle.run = { ...handle.run, ...verdict.finding }
    return verdict.ok ? ending : { type: "failed", reason: verdict.failure, at: ending.at }
  }

  /**
   * Continues the run of a remote task, which the crash did not interrupt. Returns false where this is not possible. The
   * time without a process counts as a sleep of this one: the run may have ended well in it, and the host is not reached
   * yet.
   */
  #continueRemote(task: Task, seenAt: number): boolean {
    const { store, clock, journal } = this.#services
    const isResumable = this.#ports.places.outlives(task) && task.run.startedAt !== undefined && !isPaused(task)
    if (!isResumable || hasWon(task, this.#services.store)) return false
    this.#ports.noticeSleep()
    if (!this.#own(task)) return false
    const handle = store.handle(task.id)
    const now = clock.now()
    const ms = Math.max(0, now - seenAt)
    if (handle) handle.run = newRun(task, "working", now - ms)
    this.#ports.places.rejoin(task)
    this.#ports.dispatcher.deliver(task.id, { type: "slept", ms })
    this.#ports.dispatcher.deliver(task.id, { type: "contact", lost: now })
    // A process after this one knows only from the record that this time does not count.
    void journal.save(task)
    return true
  }

  /**
   * Lets a paused run continue to wait after a restart, with its prompt. Returns false for any other run: only paused
   * runs continue.
   */
  async #keepPaused(task: Task, messages: readonly Message[]): Promise<boolean> {
    const { store, clock } = this.#services
    const resumePause = this.#ports.pauser?.afterRestart(task)
    const asked = promptFromMessages(task, messages, this.#services.groupKindOf(task))
    if (!resumePause || !this.#isResumable(task) || !asked) return false
    const isBegun = task.run.parked?.found !== undefined
    const isThere = isBegun && this.#ports.places.outlives(task)
    // The dead process may have had no time to stop the agent, which on another machine goes on.
    if (isThere) await this.#services.opencode.abort(task.sessionID)
    // Nor to delete the refused step, which OpenCode does in an idle session alone.
    if (unfinishedAnswer(messages)) await deleteRefusedStep(this.#services, task)
    if (!this.#own(task)) return false
    const handle = store.handle(task.id)
    const run = newRun(task, "waiting", clock.now())
    // What the run has spent before counts for its limits.
    const observed = withoutOpenCalls(withMessages(run.observed, messages))
    const lastWord = lastWordAgain(task, clock.now())
    if (handle)
      handle.run = {
        ...run,
        ...task.run.parked?.found,
        observed,
        ...asked,
        ...(!isBegun && { notStarted: true }),
        ...((!isBegun || (task.place && !isThere)) && { preparesAgain: true }),
        ...(lastWord && { lastWord }),
      }
    resumePause()
    return true
  }

  /** True unless the task is a member of a group that has ended or has a winner. */
  #isResumable({ member }: Task): boolean {
    const group = member && this.#services.store.get(member.of)
    return !member || (group !== undefined && isActive(group) && winnerIn(group.group) === undefined)
  }

  /** Makes this process the task's owner. Returns false if the plugin stops, or the task is not foreign any more. */
  #own(task: Task): boolean {
    const { store, clock, stopped } = this.#services
    if (stopped.aborted || !store.isForeign(task.id)) return false
    store.add(task, clock.now())
    return true
  }

  /** Whether the notification starts the parent. `seenAt`: last sign of the dead process. */
  #wakes({ parentID }: Task, seenAt: number): boolean {
    const { store, clock } = this.#services
    // The parent's own task ended with the dead process, so nobody would supervise a turn that this notification
    // starts.
    if (store.bySession(parentID) || store.wasCleared(parentID)) return false
    return clock.now() - seenAt < WAKE_WINDOW_MS
  }
}
