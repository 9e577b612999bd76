import { batchFor } from "../../core/dependencies.ts"
import { CallError, messageOf } from "../../core/errors.ts"
import type { SessionBeginning, SessionRules } from "../../core/feature.ts"
import { modelOfName } from "../../core/limits.ts"
import { withSchema } from "../../core/outcome.ts"
import type { Persona } from "../../core/ports.ts"
import { isActive, NO_FIGURES, newTaskID, type Task, type TaskDraft } from "../../core/task.ts"
import type { Engine } from "../engine.ts"
import { CaptureError, isFar } from "../places/place.ts"
import {
  authorize,
  type Caller,
  deniedAt,
  depthBelow,
  fingerprint,
  isStopped,
  permit,
  refuseUnpaid,
  rulesFor,
} from "./checks.ts"
import { resolveAfter, Siblings } from "./dependencies.ts"
import { sweepUp } from "./queue.ts"
import {
  checkOf,
  chosenBy,
  filesOf,
  groupArgument,
  isPlain,
  type LaunchRequest,
  placeIn,
  readArguments,
  refuseUnknownModels,
  withDefaults,
} from "./request.ts"

type NewSession = SessionRules & { readonly beginning: SessionBeginning | undefined }

export class Launcher {
  readonly #engine: Engine
  readonly #siblings = new Siblings()

  constructor(engine: Engine) {
    this.#engine = engine
  }

  /**
   * Launches a task or returns an identical one. Throws a `CallError` where the task cannot be created, and leaves
   * nothing behind.
   */
  launch(request: LaunchRequest, caller: Caller): Promise<{ task: Task; reused: boolean }> {
    return this.#siblings.launch(caller.sessionID, request, (batch) => this.#launch(request, caller, batch))
  }

