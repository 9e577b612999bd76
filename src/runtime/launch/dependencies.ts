import type { Block, BlockSource } from "../../core/blocks.ts"
import { batchKeyOf, stranded, waitsFor, whyNeverCompletes } from "../../core/dependencies.ts"
import { CallError } from "../../core/errors.ts"
import { nameOf } from "../../core/summary.ts"
import { isQueued, type Task } from "../../core/task.ts"
import { succeeds } from "../../lib/promises.ts"
import { oneLine } from "../../lib/text.ts"
import type { Dispatcher } from "../dispatcher.ts"
import type { Parts } from "../parts.ts"
import { findTask, knownBatches } from "../tasks/view.ts"

/** Ids of the tasks among `own` that a launch waits for. Throws where one can no longer complete. */
export function resolveAfter(after: readonly string[] | string, own: readonly Task[]): readonly string[] {
  const tasks = typeof after === "string" ? ofBatch(after, own) : after.map((reference) => findTask(reference, own))
  for (const task of tasks) {
    const fate = whyNeverCompletes(task)
    if (fate)
      throw new CallError(
        `Nothing was launched: it would wait for ${nameOf(task)}, which ${fate}. Launch it again first, or launch this without it.`,
      )
  }
  return [...new Set(tasks.map(({ id }) => id))]
}

/** A single id names the task, not its batch. */
function ofBatch(name: string, own: readonly Task[]): readonly Task[] {
  const wanted = name.trim()
  const found = own.filter(({ batch }) => batch === batchKeyOf(wanted))
  if (found.length > 0) return found
  if (own.some(({ id, sessionID }) => id.startsWith(wanted) || sessionID.startsWith(wanted)))
    return [findTask(wanted, own)]
  throw new CallError(
    `No batch "${oneLine(wanted)}" in this session. ${knownBatches(own)} To wait for tasks, give their ids as an array.`,
  )
}

/** Blocks the runs that wait for other tasks, and ends those that would wait for ever. */
export class TaskDependencies implements BlockSource {
  readonly #parts: Parts
  readonly #dispatcher: Dispatcher

  constructor(parts: Parts, dispatcher: Dispatcher) {
    this.#parts = parts
    this.#dispatcher = dispatcher
  }

  /**
   * Ends the tasks that wait for what will never complete, each after what it waited for; only the last of them wakes its
   * parent, and none where the parent brought it about itself.
   */
  review(): void {
    const { store, options } = this.#parts
    const found = stranded(store.active().filter(isQueued), (id) => store.get(id))
    for (const [index, { task, reason, wakes }] of found.entries()) {
      const shares = ({ parentID, batch }: Task) =>
        parentID === task.parentID && (options.wake !== "last" || batch === task.batch)
      const last = !found.slice(index + 1).some((other) => other.wakes && shares(other.task))
      this.#dispatcher.end(task.id, task.run.generation, { type: "cancelled", reason }, { wake: wakes && last })
    }
  }

  /** One that has ended is waited for until it is closed, its work merged; one of another process's, until it is told. */
  blocks(task: Task): Block | undefined {
    const { store } = this.#parts
    const [behind] = waitsFor(task, (id) =>
      this.#dispatcher.isClosing(id) || store.isForeign(id) ? undefined : store.get(id),
    )
    return behind === undefined ? undefined : { by: "after", behind }
  }

  /** True where a task that has not begun waits for this one, or for its answer: it is not forgotten. */
  isWaitedFor(id: string): boolean {
    const { store } = this.#parts
    const isUnbegun = (task: Task) => isQueued(task) || store.run(task.id)?.notStarted === true
    return store.active().some((task) => isUnbegun(task) && task.run.after?.includes(id))
  }
}

type Request = {
  readonly description: string
  readonly batch?: string
  readonly after?: readonly string[] | string
}

type Launch = {
  readonly sessionID: string
  readonly request: Request
  /** Resolves to whether the task was created. */
  readonly made: Promise<boolean>
}

/** Launches in progress. Calls of one message run in parallel, and one may name the batch of another. */
export class Siblings {
  readonly #underWay = new Set<Launch>()

  /** Runs `make`, visible to later launches; it receives a function that waits for earlier ones. */
  async launch<Made>(
    sessionID: string,
    request: Request,
    make: (waitsFor: () => Promise<void>) => Promise<Made>,
  ): Promise<Made> {
    const before = [...this.#underWay].filter((other) => other.sessionID === sessionID)
    const making = make(() => waitForBatch(request.after, before))
    const launch = { sessionID, request, made: succeeds(making) }
    this.#underWay.add(launch)
    try {
      return await making
    } finally {
      this.#underWay.delete(launch)
    }
  }
}

/** Resolves when the batch's launches are done. Throws where one of them failed. */
async function waitForBatch(batch: Request["after"], before: readonly Launch[]): Promise<void> {
  const others = before.filter(({ request }) => request.batch !== undefined && request.batch === batch)
  for (const { request, made } of others)
    if (!(await made))
      throw new CallError(
        `Nothing was launched: it would wait for "${oneLine(request.description)}", of the same message, which could not be launched. Launch that again first, or launch this without it.`,
      )
}
