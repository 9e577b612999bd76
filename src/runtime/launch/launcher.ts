import { batchFor } from "../../core/dependencies.ts"
import { CallError, messageOf } from "../../core/errors.ts"
import type { Feature, FeatureBody, Pauser, SessionBeginning, SessionRules } from "../../core/feature.ts"
import { modelKey } from "../../core/limits.ts"
import { withSchema } from "../../core/outcome.ts"
import type { ModelFacts, Persona } from "../../core/ports.ts"
import { isActive, isMember, isQueued, NO_FIGURES, newTaskID, type Task, type TaskDraft } from "../../core/task.ts"
import { PATIENT_MS, retry } from "../../lib/clock.ts"
import type { ResultFolder } from "../answers.ts"
import type { Allowance, ForeignCosts } from "../budgets.ts"
import type { Dispatcher } from "../dispatcher.ts"
import { CaptureError, type PlaceKind } from "../places/place.ts"
import type { Places } from "../places/places.ts"
import type { Scheduler } from "../scheduler.ts"
import type { Services } from "../services.ts"
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

export type LauncherPorts = {
  readonly features: readonly Feature[]
  readonly places: Places
  readonly kinds: readonly PlaceKind[]
  readonly bodies: readonly FeatureBody[]
  readonly models: ModelFacts
  readonly randomID: () => string
  readonly pauser?: Pauser
  readonly results: ResultFolder
  readonly queue: Queue
  readonly scheduler: Scheduler
  readonly allowance: Allowance
  readonly foreignCosts: ForeignCosts
}

export class Launcher {
  readonly #services: Services
  readonly #ports: LauncherPorts
  readonly #siblings = new Siblings()