  /** `batch` resolves when the tasks exist that earlier calls of the same message launch in the awaited batch. */
  async #launch(
    called: LaunchRequest,
    caller: Caller,
    batch: () => Promise<void>,
  ): Promise<{ task: Task; reused: boolean }> {
    const { opencode, options } = this.#engine
    const [agents, parent, persona] = await Promise.all([
      opencode.agents(),
      opencode.parent(caller.sessionID),
      opencode.caller(caller.sessionID, caller.messageID),
    ])
    const given = withDefaults(called, options, persona)
    const asksForGroup = groupArgument(this.#engine.features, given)
    const place = placeIn(this.#engine.kinds, given, asksForGroup)
    const call = { folder: opencode.folderOf(caller.sessionID), options, permit: caller.permit }
    const { schema, group } = await readArguments(this.#engine.features, given, call)
    const request = {
      ...given,
      place,
      schema,
      group,
      // Each member of a group gets the text about the schema in its own prompt.
      prompt: group ? given.prompt : withSchema(given.prompt, schema),
    }
    const beginning = this.#beginningOf(request, persona)
    const { agent, model } =
      beginning?.persona ?? (await chosenBy(this.#engine, this.#engine.kinds, request, agents, persona))
    // What another machine's provider refuses is known once the task is made.
    if (!isFar(this.#engine.kinds, place))
      refuseUnpaid(this.#engine, group?.models?.map(modelOfName) ?? (model ? [model] : []))
    await refuseUnknownModels(this.#engine, this.#engine.kinds, request, asksForGroup?.name)
    const depth = await depthBelow(this.#engine, caller.sessionID, parent)
    const mark = isPlain(request) ? fingerprint(agent, model, request.prompt) : ""
    const draft = { agent, model, depth, fingerprint: mark }
    const denied = deniedAt(this.#engine, depth)
    const rules = rulesFor(this.#engine, parent, denied)
    const session = { rules, parents: parent?.rules ?? [], denied, beginning }
    const make = () => this.#authorized(request, caller, draft, session, batch)
    if (!options.reuseIdentical || mark === "") return { task: await make(), reused: false }
    return this.#once(caller.sessionID, mark, make)
  }

  /** Returns the first beginning of a session that a feature asks for; undefined for none. */
  #beginningOf(request: LaunchRequest, caller: Persona | undefined): SessionBeginning | undefined {
    for (const body of this.#engine.bodies) {
      const found = body.beginning?.(request, caller)
      if (found) return found
    }
    return undefined
  }

  /** Returns an identical task that exists or is being launched, otherwise the task that `make` creates. */
  #once(sessionID: string, mark: string, make: () => Promise<Task>): Promise<{ task: Task; reused: boolean }> {
    return this.#engine.store.parentState(sessionID).launching.take(async () => {
      const task = this.#identical(sessionID, mark)
      return task ? { task, reused: true } : { task: await make(), reused: false }
    }, mark)
  }

  async #authorized(
    request: LaunchRequest,
    caller: Caller,
    found: Pick<Task, "agent" | "model" | "depth" | "fingerprint">,
    session: NewSession,
    batch: () => Promise<void>,
  ): Promise<Task> {
    await this.#engine.ledger.lookAtForeign()
    this.#engine.allowance.refuseSpent(caller.sessionID)
    await batch()
    const waitsFor = () =>
      request.after === undefined
        ? undefined
        : resolveAfter(request.after, this.#engine.store.ofParent(caller.sessionID), this.#engine.groupKindOf)
    waitsFor()
    await authorize(caller, found.agent, request.description)
    await permit(caller, request)
    const { kinds, models, opencode } = this.#engine
    const files = await filesOf(request, kinds, opencode.folderOf(caller.sessionID), caller.permit)
    const { group } = request
    await group?.permit?.({ ...found, permit: caller.permit, tasks: this.#engine.store.all(), models })
    // While the user was asked, other tasks may have used up the budget, or a task to wait for may have failed.
    this.#engine.allowance.refuseSpent(caller.sessionID)
    const after = waitsFor()
    this.#engine.allowance.countLaunch(caller.sessionID)
    const asked = groupArgument(this.#engine.features, request)?.kind
    const draft = this.#draft({ ...request, files }, caller, found, after)
    // From here on, other calls of the same message see the task and its batch.
    const reserved = this.#engine.scheduler.reserve({ ...draft, sessionID: "" })
    const handle = this.#engine.store.handle(draft.id)
    if (handle) handle.isModelNamed = request.model !== undefined
    if (handle) handle.groupState = group?.state
    try {
      const lacks = draft.place && (await this.#engine.places.capture(draft, draft.place.folder))
      if (handle) handle.lacks = lacks
    } catch (error) {
      this.#engine.scheduler.release(reserved)
      throw error instanceof CaptureError ? error.advised(asked?.picksOne && asked.noun.many) : error
    }
    return this.#make(reserved, request, session, caller)
  }

  async #make(reserved: Task, request: LaunchRequest, session: NewSession, caller: Caller): Promise<Task> {
    const { store, opencode, background, queue, scheduler } = this.#engine
    const { sessionID: _none, ...draft } = reserved
    const { beginning, ...rules } = session
    try {
      this.#refuseIfStopped(caller)
      const task = beginning
        ? await beginning.create(draft, rules)
        : { ...draft, sessionID: await opencode.createSession(this.#freshSession(draft, rules), draft) }
      if (isStopped(this.#engine, caller)) await opencode.deleteSession(task.sessionID)
      this.#refuseIfStopped(caller)
      if (await queue.begin(task, request.prompt)) return task
      throw new CallError(`Task ${task.id} was stopped before it began. Launch it again if it is still needed.`)
    } catch (error) {
      scheduler.release(reserved)
      if (!store.get(reserved.id))
        background.run("sweep up after a launch", () => sweepUp(this.#engine, reserved.id, reserved.parentID))
      throw error instanceof CallError ? error : new CallError(`The task could not be launched: ${messageOf(error)}`)
    }
  }

  #refuseIfStopped(caller: Caller): void {
    if (isStopped(this.#engine, caller))
      throw new CallError(
        "The call was stopped while the task was being made. Nothing was launched. Launch it again if it is still needed.",
      )
  }

  #freshSession({ id, parentID, agent, model, description }: TaskDraft, { rules }: SessionRules) {
    const { isModelNamed } = this.#engine.store.handle(id) ?? {}
    return { parentID, title: `${description} (@${agent} background agent)`, agent, model, isModelNamed, rules }
  }

  #draft(
    request: LaunchRequest,
    caller: Caller,
    found: Pick<Task, "agent" | "model" | "depth" | "fingerprint">,
    after: readonly string[] | undefined,
  ): TaskDraft {
    const { clock, store, options } = this.#engine
    const now = clock.now()
    const id = newTaskID(this.#engine.randomID)
    const place = this.#placeOf(request, caller)
    const timeout = request.timeout ?? options.taskTimeout
    const siblings = [...store.ofParent(caller.sessionID), ...this.#engine.queue.making(caller.sessionID)]
    return {
      id,
      parentID: caller.sessionID,
      parentMessageID: caller.messageID,
      description: request.description,
      ...found,
      batch: batchFor(request.batch, id, siblings),
      ...(request.group?.plan({ timeout, file: this.#engine.results.rowsOf(id), ...place }) ?? place),
      createdAt: now,
      earlier: NO_FIGURES,
      status: "running",
      run: {
        generation: 0,
        promptID: this.#engine.opencode.messageID("prompt", id, 0, now),
        createdAt: now,
        timeout: request.group ? 0 : timeout,
        budget: this.#engine.allowance.budget(request.maxCost, id),
        after,
        ...checkOf(request),
        ...(request.guard && { guard: request.guard }),
        ...(request.files?.length && { files: request.files }),
        ...(typeof request.schema === "object" && { schema: request.schema }),
      },
      delivery: { state: "none" },
    }
  }

  #placeOf({ place, merge = false }: LaunchRequest, { sessionID }: Caller): Pick<TaskDraft, "place"> {
    if (place === undefined) return {}
    return { place: { kind: place, folder: this.#engine.opencode.folderOf(sessionID), merge } }
  }

  /** Finds an identical task that runs or completed recently, and that was never resumed. */
  #identical(parentID: string, fingerprint: string): Task | undefined {
    const { options, store, clock } = this.#engine
    return store.ofParent(parentID).findLast((task) => {
      if (task.fingerprint !== fingerprint || task.run.generation > 0) return false
      if (isActive(task)) return true
      return task.status === "completed" && (task.run.endedAt ?? 0) + options.resultCacheTTL > clock.now()
    })
  }
}
