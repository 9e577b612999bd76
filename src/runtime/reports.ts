import { CallError, messageOf } from "../core/errors.ts"
import type { MemberName } from "../core/feature.ts"
import { memberName, memberNames, plannedIn } from "../core/group.ts"
import { whenOf } from "../core/pause.ts"
import { isActive, isMember, type Task } from "../core/task.ts"
import { oneLine } from "../lib/text.ts"
import type { Report, TaskView } from "../present/view.ts"
import type { Archive } from "./archive.ts"
import type { Engine } from "./engine.ts"
import { resumesWithoutPrompt } from "./launch/resuming.ts"
import { STOPPED_BY_USER } from "./requests.ts"
import { findNamedBatch, findTask, viewOf } from "./tasks/view.ts"

/** Tolerance for clocks of other processes and pending writes, in ms. */
const SLACK_MS = 5000

/**
 * Finds tasks and members, and reports on them: to the sessions that ask for their own, and to a user who looks at the
 * whole project. Reading all tasks does not mark them as retrieved.
 */
export class Reports {
  readonly #engine: Engine
  readonly #archive: Archive
  #refreshedAt: number

  constructor(engine: Engine, archive: Archive) {
    this.#engine = engine
    this.#archive = archive
    this.#refreshedAt = engine.clock.now()
  }

