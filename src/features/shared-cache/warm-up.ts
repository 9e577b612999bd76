import type { Block, BlockSource } from "../../core/blocks.ts"
import { modelKey } from "../../core/limits.ts"
import { isActive, isQueued, isUnattended, type Model, type Task, type Usage } from "../../core/task.ts"
import type { Parts } from "../../runtime/parts.ts"

/** Providers keep a prefix for at least five minutes; within this time it counts as cached. */
const KEPT_MS = 240_000

/**
 * Holds fresh tasks of one message with equal agent and model until the first one's answer begins, so that their common
 * prefix is cached. Applies only to models that use a cache, and not shortly after a similar request.
 */
export class Holding implements BlockSource {
  readonly #parts: Parts
  readonly #reschedule: () => void
  /** Models for which this process has seen cache tokens. */
  readonly #cached = new Set<string>()
  /** Time of the last answer's beginning, by agent and model. */
  readonly #began = new Map<string, number>()

  constructor(parts: Parts, reschedule: () => void) {
    this.#parts = parts
    this.#reschedule = reschedule
  }

  /** A task is held behind another from when it is about to be made, or never. */
  blocks(task: Task): Block | undefined {
    const { store, clock } = this.#parts
    const behind = store.handle(task.id) ? task.run.heldBehind : this.#leaderOf(task)
    if (behind === undefined) return undefined
    const until = store.run(task.id)?.warmUpUntil
    const isOver = !this.#isComing(behind) || !this.#isWorthIt(task) || (until !== undefined && until <= clock.now())
    return isOver ? undefined : { by: "shared cache", behind, until, keepsSlot: true }
  }

  /** An answer of any session has ended. */
  told(model: Model, { cacheRead, cacheWrite }: Usage): void {
    if (cacheRead + cacheWrite > 0) this.#cached.add(modelKey(model))
  }

  /** A task's agent began to answer. */
  began(task: Task): void {
    if (!task.model) return
    this.#began.set(kindOf(task), this.#parts.clock.now())
    this.#reschedule()
  }

  #leaderOf(task: Task): string | undefined {
    const { store, options } = this.#parts
    if (options.cacheHold === 0 || !isFresh(task)) return undefined
    const others = [...store.active(), ...store.making()]
    return others.find((other) => isFresh(other) && !isQueued(other) && isSibling(task, other))?.id
  }

  #isComing(id: string): boolean {
    const leader = this.#parts.store.handle(id)?.task
    return leader !== undefined && isActive(leader)
  }

  #isWorthIt(task: Task): boolean {
    const { model } = task
    const since = this.#parts.clock.now() - (this.#began.get(kindOf(task)) ?? Number.NEGATIVE_INFINITY)
    return model !== undefined && this.#cached.has(modelKey(model)) && since >= KEPT_MS
  }
}

/** With nothing of a past or a place of its own. */
const isFresh = (task: Task): boolean => {
  const { fork, place, team, part, run } = task
  const isFirst = run.generation === 0 && run.after === undefined
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
