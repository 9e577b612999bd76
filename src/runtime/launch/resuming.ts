import { whyNeverCompletes } from "../../core/dependencies.ts"
import { CallError } from "../../core/errors.ts"
import { chosenIn, type Group, isUnfinishedGroup } from "../../core/group.ts"
import { withSchema } from "../../core/outcome.ts"
import { recentRuns } from "../../core/spending.ts"
import { isActive, nameOf, type Run, type Task } from "../../core/task.ts"
import { launchToast } from "../../present/toasts.ts"
import type { Engine } from "../engine.ts"
import { HERE, kindOf } from "../places/place.ts"
import {
  alreadyResumed,
  authorize,
  type Caller,
  defaultsOf,
  isStopped,
  permit,
  refuseUnlessMerging,
  refuseUnlessResumable,
  refuseUnpaid,
} from "./checks.ts"
import { checkOf, filesOf, type ResumeRequest, readArguments } from "./request.ts"

/** Resumes ended tasks. */
export class TaskResumer {
  readonly #engine: Engine

  constructor(engine: Engine) {
    this.#engine = engine
  }

  /**
   * Resumes a task, or throws a `CallError` where the task's state or session does not allow that. Without a caller,
   * the user resumes the task in the terminal and needs no permission.
   */
  async resume(task: Task, request: ResumeRequest, caller?: Caller): Promise<Task> {
    const { opencode, store, clock, options, toaster } = this.#engine
    // A restart reads no tasks from before the last days, and the answers of some may stand before the members' prompts.
    if (answersBefore(task)) await this.#engine.recovery.ready(task.parentID)
    this.#refuseToResume(task)
    refuseUnpaid(this.#engine, this.#engine.groups.modelsOf(task, task.run.generation + 1), task)
    if (request.merge) refuseUnlessMerging(task)
    kindOf(this.#engine.kinds, task.place?.kind ?? HERE)
    await this.#engine.dispatcher.over(task)
    await this.#readAgain(task)
    // What the group has done so far is counted by its members, of which a restart reads those of the last days alone.
    if (task.group) await this.#engine.recovery.ready(task.sessionID)
    const check = request.check ?? keptCheck(store.get(task.id) ?? task)
    const call = { folder: opencode.folderOf(task.parentID), options, permit: caller?.permit }
    const { schema = task.group && task.run.schema } = await readArguments(this.#engine.features, request, call)
    if (caller) await authorize(caller, task.agent, task.description)
    if (caller) await permit(caller, { check })
    await this.#engine.places.mayEnterAgain(task)
    const named = { prompt: task.group ? "" : request.prompt, place: task.place?.kind }
    const files = await filesOf(named, this.#engine.kinds, opencode.folderOf(task.parentID), caller?.permit)
    await this.#engine.ledger.lookAtForeign()
    this.#engine.allowance.refuseSpent(task.parentID, task.id)
    // While the user was asked, another call may have resumed the task, and its run may have ended: wait until that end
    // is closed.
    await this.#engine.dispatcher.over(task)
    const current = store.get(task.id) ?? task
    this.#refuseToResume(current)
    if (caller && isStopped(this.#engine, caller))
      throw new CallError(`The call was stopped before task ${task.id} was resumed. The task is as it was.`)
    if (caller) this.#engine.allowance.countLaunch(caller.sessionID)
    const now = clock.now()
    const generation = current.run.generation + 1
    const set = defaultsOf(options, task.agent)
    const promptID = this.#engine.opencode.messageID("prompt", task.id, generation, now)
    const after = answersBefore(current)
    const next: Run = {
      generation,
      promptID,
      createdAt: now,
      timeout: task.group ? 0 : (request.timeout ?? set.timeout ?? options.taskTimeout),
      budget: this.#engine.allowance.budget(request.maxCost ?? set.maxCost, task.id),
      ...(after && { after }),
      ...checkOf({ check }),
      ...(task.run.guard && { guard: task.run.guard }),
      ...(schema && { schema }),
      ...(files.length > 0 && { files }),
      recent: recentRuns(current, now),
    }
    const change = store.apply(task.id, { type: "resumed", run: next, timeout: request.timeout }, now)
    if (!change) throw alreadyResumed(task.id)
    toaster.add(launchToast(change.after))
    const prompt = task.group ? laterPrompt(task.group, request.prompt) : withSchema(request.prompt, schema)
    await this.#engine.queue.enqueue(change.after, prompt)
    return store.get(task.id) ?? change.after
  }

  /** Updates the task from its session. Throws where the session is gone, or another process has resumed the task. */
  async #readAgain(task: Task): Promise<void> {
    const { opencode, store } = this.#engine
    const session = await opencode.session(task.sessionID)
    if (!session)
      throw new CallError(
        `The session of task ${task.id} no longer exists, so it cannot be resumed. Start a new superagents_task instead.`,
      )
    const { record } = session
    if (record && isActive(record.task) && opencode.ownership(record.owner) === "alive") throw alreadyResumed(task.id)
    // A newer run in the record means that another process has resumed the task since it ended here.
    const { run } = store.get(task.id) ?? task
    if (record && record.task.run.generation > run.generation) store.addForeign(record.task)
  }

  /**
   * Throws where the task must not be resumed here. A task whose end another process has yet to tell still belongs to
   * that process, and a run started here would not be supervised.
   */
  #refuseToResume(task: Task): void {
    const { store, options } = this.#engine
    if (store.wasCleared(task.id) || !store.get(task.id))
      throw new CallError(`Task ${task.id} was cleared meanwhile. Start a new superagents_task instead.`)
    const isUnfinished = isUnfinishedGroup(task)
    const whyNot = isUnfinished && this.#engine.groupKindOf(task)?.whyNothingRemains(task)
    if (whyNot) throw new CallError(whyNot)
    if (store.isForeign(task.id) && task.status === "running")
      throw new CallError(
        `Task ${task.id} is run by another OpenCode process. It can be resumed once it has ended there and its message has come.`,
      )
    if (!isUnfinished) refuseUnlessResumable(task, options.resumable)
    if (store.isForeign(task.id))
      throw new CallError(
        `Task ${task.id} ended in another OpenCode process, which has not told of that yet. Resume it there, or after the message about its end.`,
      )
    this.#refuseWithoutAnswers(task)
  }

  #refuseWithoutAnswers(task: Task): void {
    const { store, groupKindOf } = this.#engine
    const members = groupKindOf(task)?.noun.many
    for (const id of answersBefore(task) ?? []) {
      const other = store.get(id)
      const fate = other || store.wasCleared(id) ? whyNeverCompletes(other) : "is no longer known"
      if (fate)
        throw new CallError(
          `Task ${task.id} cannot be resumed: its ${members} begin with the answer of ${other ? nameOf(other) : id}, which ${fate}. Launch a new task for what is left.`,
        )
    }
  }
}

/**
 * Tasks whose answers stand before the prompts of a group's members, in later runs, too. A chosen member has read them in
 * its session.
 */
export const answersBefore = ({ group, run }: Task): Run["after"] =>
  group && chosenIn(group) === undefined ? run.after : undefined

/** Check that a resume without `check` keeps, so that a task with an automatic merge does not merge unchecked. */
const keptCheck = ({ place, run, group }: Task): string | undefined => (group || place?.merge ? run.check : undefined)

/**
 * Prompt of a group's later run. A chosen member gets only `more`, because its session already holds the first prompt.
 */
const laterPrompt = (group: Group, more: string): string =>
  chosenIn(group) !== undefined ? more : more === "" ? group.prompt : `${group.prompt}\n\n${more}`

/** True for a group without a chosen member: its unfinished members can be resumed without a new prompt. */
export const resumesWithoutPrompt = ({ group }: Task): boolean => group !== undefined && chosenIn(group) === undefined