  /** Finds a task by id, session, prefix of either, or member name. Throws a `CallError` with the possible names. */
  async find(reference: string, own: readonly Task[]): Promise<Task> {
    const wanted = reference.trim()
    const [, group, number] = /^(.+)\/(\d{1,6})$/.exec(wanted) ?? []
    if (group !== undefined) return this.#member(findTask(group, own), Number(number) - 1)
    const isOwn = own.some(({ id, sessionID }) => id.startsWith(wanted) || sessionID.startsWith(wanted))
    return (isOwn ? undefined : await this.#byID(wanted, own)) ?? findTask(wanted, own)
  }

  /** Completed members of a group, in order. */
  async completed(group: Task): Promise<readonly Task[]> {
    const stored = this.#stored(group)
    const known = new Set(stored.map(({ id }) => id))
    const noted = (await this.#noted(group)).filter(({ id }) => !known.has(id))
    const read = await Promise.all(noted.map((each) => this.#read(group, each)))
    return [...stored, ...read.flatMap((task) => task ?? [])]
      .filter(({ status }) => status === "completed")
      .toSorted((one, other) => (one.member?.nth ?? 0) - (other.member?.nth ?? 0))
  }

  async #member(group: Task, nth: number): Promise<Task> {
    const { id, group: team } = group
    if (!team) throw new CallError(`Task ${id} is not a group of several: leave out what follows its id.`)
    const stored = this.#stored(group).findLast(({ member }) => member?.nth === nth)
    const noted = stored ? undefined : (await this.#noted(group)).find((each) => each.nth === nth)
    const found = stored ?? (noted && (await this.#read(group, noted)))
    if (found) return found
    if (!noted && nth >= 0 && nth < plannedIn(team)) throw notBegun(group, nth)
    const why = noted ? "is gone with its session" : "is not there"
    throw new CallError(`${memberName(id, nth)} ${why}. There are: ${memberNames(id, team)}.`)
  }

  async #byID(wanted: string, own: readonly Task[]): Promise<Task | undefined> {
    const is = ({ id, sessionID }: { readonly id: string; readonly sessionID: string }) =>
      id === wanted || sessionID === wanted
    const groups = own.filter(({ group }) => group)
    for (const group of groups) {
      const stored = this.#stored(group).find(is)
      if (stored) return stored
    }
    for (const group of groups) {
      const noted = (await this.#noted(group)).find(is)
      if (noted) return this.#read(group, noted)
    }
    return undefined
  }

  #stored(group: Task): readonly Task[] {
    return this.#engine.store.membersOf(group).map(({ task }) => task)
  }

  /** Members of a group by its files or its result, because their records are not read at the start. */
  async #noted(task: Task): Promise<readonly MemberName[]> {
    const { group, outcome } = task
    const { rows = [] } = outcome?.group ?? {}
    const named = rows.flatMap(({ task: id, session: sessionID }, nth) =>
      id && sessionID ? [{ nth, id, sessionID }] : [],
    )
    const work = await this.#engine.groupKindOf(task)?.work()
    return (group && (await work?.rows?.(group, this.#engine.results)))?.members ?? named
  }

  /**
   * Reads the member's own record, if it is verified. The record must name the group: anybody can write a group's file,
   * and could name the task of another conversation there.
   */
  async #read(group: Task, { id, sessionID }: MemberName): Promise<Task | undefined> {
    const { task } = (await this.#engine.opencode.session(sessionID))?.record ?? {}
    return task?.id === id && task.member?.of === group.id ? task : undefined
  }

  /**
   * Returns a task or member, with its answer if it has ended. `block`: longest wait for the end, in ms. `isShown`: the
   * caller shows the answer, so it counts as retrieved.
   */
  async report(
    reference: string,
    sessionID: string,
    block: number,
    signal?: AbortSignal,
    isShown = true,
  ): Promise<Report> {
    const { store } = this.#engine
    const found = await this.find(reference, store.ofParent(sessionID))
    const { pause, at } = this.#view(found)
    // Do not wait for a task whose pause is longer than the wait: the task will not end during it.
    const goesOnIn = (pause && whenOf(pause, at)?.in) ?? 0
    const waits = block > 0 && goesOnIn <= block
    if (waits) await this.#wait(found, block, signal)
    // Members of earlier processes have only a record.
    const seen = store.get(found.id) ?? (found.member ? found : undefined)
    if (!seen) throw new CallError(`Task ${found.id} was cleared meanwhile. Its answer is gone; launch a new task.`)
    // Wait until the session is stopped: only then OpenCode has stored the rest of an aborted answer.
    await this.#engine.dispatcher.quiet(found.id)
    const task = store.get(found.id) ?? seen
    if (isActive(task))
      return {
        view: this.#view(task),
        may: this.#engine.options,
        members: store.membersOf(task),
        ...(waits && { waited: block }),
      }
    const { text: answer, gone } = await this.#engine.answers.of(task)
    // Before the diff is read: a notification that is sent meanwhile does not repeat a retrieved answer.
    if (isShown) this.#retrieved(task)
    const workDiff = await this.#archive.diffOf(task)
    return {
      view: this.#view(task),
      answer,
      gone,
      may: this.#engine.options,
      shown: workDiff,
      members: store.membersOf(task),
    }
  }

  /**
   * Reports of a task, or of all tasks of a batch: of several, one that fails leaves the others, and `retrieved` has to be
   * called for those that are shown.
   */
  async reports(reference: string, sessionID: string, block: number, signal?: AbortSignal): Promise<readonly Report[]> {
    const batch = findNamedBatch(reference, this.#engine.store.ofParent(sessionID))
    const [first, ...others] = batch
    if (others.length === 0) return [await this.report(first?.id ?? reference, sessionID, block, signal)]
    return Promise.all(
      batch.map((task) =>
        this.report(task.id, sessionID, block, signal, false).catch((error: unknown) => this.#failed(task, error)),
      ),
    )
  }

  #failed(task: Task, error: unknown): Report {
    const unread = `Its answer could not be read (${oneLine(messageOf(error))}).`
    const again = `superagents_output(task_id="${task.id}") tries it again.`
    return { view: this.#view(task), error: error instanceof CallError ? error.message : `${unread} ${again}` }
  }

  /** Called with reports that the caller has shown: their answers count as retrieved. */
  retrieved(reports: readonly Report[]): void {
    for (const { view, answer } of reports) if (answer !== undefined) this.#retrieved(view.task)
  }

  /** Does nothing where the task was resumed since. */
  #retrieved({ id, run }: Task): void {
    const { store, clock, journal } = this.#engine
    if (store.get(id)?.run.generation !== run.generation) return
    const now = clock.now()
    const change = store.apply(id, { type: "retrieved", at: now }, now)
    if (change) journal.saveLater(change.after)
  }

  /**
   * Resolves when the run has ended, after `ms`, or on `signal`. Meanwhile the end does not wake the parent, because
   * the waiting call returns the answer.
   */
  #wait(task: Task, ms: number, signal?: AbortSignal): Promise<void> {
    const handle = this.#engine.store.handle(task.id)
    if (!handle || !isActive(task) || signal?.aborted) return Promise.resolve()
    return new Promise<void>((resolve) => {
      const finish = () => {
        handle.waiters.delete(finish)
        cancelTimer()
        signal?.removeEventListener("abort", finish)
        resolve()
      }
      const cancelTimer = this.#engine.clock.after(ms, finish)
      signal?.addEventListener("abort", finish)
      handle.waiters.add(finish)
    })
  }

  /** Reads tasks that other processes launched since the last call. Never rejects. */
  async refresh(): Promise<void> {
    const since = this.#refreshedAt - SLACK_MS
    this.#refreshedAt = this.#engine.clock.now()
    await this.#engine.recovery.discover(since)
    await this.#engine.recovery.look()
  }

  /** Ids of all tasks, oldest first, with those of other processes. */
  ids(): readonly string[] {
    const { store } = this.#engine
    const tasks = store
      .all()
      .filter((task) => !isMember(task))
      .sort((a, b) => a.createdAt - b.createdAt)
    return tasks.map(({ id }) => id)
  }

  list(): readonly TaskView[] {
    return this.ids().flatMap((id) => this.get(id) ?? [])
  }

  get(id: string): TaskView | undefined {
    const task = this.#engine.store.get(id)
    return task && this.#view(task)
  }

  isForeign(id: string): boolean {
    return this.#engine.store.isForeign(id)
  }

  /** Text of a task's last run, or the latest text of a running task. Rejects with an `OpencodeError`. */
  async answer(id: string): Promise<string> {
    const view = this.get(id)
    if (!view) return ""
    return isActive(view.task) ? view.lastText : (await this.#engine.answers.of(view.task)).text
  }

  /**
   * Diff of the changes that an ended task made in its own place. Undefined without a diff, or where it cannot be read.
   */
  async patch(id: string): Promise<string | undefined> {
    const task = this.#engine.store.get(id)
    return task && (await this.#archive.diffOf(task))?.diff
  }

  /** Stops a running task for the user; its parent is told. False where there was nothing to stop. */
  async cancel(id: string): Promise<boolean> {
    const task = this.#engine.store.get(id)
    if (!task || this.isForeign(id)) return false
    const ended = this.#engine.dispatcher.end(id, task.run.generation, STOPPED_BY_USER)
    if (ended) await this.#engine.dispatcher.closed(id)
    return ended
  }

  /**
   * `listener` is called with the id of a task that may have changed; it must not throw. Returns the unsubscribe
   * function.
   */
  subscribe(listener: (id: string) => void): () => void {
    const { store } = this.#engine
    // A member's change is shown with its group.
    return store.subscribe((id) => listener(store.get(id)?.member?.of ?? id))
  }

  #view(task: Task): TaskView {
    return viewOf(task, this.#engine, this.#engine.waits)
  }
}

function notBegun(group: Task, nth: number): CallError {
  const { id, status } = group
  const name = memberName(id, nth)
  if (isActive(group)) return new CallError(`${name} has not begun yet.`)
  const resume = resumesWithoutPrompt(group) ? ` superagents_task(resume="${id}") runs what is not done.` : ""
  return new CallError(`${name} never began: ${id} has ended (${status}).${resume}`)
}
