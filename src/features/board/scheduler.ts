import { listed, messageOf } from "../../core/errors.ts"
import type { Clock, OpencodeApi } from "../../core/ports.ts"
import { Ticker } from "../../lib/background.ts"
import { formatTime } from "../../lib/format.ts"
import type { Claim } from "../../lib/lock.ts"
import { SerialQueue } from "../../lib/promises.ts"
import { count } from "../../lib/text.ts"
import type { BoardOptions } from "./options.ts"
import type { PurseManager } from "./purse/purses.ts"
import type { BoardCommand } from "./rules/command.ts"
import { quietUntil } from "./rules/purse.ts"
import { textOf } from "./rules/verify.ts"
import { type Runs, resultOf } from "./runs.ts"
import type { Schedule } from "./schedule.ts"
import { type BoardState, findTask, isUnverified, runStateOf } from "./state.ts"
import { beginOf, dueTasks, isInFlight, isUnrecorded, type StatusContext, wantsRun } from "./status.ts"
import type { Store, Watch } from "./store/store.ts"
import { type BoardTask, headOf } from "./task.ts"

/** Shows toasts about what only a user can decide or mend, each once per process, or once while it lasts. */
class BoardToasts {
  readonly #opencode: Pick<OpencodeApi, "toast" | "log">
  readonly #said = new Set<string>()
  /** Why the last read failed. */
  #problem?: string

  constructor(opencode: Pick<OpencodeApi, "toast" | "log">) {
    this.#opencode = opencode
  }

  /** Shows a toast about unverified or lost tasks that no toast has reported yet. */
  tell(state: BoardState): void {
    this.#tellOutside(state)
    if (state.tasks.length === 0 && state.lost.length > 0) this.#tellLost(state)
  }

  /** Shows a toast if the board cannot be read, because no task begins and no purse ends before it can be. */
  async watch(read: Promise<BoardState>): Promise<BoardState> {
    try {
      const state = await read
      this.#problem = undefined
      return state
    } catch (error) {
      const text = messageOf(error)
      if (text !== this.#problem) this.#say(text)
      this.#problem = text
      throw error
    }
  }

  #tellOutside(state: BoardState): void {
    const waiting = state.tasks.filter(({ id, status }) => status === "active" && isUnverified(state, id))
    const news = waiting.filter((task) => this.#isNew(`${task.id} ${textOf(task)}`))
    if (news.length === 0) return
    const [first] = news
    const what =
      first && news.length === 1
        ? `${headOf(first)} was written or changed outside the board`
        : `${count(news.length, "task")} were written or changed outside the board (${listed(news.map(({ id }) => `#${id}`))})`
    this.#say(`${what}. Nothing starts before you have looked and started it: /board.`)
  }

  #tellLost({ lost }: BoardState): void {
    if (!this.#isNew(JSON.stringify(lost.map(({ id }) => id)))) return
    const isOne = lost.length === 1
    this.#say(
      `The board's file has gone, with ${count(lost.length, "open task")}. A copy is kept: /board brings ${isOne ? "it" : "them"} back.`,
    )
  }

  #isNew(what: string): boolean {
    if (this.#said.has(what)) return false
    this.#said.add(what)
    return true
  }

  #say(message: string): void {
    this.#opencode.log("warn", message)
    this.#opencode.toast({ title: "Board", message, variant: "warning" })
  }
}

/** A round that begins later than this counts as missed, and a toast says so. */
const LATE_MS = 120_000

/** Starts the rounds of the board's schedule. */
class RoundTimer {
  readonly #ports: Pick<SchedulerPorts, "schedule" | "clock" | "opencode">
  /**
   * Time from which rounds are counted while the file has no valid last round, for example after the clock was set
   * back.
   */
  #countedFrom = Number.POSITIVE_INFINITY

  constructor(ports: Pick<SchedulerPorts, "schedule" | "clock" | "opencode">) {
    this.#ports = ports
  }

