import { modelKey } from "../../core/limits.ts"
import { isActive, isUnattended, type Model, type Task, type Usage } from "../../core/task.ts"
import type { Dispatcher } from "../../runtime/dispatcher.ts"
import type { Parts } from "../../runtime/parts.ts"

/** Providers keep what a request begins with for five minutes and more; one that began then is as good as there. */
const KEPT_MS = 240_000

/**
 * Fresh tasks of one message with the same agent and model begin their requests alike: the first is asked, and the
 * others are held until its answer begins, so that the provider's cache has their common part by then. Only where that
 * wins something: the model has told of a cache, and nothing of the kind has begun of late.
 */
export class Holding {
  readonly #parts: Parts
  readonly #dispatcher: Dispatcher
  /** Models of which this process has been told cache tokens. */
  readonly #cached = new Set<string>()
  /** When an answer last began, by agent and model. */
  readonly #began = new Map<string, number>()

  constructor(parts: Parts, dispatcher: Dispatcher) {
    this.#parts = parts
    this.#dispatcher = dispatcher
  }

  /** The task behind which a task that is about to be made is held; undefined where it is asked at once. */
  leaderOf(task: Task): string | undefined {
    const { store, options } = this.#parts
    if (options.cacheHold === 0 || !isFresh(task) || !this.#isWorthIt(task)) return undefined
    return [...store.active(), ...store.making()].find((other) => isFresh(other) && isSibling(task, other))?.id
  }

  /** An answer has ended, of any session. */
  told(model: Model, { cacheRead, cacheWrite }: Usage): void {
    if (cacheRead + cacheWrite > 0) this.#cached.add(modelKey(model))
  }

  /** The answer of a task's agent begins. */
  began(task: Task): void {
    if (!task.model) return
    this.#began.set(kindOf(task), this.#parts.clock.now())
    this.review()
  }

  /** Lets those go of which the first has begun to answer, or will not. */
  review(): void {
    const { store } = this.#parts
    const making = new Set(store.making().map(({ id }) => id))
    for (const task of store.active()) {
      const { heldBehind } = task.run
      if (heldBehind === undefined) continue
      const leader = store.get(heldBehind)
      const isComing = making.has(heldBehind) || (leader !== undefined && isActive(leader))
      if (!isComing || !this.#isWorthIt(task)) this.#dispatcher.deliver(task.id, { type: "let go" })
    }
  }

  #isWorthIt(task: Task): boolean {
    const { model } = task
    const since = this.#parts.clock.now() - (this.#began.get(kindOf(task)) ?? Number.NEGATIVE_INFINITY)
    return model !== undefined && this.#cached.has(modelKey(model)) && since >= KEPT_MS
  }
}

/** With its slot, and with nothing of a past or a place of its own. */
const isFresh = (task: Task): boolean => {
  const { fork, place, team, part, run } = task
  const isFirst = run.generation === 0 && run.startedAt !== undefined && run.after === undefined
  return isFirst && !team && !part && fork === undefined && place === undefined && !isUnattended(task)
}

const isSibling = (task: Task, other: Task): boolean =>
  other.id !== task.id &&
  other.run.heldBehind === undefined &&
  other.parentID === task.parentID &&
  other.parentMessageID === task.parentMessageID &&
  kindOf(other) === kindOf(task)

const kindOf = ({ agent, model }: Task): string =>
  JSON.stringify([agent, model && modelKey(model), model?.variant ?? ""])
