import type { Feature, FeatureBody, Runtime } from "../../core/feature.ts"
import { type Block, type Held, modelKey } from "../../core/limits.ts"
import type { OpencodeEvent } from "../../core/ports.ts"
import { isActive, isQueued, isUnattended, type Task } from "../../core/task.ts"
import { milliseconds, option, projectWins, type ValuesOf } from "../../options/spec.ts"

/** Time in which a prefix counts as cached, in ms. Providers keep a prefix for at least five minutes. */
const KEPT_MS = 240_000

/**
 * Holds fresh tasks of one message with equal agent and model until the first one's answer begins, so that their common
 * prefix is cached. Applies only to models that use a cache, and not shortly after a similar request.
 */
class CacheWarmUp implements FeatureBody {
  readonly #runtime: Runtime
  /** Models for which this process has seen cache tokens. */
  readonly #cached = new Set<string>()
  /** By agent and model: time at which the last answer began. */
  readonly #began = new Map<string, number>()

  constructor(runtime: Runtime) {
    this.#runtime = runtime
  }

  /** Block of a task that is held behind another. Whether a task is held is decided when it is about to be made. */
  blocks(task: Task): Block | undefined {
    const { store, clock } = this.#runtime
    const run = store.run(task.id)
    const held = run ? run.held : this.#heldBehindFirst(task)
    if (!held) return undefined
    const isOver = !this.#isComing(held.behind) || !this.#isWorthIt(task) || held.until <= clock.now()
    return isOver ? undefined : { by: "shared cache", ...held, keepsSlot: true }
  }

  onEvent(event: OpencodeEvent, task: Task | undefined): void {
    if (event.type === "answered" && event.model && event.usage.cacheRead + event.usage.cacheWrite > 0)
      this.#cached.add(modelKey(event.model))
    if (event.type !== "began" || !task?.model) return
    this.#began.set(kindOf(task), this.#runtime.clock.now())
    this.#runtime.reschedule()
  }

  #heldBehindFirst(task: Task): Held | undefined {
    const { store, clock, options } = this.#runtime
    if (options.cacheHold === 0 || !isFresh(task)) return undefined
    const mayLead = (other: Task) => isFresh(other) && !isQueued(other) && store.run(other.id)?.held === undefined
    const first = [...store.active(), ...store.making()].find((other) => mayLead(other) && isSibling(task, other))
    return first && { behind: first.id, until: clock.now() + options.cacheHold }
  }

  #isComing(id: string): boolean {
    const leader = this.#runtime.store.handle(id)?.task
    return leader !== undefined && isActive(leader)
  }

  #isWorthIt(task: Task): boolean {
    const { model } = task
    const since = this.#runtime.clock.now() - (this.#began.get(kindOf(task)) ?? Number.NEGATIVE_INFINITY)
    return model !== undefined && this.#cached.has(modelKey(model)) && since >= KEPT_MS
  }
}

/** True for the first run of a task outside of groups, without `after`, a fork or a place of its own. */
const isFresh = (task: Task): boolean => {
  const { fork, place, group, member, run } = task
  const isFirst = run.generation === 0 && run.after === undefined
  return isFirst && !group && !member && fork === undefined && place === undefined && !isUnattended(task)
}

const isSibling = (task: Task, other: Task): boolean =>
  other.id !== task.id &&
  other.parentID === task.parentID &&
  other.parentMessageID === task.parentMessageID &&
  kindOf(other) === kindOf(task)

const kindOf = ({ agent, model }: Task): string =>
  JSON.stringify([agent, model && modelKey(model), model?.variant ?? ""])

const options = {
  cacheHold: option(
    milliseconds,
    5000,
    "How long tasks with a common beginning wait for the first of them, so that the provider's cache is warm. 0: not at all.",
    projectWins,
  ),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

export const sharedCache: Feature = {
  name: "shared-cache",
  options,
  body: (runtime) => new CacheWarmUp(runtime),
}