  /** Starts a round if one is due. */
  async beginDue(state: BoardState, begin: () => Promise<unknown>): Promise<void> {
    const { clock, schedule } = this.#ports
    const now = clock.now()
    // A purse starts tasks by itself: rounds during its time are skipped, not made up for. A purse whose time is over is
    // there until the look that follows.
    if (state.purse || quietUntil(state, now) !== undefined) return
    const ended = Date.parse(state.quiet?.until ?? "")
    const due = schedule.next(Math.max(ended <= now ? ended : 0, this.#last(state.tick, now)))
    if (due === undefined || due > now) return
    await begin()
    if (now - due > LATE_MS) this.#sayMissed(due, now)
  }

  /** Time of the last round. Without a valid one, rounds count from now on. */
  #last(tick: string | undefined, now: number): number {
    const parsed = tick === undefined ? Number.NaN : Date.parse(tick)
    // A small correction of the clock must not repeat a round.
    const isTrue = parsed <= now + LATE_MS
    this.#countedFrom = isTrue ? Number.POSITIVE_INFINITY : Math.min(this.#countedFrom, now)
    return isTrue ? parsed : this.#countedFrom
  }

  #sayMissed(due: number, now: number): void {
    const { opencode } = this.#ports
    const message = `The round of ${formatTime(due, now)} was missed; it is made up for now.`
    opencode.log("info", message)
    opencode.toast({ title: "Board", message, variant: "info" })
  }
}

/** Prompt of every board run. Everything about the single task is in the `<Task>` block of the system prompt. */
const TASK_WORK_PROMPT = `Work on the task of this thread. It stands in the <Task> block of your system prompt, as it is now.

1. Read the block: what is asked, which steps are done, what came back.
2. If there is no plan, make one with tasks_update_steps: a few steps, each with a short title.
3. Before you pass a step that has a subtask, look at that with tasks_get_task. If it is done, use what it left and mark the step with tasks_update_step. If it is still open, do not do its work yourself. If it was cancelled, do the step otherwise or give it away again.
4. Work on the next open step, and mark it when it is done. Go on with the next one as long as you can.
5. A step that another agent would do better: tasks_create_subtask. You are woken when it has ended; end your turn if you have nothing else to do.
6. Where only a person can decide or help: tasks_notify_user, say precisely what you need, and end your turn.
7. When everything is done: leave what others need to know where they look for it, in the details of a step, in the description or as a resource. Then tasks_complete_task.

Nobody reads along here. Do not ask in your answer, and do not start work that is not part of this task.`

/**
 * Interval at which the scheduler checks the lease, the files and the clock. So another process takes over from a dead
 * one within a minute.
 */
const HEARTBEAT_MS = 20_000

export type SchedulerPorts = {
  readonly store: Pick<Store, "read" | "look" | "exists" | "watch" | "lease" | "isLeased" | "find">
  readonly runs: Runs
  readonly opencode: Pick<OpencodeApi, "toast" | "log">
  readonly clock: Clock
  readonly schedule: Schedule
  readonly options: Pick<BoardOptions, "maxConcurrentRuns">
  /**
   * `isHere`: whether this instance serves the project's main folder, so that it may run tasks. `wake`: makes OpenCode
   * load an instance that does.
   */
  readonly mainFolder: { readonly isHere: boolean; readonly wake: () => Promise<void> }
  readonly statusContext: () => Promise<StatusContext>
  readonly purse: Pick<PurseManager, "look" | "pay" | "nextLook">
  readonly change: (command: BoardCommand) => Promise<unknown>
  /** Returns the existing thread of a task, or creates one. */
  readonly threadOf: (task: BoardTask) => Promise<string>
  /** Called when tasks or states may have changed. */
  readonly changed: () => void
}

/**
 * Runs the board's tasks. A lease makes sure that only one process does so, and each look compares the wakes in the
 * file with the runs of the manager: after every change and at each heartbeat.
 */
export class BoardScheduler {
  readonly #ports: SchedulerPorts
  /** Tasks with active runs, by thread. `byClock`: whether a round woke the task. */
  readonly #flights = new Map<string, { readonly id: string; readonly byClock: boolean }>()
  #lease?: Claim
  /** Watches the board's folder, or the nearest existing parent. */
  #watcher?: Watch
  readonly #notices: BoardToasts
  readonly #rounds: RoundTimer
  #exists = false
  readonly #ticker: Ticker
  #beating?: Promise<void>
  readonly #lookQueue = new SerialQueue()
  /** A look that has not begun yet. */
  #nextLook?: Promise<void>
  #stopped = false
  /** Next time at which a purse opens or ends, in ms. */
  #purseDue = Number.POSITIVE_INFINITY

  constructor(ports: SchedulerPorts) {
    this.#ports = ports
    this.#notices = new BoardToasts(ports.opencode)
    this.#rounds = new RoundTimer(ports)
    this.#ticker = new Ticker(ports.clock, () => this.beat())
    ports.runs.listen(() => {
      this.look()
      ports.changed()
    })
  }

