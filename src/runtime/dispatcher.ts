import { allPausedSince } from "../core/dependencies.ts"
import type { GroupStep } from "../core/group.ts"
import { modelKey } from "../core/limits.ts"
import { answerText, valueIn } from "../core/outcome.ts"
import type { OpencodeEvent } from "../core/ports.ts"
import { type ActiveRun, type EndOptions, isBeingStopped, isClosing, isFinished } from "../core/run/active-run.ts"
import { reopened } from "../core/run/ending.ts"
import { nextDue, step } from "../core/run/machine.ts"
import type { Input, MachineCommand, MachineStep, RunContext } from "../core/run/steps.ts"
import { billedTokens, type Ending, elapsed, isActive, isMember, isUnattended, type Task } from "../core/task.ts"
import { stopsTime } from "../core/transition.ts"
import { endToast } from "../present/toasts.ts"
import type { Answers } from "./answers.ts"
import type { CostLedger } from "./budgets.ts"
import type { Effects, Token } from "./effects.ts"
import { EndAnnouncer } from "./mailbox/notification-items.ts"
import type { Outbox } from "./mailbox/outbox.ts"
import type { Places } from "./places/places.ts"
import type { Services } from "./services.ts"
import type { TaskHandle } from "./tasks/task-handle.ts"
import type { Verifiers } from "./verifiers.ts"

export type DispatcherPorts = {
  readonly outbox: Outbox
  readonly answers: Answers
  readonly ledger: CostLedger
  readonly effects: Effects
  readonly nextMembers: (task: Task, run: ActiveRun) => GroupStep
  readonly places: Pick<Places, "kindNamed">
  readonly verifiers: Pick<Verifiers, "of">
  /** Called when a member of a group is closed. */
  readonly settled: (member: Task) => void
  /** Called when a slot may be free, or when a task has ended for which other tasks may wait. */
  readonly freed: () => void
  /** Called before each input of a run: no sleep of the process counts, whatever comes first after it. */
  readonly noticeSleep: () => void
  /** Requests a tick at this time at the latest. */
  readonly at: (time: number) => void
}

export const PARENT_ENDED: Ending = {
  type: "cancelled",
  reason: { code: "parent-ended", text: "The agent that launched it has ended." },
}

/** End of a member that still works when its group ends. */
const notNeeded = ({ outcome }: Task): Ending => {
  const { reason } = outcome ?? {}
  const text = reason ? `Stopped with all of its task: ${reason.text}` : "Another try has passed."
  return { type: "cancelled", reason: { code: "parent-ended", text } }
}

/**
 * Runs the machine's commands and gives the results back to the machine, in order for each run. Quick commands run at
 * once, so that the caller sees the ended run; `Effects` runs slow commands.
 */
export class Dispatcher {
  readonly #services: Services
  readonly #ports: DispatcherPorts
  readonly announcing: EndAnnouncer
  #ends = 0

  constructor(services: Services, ports: DispatcherPorts) {
    this.#services = services
    this.#ports = ports
    this.announcing = new EndAnnouncer(services, ports.outbox, (task) =>
      this.deliver(task.id, { type: "notified" }, { generation: task.run.generation }),
    )
  }