  constructor(services: Services, ports: LauncherPorts) {
    this.#services = services
    this.#ports = ports
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
    const { opencode, options } = this.#services
    const [agents, parent, persona] = await Promise.all([
      opencode.agents(),
      opencode.parent(caller.sessionID),
      opencode.caller(caller.sessionID, caller.messageID),
    ])
    const given = withDefaults(called, options, persona)
    const place = placeIn(this.#ports.kinds, given, groupArgument(this.#ports.features, given))
    const call = { folder: opencode.folderOf(caller.sessionID), options, permit: caller.permit }
    const { schema, group } = await readArguments(this.#ports.features, given, call)
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
      beginning?.persona ?? (await chosenBy(this.#services, this.#ports.kinds, request, agents, persona))
    refuseUnpaid(this.#services.options, model && this.#ports.pauser?.refusesModel(model))
    await refuseUnknownModels(this.#services, this.#ports.kinds, request)
    const depth = await depthBelow(this.#services, caller.sessionID, parent)
    const mark = isPlain(request) ? fingerprint(agent, model, request.prompt) : ""
    const draft = { agent, model, depth, fingerprint: mark }
    const denied = deniedAt(this.#services, depth)
    const rules = rulesFor(this.#services, parent, denied)
    const session = { rules, parents: parent?.rules ?? [], denied, beginning }
    const make = () => this.#authorized(request, caller, draft, session, batch)
    if (!options.reuseIdentical || mark === "") return { task: await make(), reused: false }
    return this.#once(caller.sessionID, mark, make)
  }

  /** Returns the first beginning of a session that a feature asks for; undefined for none. */
  #beginningOf(request: LaunchRequest, caller: Persona | undefined): SessionBeginning | undefined {
    for (const body of this.#ports.bodies) {
      const found = body.beginning?.(request, caller)
      if (found) return found
    }
    return undefined
  }

  /** Returns an identical task that exists or is being launched, otherwise the task that `make` creates. */
  #once(sessionID: string, mark: string, make: () => Promise<Task>): Promise<{ task: Task; reused: boolean }> {
    return this.#services.store.parentState(sessionID).launching.take(async () => {
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
    await this.#ports.foreignCosts.look()
    this.#ports.allowance.refuseSpent(caller.sessionID)
    await batch()
    const waitsFor = () =>
      request.after === undefined
        ? undefined
        : resolveAfter(request.after, this.#services.store.ofParent(caller.sessionID))
    waitsFor()
    await authorize(caller, found.agent, request.description)
    await permit(caller, request)
    const { kinds } = this.#ports
    const files = await filesOf(request, kinds, this.#services.opencode.folderOf(caller.sessionID), caller.permit)
    const { group } = request
    const { models } = this.#ports
    await group?.permit?.({ ...found, permit: caller.permit, tasks: this.#services.store.all(), models })
    // While the user was asked, other tasks may have used up the budget, or a task to wait for may have failed.
    this.#ports.allowance.refuseSpent(caller.sessionID)
    const after = waitsFor()
    this.#ports.allowance.countLaunch(caller.sessionID)
    const asked = groupArgument(this.#ports.features, request)?.kind
    const draft = this.#draft({ ...request, files }, caller, found, after)
    // From here on, other calls of the same message see the task and its batch.
    const reserved = this.#ports.scheduler.reserve({ ...draft, sessionID: "" })
    const handle = this.#services.store.handle(draft.id)
    if (handle) handle.isModelNamed = request.model !== undefined
    if (handle) handle.groupState = group?.state
    try {
      const lacks = draft.place && (await this.#ports.places.capture(draft, draft.place.folder))
      if (handle) handle.lacks = lacks
    } catch (error) {
      this.#ports.scheduler.release(reserved)
      throw error instanceof CaptureError ? error.advised(asked?.picksOne && asked.noun.many) : error
    }
    return this.#make(reserved, request, session, caller)
  }

  async #make(reserved: Task, request: LaunchRequest, session: NewSession, caller: Caller): Promise<Task> {
    const { store, opencode, background } = this.#services
    const { queue, scheduler } = this.#ports
    const { sessionID: _none, ...draft } = reserved
    const { beginning, ...rules } = session
    try {
      this.#refuseIfStopped(caller)
      const task = beginning
        ? await beginning.create(draft, rules)
        : { ...draft, sessionID: await opencode.createSession(this.#freshSession(draft, rules), draft) }
      if (isStopped(this.#services, caller)) await opencode.deleteSession(task.sessionID)
      this.#refuseIfStopped(caller)
      if (await queue.begin(task, request.prompt)) return task
      throw new CallError(`Task ${task.id} was stopped before it began. Launch it again if it is still needed.`)
    } catch (error) {
      scheduler.release(reserved)
      if (!store.get(reserved.id))
        background.run("sweep up after a launch", () => sweepUp(this.#services, reserved.id, reserved.parentID))
      throw error instanceof CallError ? error : new CallError(`The task could not be launched: ${messageOf(error)}`)
    }
  }

  #refuseIfStopped(caller: Caller): void {
    if (isStopped(this.#services, caller))
      throw new CallError(
        "The call was stopped while the task was being made. Nothing was launched. Launch it again if it is still needed.",
      )
  }

  #freshSession({ id, parentID, agent, model, description }: TaskDraft, { rules }: SessionRules) {
    const { isModelNamed } = this.#services.store.handle(id) ?? {}
    return { parentID, title: `${description} (@${agent} background agent)`, agent, model, isModelNamed, rules }
  }

  #draft(
    request: LaunchRequest,
    caller: Caller,
    found: Pick<Task, "agent" | "model" | "depth" | "fingerprint">,
    after: readonly string[] | undefined,
  ): TaskDraft {
    const { clock, store, options } = this.#services
    const now = clock.now()
    const id = newTaskID(this.#ports.randomID)
    const place = this.#placeOf(request, caller)
    const timeout = request.timeout ?? options.taskTimeout
    const siblings = [...store.ofParent(caller.sessionID), ...this.#ports.queue.making(caller.sessionID)]
    return {
      id,
      parentID: caller.sessionID,
      parentMessageID: caller.messageID,
      description: request.description,
      ...found,
      batch: batchFor(request.batch, id, siblings),
      ...(request.group?.plan({ timeout, file: this.#ports.results.rowsOf(id), ...place }) ?? place),
      createdAt: now,
      earlier: NO_FIGURES,
      status: "running",
      run: {
        generation: 0,
        promptID: this.#services.opencode.messageID("prompt", id, 0, now),
        createdAt: now,
        timeout: request.group ? 0 : timeout,
        budget: this.#ports.allowance.budget(request.maxCost, id),
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
    return { place: { kind: place, folder: this.#services.opencode.folderOf(sessionID), merge } }
  }

  /** Finds an identical task that runs or completed recently, and that was never resumed. */
  #identical(parentID: string, fingerprint: string): Task | undefined {
    const { options, store, clock } = this.#services
    return store.ofParent(parentID).findLast((task) => {
      if (task.fingerprint !== fingerprint || task.run.generation > 0) return false
      if (isActive(task)) return true
      return task.status === "completed" && (task.run.endedAt ?? 0) + options.resultCacheTTL > clock.now()
    })
  }
}

export type QueuePorts = {
  readonly dispatcher: Dispatcher
  readonly scheduler: Scheduler
  /** Called when there are runs to supervise. */
  readonly watch: () => void
}

/**
 * Hands runs to the scheduler: runs of new tasks, further runs of known tasks, and runs that a user has already
 * started.
 */
export class Queue {
  readonly #services: Services
  readonly #ports: QueuePorts

  constructor(services: Services, ports: QueuePorts) {
    this.#services = services
    this.#ports = ports
  }

  /** Tasks that a session has launched and whose own sessions are still being created. */
  making(parentID: string): readonly Task[] {
    return this.#services.store.making().filter((task) => task.parentID === parentID)
  }

  /** Called when the session of a new task exists. The task's run starts in its reserved slot, or waits. */
  async begin(task: Task, prompt: string): Promise<boolean> {
    const { store, clock, journal, toaster } = this.#services
    store.add(task, clock.now())
    if (task.fork) await journal.save(task)
    if (!store.runs(task)) return false
    // Do not wait for the prompt: OpenCode only confirms it, and the caller does not need that.
    const until = this.#ports.scheduler.heldUntil(task)
    this.#ports.dispatcher.deliver(task.id, { type: "begin", prompt, until })
    if (!isMember(task)) toaster.launched(task)
    this.#logLaunch(task)
    this.#ports.watch()
    this.#ports.scheduler.reschedule()
    return true
  }

  /** Queues a run of a known task, which starts when a slot is free. Resolves when the run is recorded. */
  async enqueue(task: Task, prompt: string): Promise<void> {
    this.#ports.dispatcher.deliver(task.id, { type: "begin", prompt })
    this.#ports.scheduler.reschedule()
    await this.#services.journal.save(task)
    this.#logLaunch(task)
    this.#ports.watch()
  }

  /** Adopts a run that the session's user started. The run works already and takes a slot without waiting. */
  async adopt(task: Task): Promise<void> {
    this.#ports.dispatcher.deliver(task.id, { type: "begin" })
    await this.#services.journal.save(task)
    this.#logLaunch(task)
    this.#ports.watch()
  }

  #logLaunch(task: Task): void {
    const { id, sessionID: session, parentID: parent, description, agent, model, run } = task
    this.#services.opencode.log("info", run.generation > 0 ? "task resumed" : "task launched", {
      task: id,
      session,
      parent,
      description,
      agent,
      model: model && modelKey(model),
      queued: isQueued(task),
    })
  }
}

/** Deletes a session that a failed creation may have left: OpenCode can have created the session without an answer. */
export const sweepUp = ({ opencode, clock, stopped }: Services, id: string, under: string): Promise<void> =>
  retry(
    clock,
    stopped,
    async () => {
      const left = (await opencode.recordsOf(under)).find(({ task }) => task.id === id)
      if (left) await opencode.deleteSession(left.task.sessionID)
    },
    PATIENT_MS,
  )
