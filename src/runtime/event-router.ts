import { factsOf } from "../core/outcome.ts"
import type { OpencodeEvent, Undone } from "../core/ports.ts"
import { DELETED } from "../core/run/events.ts"
import { hasPendingNotification, isActive, isQueued, type Task } from "../core/task.ts"
import { redoToast, undoneToast } from "../present/toasts.ts"
import type { TaskCanceller } from "./cancel.ts"
import { PARENT_ENDED } from "./dispatcher.ts"
import type { Engine } from "./engine.ts"
import type { Requests } from "./requests.ts"

/** Shows that a model was asked. A shell command of the user makes a session active, too, but asks none. */
const asksModel = (event: OpencodeEvent): boolean =>
  event.type === "began" ||
  (event.type === "active" && event.activity.type === "retry") ||
  (event.type === "error" && !event.error.aborted)

/** Routes events of OpenCode to the runs they concern. */
export class EventRouter {
  readonly #engine: Engine
  readonly #requests: Requests
  readonly #cancelling: TaskCanceller

  constructor(engine: Engine, requests: Requests, cancelling: TaskCanceller) {
    this.#engine = engine
    this.#requests = requests
    this.#cancelling = cancelling
  }

  /** Handles an event and never throws. An event of another agent's session costs only one or two look-ups. */
  take(event: OpencodeEvent): void {
    const { store, stopped } = this.#engine
    if (stopped.aborted) return
    const sessionID = event.type === "asked" ? event.ask.sessionID : event.sessionID
    if (event.type === "created") {
      if (event.parentID) store.adopt(sessionID, event.parentID)
      return
    }
    if (event.type === "error" && event.error.aborted) this.#parentStopped(sessionID, true)
    if (event.type === "active") store.becameActive(sessionID)
    if (asksModel(event) && !this.#engine.outbox.isWaking(sessionID)) this.#parentStopped(sessionID, false)
    if (event.type === "idle") this.#engine.outbox.parentIdle(sessionID)
    if (event.type === "updated") this.#engine.outbox.parentChanged(sessionID)
    if (event.type === "updated") this.#undone(sessionID, event.undone)
    if (event.type === "deleted") return this.#sessionDeleted(sessionID)
    const task = store.responsibleFor(sessionID)
    const isOurs = task !== undefined && !store.isForeign(task.id)
    const isOwn = isOurs && task.sessionID === sessionID
    if (isOurs && event.type === "tool" && event.changed) this.#changed(task, event.changed)
    if (isOwn && event.type === "updated" && event.request) this.#requests.take(task, event.request)
    if (isOurs && event.type === "answered") {
      if (this.#engine.dispatcher.hasCounted(task.id, event.messageID)) return
      if (!isOwn || !isActive(task) || isQueued(task)) this.#engine.dispatcher.countBeside(task, event)
    }
    // A session that only represents a remote session runs nothing, so its events do not reach the run.
    const isHere = isOurs && !this.#engine.places.outlives(task)
    if (isHere && !isQueued(task) && (isActive(task) || event.type === "asked")) {
      this.#engine.dispatcher.deliver(task.id, { type: "event", event })
      if (event.type === "began" && task.member) this.#engine.dispatcher.deliver(task.member.of, { type: "members" })
      store.noticed(task.id)
    }
    for (const body of this.#engine.bodies) body.onEvent?.(event, isHere && isOwn ? task : undefined)
  }

  /**
   * Records for a restart, in the tasks of this parent, that the user has stopped or continued the parent. The write is
   * delayed, because OpenCode also stops turns when OpenCode itself ends.
   */
  #parentStopped(sessionID: string, isStopped: boolean): void {
    const { store, journal, clock } = this.#engine
    if (!store.stopped(sessionID, isStopped)) return
    for (const task of store.ofParent(sessionID)) {
      if (store.isForeign(task.id) || (isStopped && !isActive(task) && !hasPendingNotification(task))) continue
      const at = clock.now()
      const change = store.apply(task.id, isStopped ? { type: "parent stopped", at } : { type: "parent continued" }, at)
      if (change) journal.saveSoon(change.after)
    }
  }

  /**
   * Tells the user which tasks still run and which changed files stay after an undo of the messages that launched the
   * tasks.
   */
  #undone(sessionID: string, undone: Undone | undefined): void {
    const { store, background } = this.#engine
    const tasks = store.ofParent(sessionID)
    if (tasks.length === 0) return
    const parent = store.parentState(sessionID)
    const { from: before } = parent.undone ?? {}
    if (before === undone?.from) return
    parent.undone = undone
    if (!undone) return
    const launched = tasks.filter(
      ({ parentMessageID: at }) => at >= undone.from && (before === undefined || at < before),
    )
    if (launched.length > 0) background.run("tell of an undo", () => this.#tellUndone(launched, undone))
  }

  async #tellUndone(launched: readonly Task[], { reset }: Undone): Promise<void> {
    const { opencode, store, toaster } = this.#engine
    const edits = async (task: Task): Promise<readonly string[]> => {
      const { place, outcome } = task
      if (place) return outcome?.work?.merge?.kind === "merged" ? outcome.work.files : []
      const below = await Promise.all(store.ofParent(task.sessionID).map(edits))
      const { filesChanged } = outcome ?? factsOf(await opencode.messagesSince(task.sessionID, task.run.promptID))
      return [...filesChanged, ...below.flat()]
    }
    const files = new Set((await Promise.all(launched.map(edits))).flat())
    const staying = [...files].filter((file) => !reset.some((each) => `/${file}`.endsWith(`/${each}`)))
    const running = launched.filter((task) => isActive(store.get(task.id) ?? task))
    if (running.length + staying.length > 0) toaster.add(undoneToast(running, staying))
  }

  /** Warns the user once that a redo would reset what an agent has changed since the undo. */
  #changed(task: Task, files: readonly string[]): void {
    const { store, toaster, opencode } = this.#engine
    for (let each: Task | undefined = task; each && !each.place; each = store.bySession(each.parentID)) {
      const parent = store.parentState(each.parentID)
      if (!parent.undone?.restores) continue
      parent.undone = { ...parent.undone, restores: false }
      const folder = `${opencode.folderOf(each.parentID)}/`
      const inFolder = files.map((file) => (file.startsWith(folder) ? file.slice(folder.length) : file))
      toaster.add(redoToast(task, inFolder))
    }
  }

  #sessionDeleted(sessionID: string): void {
    const { store, background } = this.#engine
    const task = store.bySession(sessionID)
    // The turn of a deleted session goes on until it is aborted, so end the run.
    if (task) this.#engine.dispatcher.end(task.id, task.run.generation, DELETED)
    this.#engine.outbox.parentDeleted(sessionID)
    store.forgetSession(sessionID)
    for (const own of store.ofParent(sessionID).reverse()) {
      this.#engine.dispatcher.end(own.id, own.run.generation, PARENT_ENDED, { silent: true })
      background.run("parent deleted", async () => {
        await this.#engine.dispatcher.closed(own.id)
        await this.#cancelling.forgetLost(own)
      })
    }
  }
}