  /** Whether this process is the one that runs the board's tasks. */
  get leads(): boolean {
    return this.#lease !== undefined
  }

  /** Resolves after the first look. Never rejects. */
  start(): Promise<void> {
    return this.beat()
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#ticker.stop()
    await this.#beating
    await this.look()
    this.#unwatch()
    await this.#lease?.release()
    this.#lease = undefined
  }

  /** Does one step of the timer: checks the lease, the clock and the board. Never rejects. */
  beat(): Promise<void> {
    this.#beating ??= this.#beat().finally(() => {
      this.#beating = undefined
    })
    return this.#beating
  }

  async #beat(): Promise<void> {
    try {
      await this.#lookAround()
    } catch (error) {
      this.#ports.opencode.log("warn", "the board could not be looked at", { error: messageOf(error) })
    }
    if (!this.#stopped) this.#ticker.at(this.#nextBeat())
  }

  /** Called after this process has changed the board: starts runs that the change makes due. Never rejects. */
  async follow(): Promise<void> {
    if (this.#lease) return this.look()
    // The first change creates the board's folder, which the scheduler has not seen yet.
    if (!this.#exists) await this.beat()
  }

  /**
   * Starts due runs and stops runs that are no longer wanted. Calls during a look cause one more look; never rejects.
   */
  look(): Promise<void> {
    this.#nextLook ??= this.#lookQueue.take(async () => {
      this.#nextLook = undefined
      try {
        if (this.#lease && !this.#stopped) await this.#look()
      } catch (error) {
        this.#ports.opencode.log("warn", "the board could not be worked on", { error: messageOf(error) })
      }
    })
    return this.#nextLook
  }

  async #lookAround(): Promise<void> {
    const { store, mainFolder, change, changed } = this.#ports
    if (this.#stopped) return
    const exists = await store.exists()
    // While the board's folder is missing, another parent may have become the nearest one: the watch is set anew.
    if (!exists || !this.#exists) this.#unwatch()
    if (exists !== this.#exists) changed()
    this.#exists = exists
    this.#watcher ??= store.watch(() => {
      void (this.#lease && this.#exists ? this.look() : this.beat())
      if (this.#exists) changed()
    })
    if (!exists) {
      if (mainFolder.isHere) this.#notices.tell(await store.look())
      // If the file has gone, its tasks' runs are stopped and an open purse ends.
      if (this.#lease) await this.look()
      return
    }
    if (!mainFolder.isHere) {
      if (!(await store.isLeased())) await mainFolder.wake()
      return
    }
    await this.#holdLease()
    if (!this.#lease) return
    await this.#rounds.beginDue(await this.#notices.watch(store.read()), () => change({ type: "tick" }))
    await this.look()
  }

  #unwatch(): void {
    this.#watcher?.close()
    this.#watcher = undefined
  }

  async #holdLease(): Promise<void> {
    const { store, runs, opencode } = this.#ports
    if (this.#lease) {
      if (await this.#lease.holds()) return this.#lease.renew()
      this.#lease = undefined
    }
    const lease = await store.lease()
    if (!lease) return
    await runs.ready()
    // Runs of the previous leader must be known, so that none starts twice.
    await runs.refresh()
    if (this.#stopped) return lease.release()
    this.#lease = lease
    opencode.log("info", "this process runs the board's tasks")
  }

  async #look(): Promise<void> {
    const { store, options } = this.#ports
    await this.#recordEnds(await this.#notices.watch(store.read()))
    const state = await store.read()
    this.#notices.tell(state)
    const flights = new Map(this.#flights)
    await this.#stopWhatIsOver(state)
    const context = await this.#ports.statusContext()
    const present = await this.#recordRefusals(state, context)
    const most = options.maxConcurrentRuns || Number.POSITIVE_INFINITY
    const isPaused = (sessionID: string) => this.#ports.runs.of(sessionID)?.pause !== undefined
    const clockBusy = [...this.#flights].some(([sessionID, { byClock }]) => byClock && !isPaused(sessionID))
    const { state: now, mayBegin } = await this.#ports.purse.look(present, context, flights)
    this.#purseDue = this.#ports.purse.nextLook(now, this.#ports.clock.now())
    if (!mayBegin) return
    const due = dueTasks(now, context, { free: most - this.#busy(), clockBusy })
    for (const task of due) if (!this.#stopped) await this.#begin(now, task)
  }

  /** Number of slots in use. A paused run holds no slot. */
  #busy(): number {
    const { runs } = this.#ports
    return [...this.#flights.keys()].filter((sessionID) => runs.of(sessionID)?.pause === undefined).length
  }

  /** Records the end of each run once, including runs of earlier processes. */
  async #recordEnds(state: BoardState): Promise<void> {
    const { runs, change, clock } = this.#ports
    const now = new Date(clock.now()).toISOString()
    for (const task of state.tasks) {
      const run = task.threadId === undefined ? undefined : runs.of(task.threadId)
      if (!run || task.threadId === undefined) continue
      if (isInFlight(run)) {
        if (!this.#flights.has(task.threadId)) this.#flights.set(task.threadId, { id: task.id, byClock: false })
        continue
      }
      if (!isUnrecorded(run, runStateOf(state, task.id), now)) continue
      await change({ type: "ran", id: task.id, startedAt: beginOf(run), result: resultOf(run) })
    }
  }

  /** Records for which tasks the budget allows no run, and for which it allows one again. No run is tried for this. */
  async #recordRefusals(state: BoardState, context: StatusContext): Promise<BoardState> {
    const { runs, change, store } = this.#ports
    const due = state.tasks.filter((task) => wantsRun(state, task, context))
    const resting = state.tasks.filter(({ id }) => runStateOf(state, id).budget !== undefined)
    if (due.length + resting.length === 0) return state
    const refusal = await runs.refusals()
    const reasons = Object.fromEntries(
      due.flatMap(({ id, threadId }) => {
        const reason = refusal(threadId)
        return reason === undefined ? [] : [[id, reason] as const]
      }),
    )
    const isAsWritten = ({ id }: { id: string }) => runStateOf(state, id).budget === reasons[id]
    if (due.every(isAsWritten) && resting.every(isAsWritten)) return state
    await change({ type: "refused", reasons })
    return store.read()
  }

  async #stopWhatIsOver(state: BoardState): Promise<void> {
    const { runs, store } = this.#ports
    for (const [sessionID, { id }] of this.#flights) {
      const run = runs.of(sessionID)
      if (!run || !isInFlight(run)) {
        this.#flights.delete(sessionID)
        continue
      }
      const task = findTask(state, id)
      if (task?.status === "active" && task.threadId === sessionID) continue
      // A run may finish its answer if it has ended its task itself, or began before its task was completed. A queued
      // run is stopped.
      const ended = task || run.state === "queued" ? undefined : await store.find(id)
      if (ended?.archivedIn === sessionID || (ended?.status === "done" && beginOf(run) <= ended.archivedAt)) continue
      await runs.stop(sessionID)
      this.#flights.delete(sessionID)
    }
  }

  async #begin(state: BoardState, task: BoardTask): Promise<void> {
    const { runs, clock, change, opencode, store, threadOf } = this.#ports
    const { id } = task
    const byClock = runStateOf(state, id).wake?.cause === "clock"
    let sessionID = ""
    try {
      sessionID = await threadOf(task)
      // A user may have started a run in this thread in another process.
      await runs.refresh()
      // The task may have ended, or changed its owner, during the creation of its thread.
      const now = await store.read()
      const present = findTask(now, id)
      if (present?.status !== "active" || present.threadId !== sessionID || isUnverified(now, id)) return
      if (isInFlight(runs.of(sessionID))) return
      this.#flights.set(sessionID, { id, byClock })
      await this.#ports.purse.pay(id, sessionID)
      await runs.start({ sessionID, agent: present.owner, description: headOf(present), prompt: TASK_WORK_PROMPT })
      opencode.log("info", "a run of a board task has begun", { task: id, session: sessionID })
    } catch (error) {
      this.#flights.delete(sessionID)
      // Other runs have just used up the budget. The task has not failed, and another look records the refusal.
      if ((await runs.refusals())(sessionID) !== undefined) return void this.look()
      const startedAt = new Date(clock.now()).toISOString()
      await change({ type: "ran", id, startedAt, result: { kind: "failed", reason: messageOf(error) } })
    }
  }

  #nextBeat(): number {
    const { clock, schedule } = this.#ports
    const now = clock.now()
    const beat = now + HEARTBEAT_MS
    return this.#lease ? Math.min(beat, schedule.next(now) ?? beat, this.#purseDue) : beat
  }
}