  /** Gives an input to a task's run. Without a run, nothing happens. */
  deliver(taskID: string, input: Input, token?: Token): void {
    const handle = this.#services.store.handle(taskID)
    if (!handle || this.#services.stopped.aborted) return
    this.#ports.noticeSleep()
    this.#take(handle, () => this.#advance(handle, input, token))
  }

  /**
   * Ends a task's run, or the pending merge of a completed run. False where there was nothing to end, or where another
   * process owns the task.
   */
  end(taskID: string, generation: number, ending: Ending, options: EndOptions = {}): boolean {
    const { store } = this.#services
    const before = store.handle(taskID)
    if (!before || before.task.run.generation !== generation) return false
    const wasMerging = store.isMerging(taskID)
    if (!isActive(before.task) && !wasMerging) return false
    this.deliver(taskID, { type: "end", ending, options })
    const after = store.handle(taskID)
    return wasMerging || (after !== undefined && !isActive(after.task))
  }

  /**
   * Closes an end that a dead process recorded and perhaps did not close. `task`: the task as its notification
   * describes it.
   */
  closeAgain(task: Task): void {
    const handle = this.#services.store.handle(task.id)
    if (!handle) return
    handle.endIndex = ++this.#ends
    this.#take(handle, () => this.#commit(handle, reopened(task, this.#services.clock.now())))
  }

  /** Resolves when the task's last end is closed: its session is stopped and its outcome final. */
  closed(taskID: string): Promise<void> {
    return this.#until(taskID, (run) => !isClosing(run))
  }

  /** Resolves when the task's session is stopped; a merge may still be pending. */
  quiet(taskID: string): Promise<void> {
    return this.#until(taskID, (run) => run?.stage !== "closing")
  }

  /** Resolves when another run may begin in the task's session. */
  over({ id }: Task): Promise<void> {
    return this.#until(id, (run) => run?.closing === undefined || isFinished(run))
  }

  /** Resolves when the session of the task's ended run is stopped; undefined where no stop is under way. */
  stopping(taskID: string): Promise<void> | undefined {
    const isOver = (run: ActiveRun | undefined) => !run || !isBeingStopped(run)
    return isOver(this.#services.store.run(taskID)) ? undefined : this.#until(taskID, isOver)
  }

  isClosing(taskID: string): boolean {
    return isClosing(this.#services.store.run(taskID))
  }

  /**
   * Counts an answer that is not one of a run: somebody asked the agent for it, such as another plugin after the run's
   * end, or it was given in a session below, which OpenCode's own `task` tool made. These answers cost money, too.
   */
  countBeside({ id, sessionID }: Task, event: Extract<OpencodeEvent, { type: "answered" }>): void {
    const { store, clock, journal, background } = this.#services
    const { messageID, usage } = event
    const handle = store.handle(id)
    if (!handle) return
    const { task, run } = handle
    // The messages of a run that is being closed are still to be read, and may or may not contain this answer.
    if (event.sessionID === sessionID && run?.stage === "closing")
      return void background.run("count an answer", () => this.quiet(id).then(() => this.countBeside(task, event)))
    if (this.hasCounted(id, messageID) || run?.observed.answers.get(messageID)?.usage) return
    handle.counted.push(messageID)
    const at = clock.now()
    const change = store.apply(id, { type: "answered beside", generation: task.run.generation, at, usage }, at)
    if (!change) return
    journal.saveLater(change.after)
    this.deliver(id, { type: "spending" })
    this.#share(change.after)
  }

  /** Whether the task already contains the usage of this message, other than in its present run. */
  hasCounted(taskID: string, messageID: string): boolean {
    return this.#services.store.handle(taskID)?.counted.includes(messageID) === true
  }

  /** Releases all waiting calls when the plugin stops. */
  releaseAll(): void {
    for (const handle of this.#services.store.entries()) handle.releaseWaiters()
  }

  /** Schedules the next tick of each run. */
  wake(): void {
    for (const task of this.#services.store.active()) this.#rearm(task.id)
  }

  #contextOf({ task }: TaskHandle): RunContext {
    const { clock, options, store, opencode, presence } = this.#services
    const { place } = task
    return {
      now: clock.now(),
      presence: presence.now,
      options,
      task,
      messageID: opencode.messageID,
      purse: this.#ports.ledger.purseOf(task),
      ownTasks: store.hasActive(task.sessionID),
      pausedSince: () =>
        store.hasActive(task.sessionID)
          ? allPausedSince(store.ofParent(task.sessionID))
          : this.#ports.outbox.deferredSince(task.sessionID),
      hasPendingMessage: store.hasOpen(task.sessionID) || this.#ports.outbox.hasPending(task.sessionID),
      spent: () => this.#ports.ledger.spentBy(task),
      nextMembers: (run) => this.#ports.nextMembers(task, run),
      mostAway: () => (place && this.#ports.places.kindNamed(place.kind)?.mostAway?.(place.kind)) ?? 0,
      verifiers: this.#ports.verifiers.of(task),
      delivery: (how) => this.announcing.deliveryOf(task, how),
    }
  }

  /** Handles a run's inputs one at a time. Inputs that arrive meanwhile are queued. */
  #take(handle: TaskHandle, take: () => void): void {
    handle.inputs.push(take)
    if (handle.isBusy) return
    handle.isBusy = true
    for (let next = handle.inputs.shift(); next; next = handle.inputs.shift())
      try {
        next()
      } catch (error) {
        this.#services.opencode.log("error", "a step of a run failed", { error: String(error) })
      }
    handle.isBusy = false
    handle.notifyWatchers()
  }

  #advance(handle: TaskHandle, input: Input, token: Token | undefined): void {
    const { run } = handle
    const isLate =
      token && (run?.generation !== token.generation || (token.stageCount ?? run.stageCount) !== run.stageCount)
    if (!run || isLate) return
    this.#commit(handle, step(run, input, this.#contextOf(handle)))
    if (!isFleeting(input)) this.#rearm(handle.task.id)
  }

  #commit(handle: TaskHandle, { run, commands }: MachineStep): void {
    if (!run) for (const [id, { usage }] of handle.run?.observed.answers ?? []) if (usage) handle.counted.push(id)
    handle.run = run
    for (const command of commands) this.#perform(handle, command)
    if (run?.closing) this.announcing.inOrder(handle.task.parentID)
  }

  #rearm(taskID: string): void {
    const handle = this.#services.store.handle(taskID)
    if (handle?.run) this.#ports.at(nextDue(handle.run, this.#contextOf(handle)))
  }

  #perform(handle: TaskHandle, command: MachineCommand): void {
    const { store, clock, journal, opencode, toaster, background, presence } = this.#services
    const { task } = handle
    switch (command.do) {
      case "record": {
        const change = store.apply(task.id, command.event, clock.now())
        if (change && command.write) void journal.save(change.after)
        if (change && stopsTime(command.event))
          for (const { id } of this.#above(task)) this.deliver(id, { type: "spending" })
        return
      }
      case "log":
        return opencode.log("info", command.what, { task: task.id, session: task.sessionID, ...command.fields })
      case "answer":
        return command.reply(command.with)
      case "abort":
        return handle.stop?.abort()
      case "announce":
        toaster.asked(task, command.ask)
        background.run("see who is there", () => presence.look())
        return opencode.log("info", "a task waits for an answer", {
          task: task.id,
          session: command.ask.sessionID,
          what: command.ask.what,
        })
      case "check shared limits":
        return this.#share(task)
      case "end":
        return this.#end(handle, command)
      case "ended":
        return this.#ended(handle, command.silent)
      case "free slot":
        return this.#ports.freed()
      case "notify":
        this.announcing.note(handle, command)
        this.#ports.settled(task)
        this.#notifyGroup(task)
        return handle.releaseWaiters()
      case "write":
        if (command.later) return journal.saveSoon(task)
    }
    this.#ports.effects.perform(handle, command, (input, token) => this.deliver(task.id, input, token))
  }

  #end(handle: TaskHandle, { event, ending, options }: Extract<MachineCommand, { do: "end" }>): void {
    handle.endIndex = ++this.#ends
    const change = this.#services.store.apply(handle.task.id, event, this.#services.clock.now())
    if (change && options.messages && ending.proven && !options.silent)
      this.#ports.answers.keep(change.after, { text: valueIn(change.after, answerText(options.messages)), gone: false })
  }

