import { batchKeyOf, stranded, waitsFor, whyNeverCompletes } from "../../core/dependencies.ts"
import { CallError } from "../../core/errors.ts"
import type { GroupKind } from "../../core/feature.ts"
import { chosenIn, isUnfinishedGroup } from "../../core/group.ts"
import type { Block, BlockSource } from "../../core/limits.ts"
import { isQueued, nameOf, type Task } from "../../core/task.ts"
import { succeeds } from "../../lib/promises.ts"
import { oneLine } from "../../lib/text.ts"
import type { Dispatcher } from "../dispatcher.ts"
import type { Services } from "../services.ts"
import { findTask, knownBatches } from "../tasks/view.ts"

/** Ids of the tasks among `own` that a launch waits for. Throws where one of these tasks can no longer complete. */
export function resolveAfter(
  after: readonly string[] | string,
  own: readonly Task[],
  groupKindOf: Services["groupKindOf"],
): readonly string[] {
  const tasks = typeof after === "string" ? ofBatch(after, own) : after.map((reference) => findTask(reference, own))
  for (const task of tasks) {
    const fate = whyNeverCompletes(task)
    if (fate)
      throw new CallError(
        `Nothing was launched: it would wait for ${nameOf(task)}, which ${fate}. ${whatFirst(task, groupKindOf(task))} first, or launch this without it.`,
      )
  }
  return [...new Set(tasks.map(({ id }) => id))]
}

/** How an ended task may still complete. A group with members left keeps what the others have cost. */
function whatFirst(task: Task, kind: GroupKind | undefined): string {
  const { id, run, group } = task
  const hasBegun = run.generation > 0 || run.startedAt !== undefined
  if (!hasBegun || !isUnfinishedGroup(task) || kind?.whyNothingRemains(task)) return "Launch it again"
  return `superagents_task(resume="${id}"${chosenIn(group) === undefined ? "" : ", prompt"})`
}

/** Tasks that a string in `after` names: the tasks of a batch, or the single task with this id or session. */
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
  readonly #services: Services
  readonly #dispatcher: Dispatcher

  constructor(services: Services, dispatcher: Dispatcher) {
    this.#services = services
    this.#dispatcher = dispatcher
  }

  /**
   * Ends the tasks that wait for a task which will never complete, each after the task that it waited for. Only the
   * last of these ends wakes its parent, and none does where the parent itself was the cause.
   */
  review(): void {
    const { store, options } = this.#services
    const found = stranded(store.active().filter(isQueued), (id) => store.get(id))
    for (const [index, { task, reason, wakes }] of found.entries()) {
      const shares = ({ parentID, batch }: Task) =>
        parentID === task.parentID && (options.wake !== "last" || batch === task.batch)
      const last = !found.slice(index + 1).some((other) => other.wakes && shares(other.task))
      this.#dispatcher.end(task.id, task.run.generation, { type: "cancelled", reason }, { wake: wakes && last })
    }
  }

  /**
   * Returns a block while the task waits for other tasks. An ended task is waited for until its end is closed and its
   * work merged, an ended task of another process until that process has told the end.
   */
  blocks(task: Task): Block | undefined {
    const { store } = this.#services
    const [behind] = waitsFor(task, (id) =>
      this.#dispatcher.isClosing(id) || store.isForeign(id) ? undefined : store.get(id),
    )
    return behind === undefined ? undefined : { by: "after", behind }
  }

  /**
   * True where a task that has not begun waits for this task, or needs its answer. Then this task must not be
   * forgotten.
   */
  isWaitedFor(id: string): boolean {
    const { store } = this.#services
    return store.active().some((task) => store.isUnbegun(task) && task.run.after?.includes(id))
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

/** Launches in progress. Calls of one message run in parallel, and a call may name the batch of another call. */
export class Siblings {
  readonly #underWay = new Set<Launch>()

  /**
   * Runs `make` and registers this launch, so that later launches can wait for it. `make` gets a function that waits
   * for earlier launches.
   */
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

/** Resolves when the batch's launches are done. Throws where one of these launches failed. */
async function waitForBatch(batch: Request["after"], before: readonly Launch[]): Promise<void> {
  const others = before.filter(({ request }) => request.batch !== undefined && request.batch === batch)
  for (const { request, made } of others)
    if (!(await made))
      throw new CallError(
        `Nothing was launched: it would wait for "${oneLine(request.description)}", of the same message, which could not be launched. Launch that again first, or launch this without it.`,
      )
}
