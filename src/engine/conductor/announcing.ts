import { batchProgress } from "../../core/batch.ts"
import { type Delivery, isOwed, isPart, isUnattended, type Task } from "../../core/task.ts"
import { notificationID } from "../../delivery/message.ts"
import type { Outbox } from "../../delivery/outbox.ts"
import type { Parts } from "../parts.ts"
import type { Circumstances } from "../run/active-run.ts"
import type { Entry, News } from "../tasks/entry.ts"
import { isToldLast, unwokenBeside } from "../tasks/news.ts"

/**
 * Has parents told of the ends of runs, in the order in which these ended while that is a matter of moments. None waits
 * for what is done to bring another's work home.
 */
export class Announcing {
  readonly #parts: Parts
  readonly #outbox: Outbox
  readonly #over: (task: Task) => void

  /** `over`: nothing is to be told of this run any more. */
  constructor(parts: Parts, outbox: Outbox, over: (task: Task) => void) {
    this.#parts = parts
    this.#outbox = outbox
    this.#over = over
  }

  /** How the end of a task's run is to be told: decided when it ends. */
  deliveryOf(task: Task, { silent, wake }: Circumstances): Delivery {
    const { store, options } = this.#parts
    if (silent || isUnattended(task) || isPart(task)) return { state: "none" }
    const before = batchProgress(task.batch, store.ofParent(task.parentID))
    const running = before.running - 1
    const handedOver = (store.entry(task.id)?.waiters.size ?? 0) > 0
    const wakes = options.wake === "each" || (options.wake === "last" && running === 0)
    const progress = { done: before.done + 1, total: before.total, running }
    return { state: "pending", wake: wakes && !handedOver && wake !== false, ...progress }
  }

  /** An end is to be told when its turn has come. */
  note({ endedAs }: Entry, { task, maybeTold }: Omit<News, "endedAs">): void {
    const household = this.#parts.store.household(task.parentID)
    household.news = [...household.news, { task, maybeTold, endedAs }]
  }

  /** Hands to the outbox what no earlier end of this parent's tasks holds back any more. */
  inOrder(parentID: string): void {
    const { store, options } = this.#parts
    const household = store.household(parentID)
    if (household.news.length === 0) return
    const entries = store.ofParent(parentID).flatMap(({ id }) => store.entry(id) ?? [])
    const awaited = entries.filter(({ run }) => run?.closing && !run.closing.posted && run.stage !== "merging")
    const first = Math.min(...awaited.map(({ endedAs }) => endedAs))
    const due = household.news.filter(({ endedAs }) => endedAs < first)
    household.news = household.news.filter((news) => !due.includes(news))
    for (const { task, maybeTold } of due.toSorted((a, b) => a.endedAs - b.endedAs)) {
      if (isToldLast(task, store, options.wake, (other) => this.#outbox.holds(other))) this.#rouse(task, maybeTold)
      if (isOwed(task)) this.#outbox.post(task, maybeTold)
      else this.#over(task)
    }
  }

  /** The task has ended or is forgotten: what wakes its parent in its place does so now. */
  rouseBeside(task: Task, maybeTold = false): void {
    const unwoken = unwokenBeside(task, this.#parts.store, this.#parts.options.wake)
    if (unwoken) this.#rouse(unwoken, maybeTold)
  }

  /** `maybeTold`: it ended in an earlier process. After a restart, whether its parent may be woken was decided there. */
  #rouse(task: Task, maybeTold: boolean): void {
    if (!maybeTold) this.#outbox.rouse(task)
  }

  /** Records how far the notification of a run has come. `handedOver`: the parent has the whole answer with it. */
  told(task: Task, state: "confirmed" | "abandoned", handedOver: boolean): Promise<void> {
    const { store, clock, journal, host } = this.#parts
    const { generation } = task.run
    const now = clock.now()
    if (handedOver && state === "confirmed" && store.get(task.id)?.run.generation === generation)
      store.apply(task.id, { type: "retrieved", at: now }, now)
    const change = store.apply(task.id, { type: "notified", generation, state }, now)
    this.#over(task)
    if (!change) return Promise.resolve()
    host.log("info", "task notified", {
      task: task.id,
      session: task.parentID,
      message: notificationID(host.messageID, task),
      state,
      handedOver,
    })
    // After a crash the parent's own messages tell what it was told: this write may wait.
    if (state !== "confirmed") return journal.save(change.after)
    journal.told(change.after)
    return Promise.resolve()
  }
}