  #ended({ task, run }: TaskHandle, silent: boolean): void {
    const { toaster, opencode, clock, store } = this.#services
    if (!silent && !isUnattended(task) && !isMember(task)) toaster.add(endToast(task))
    opencode.log("info", "task ended", {
      task: task.id,
      session: task.sessionID,
      description: task.description,
      model: task.model && modelKey(task.model),
      status: task.status,
      reason: task.outcome?.reason?.code,
      duration: elapsed(task, clock.now()),
      tokens: task.outcome && billedTokens(task.outcome.usage),
    })
    // Any end except completion stops the task's children. A group's end always stops its other members, since nobody
    // needs them.
    if (task.status !== "completed" || task.group)
      for (const { id } of store.ofParent(task.sessionID))
        this.deliver(id, { type: "end", ending: task.group ? notNeeded(task) : PARENT_ENDED, options: { wake: false } })
    this.#notifyGroup(task)
    if (!silent) this.announcing.wakeAgainBeside(task, run?.closing?.options.maybeDelivered)
    this.#ports.freed()
  }

  /** Tells a group that one of its members has changed, so that the group decides its next step. */
  #notifyGroup({ member }: Task): void {
    if (member) this.deliver(member.of, { type: "members" })
  }

  /** Lets the task's ancestors check their budgets again. Near a shared limit, all active runs check their limits. */
  #share(task: Task): void {
    const { ledger } = this.#ports
    ledger.once(() => {
      // Far from every shared limit, the spending of one run concerns only its ancestors.
      const others = ledger.isNear(task) ? this.#services.store.active() : this.#above(task)
      for (const { id } of others) if (id !== task.id) this.deliver(id, { type: "spending" })
    })
  }

  /** Ancestors of the task, nearest first. */
  #above({ parentID }: Task): readonly Task[] {
    const parent = this.#services.store.bySession(parentID)
    return parent && !this.#services.store.isForeign(parent.id) ? [parent, ...this.#above(parent)] : []
  }

  #until(taskID: string, until: (run: ActiveRun | undefined) => boolean): Promise<void> {
    return this.#services.store.handle(taskID)?.until(until) ?? Promise.resolve()
  }
}

/** Events that change nothing but deadlines: after them, no new tick is computed. */
const FLEETING: readonly OpencodeEvent["type"][] = ["text-delta", "thinking", "text", "updated"]

const isFleeting = (input: Input): boolean => input.type === "event" && FLEETING.includes(input.event.type)
