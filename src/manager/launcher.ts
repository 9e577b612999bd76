import { type Answered, withAnswers } from "../core/after.ts"
import { batchFor } from "../core/batch.ts"
import { recentRuns } from "../core/bill.ts"
import { CallError, messageOf } from "../core/errors.ts"
import { messageID, partID, taskID } from "../core/ids.ts"
import { admissible, launchDelay, MINUTE_MS, modelKey } from "../core/limits.ts"
import type { Rule } from "../core/ports.ts"
import { refusalOf } from "../core/spending.ts"
import { isActive, isQueued, NO_FIGURES, type Run, type Task, type TaskDraft } from "../core/task.ts"
import { forkContext } from "../fork/fork.ts"
import type { ForkHost } from "../fork/ports.ts"
import type { Options } from "../options.ts"
import type { Answers } from "./answers.ts"
import {
  alreadyResumed,
  authorize,
  type Caller,
  chooseModel,
  depthBelow,
  findAgent,
  fingerprint,
  permit,
  refuseUnlessResumable,
  rulesFor,
} from "./checks.ts"
import type { Endings } from "./endings.ts"
import type { Ledger } from "./ledger.ts"
import type { Parts } from "./parts.ts"
import type { Places } from "./places.ts"
import { persistently } from "./retry.ts"
import { stopSession } from "./stopping.ts"
import { resolveAfter, type Waiting } from "./waiting.ts"

export type LaunchRequest = {
  readonly description: string
  readonly prompt: string
  readonly agent: string
  readonly fork: boolean
  readonly model?: string
  readonly batch?: string
  readonly timeout?: number
  /** What the run may cost, in US dollars. */
  readonly maxCost?: number
  /** Tasks that have to complete before: their ids, or a batch. */
  readonly after?: readonly string[] | string
  /** "worktree": in a git worktree of its own. */
  readonly place?: "here" | "worktree"
  /** What a completed run changed there is merged at once. */
  readonly merge?: boolean
  /** The command that has to pass before a run counts as completed. */
  readonly check?: string
}

export type ResumeRequest = {
  readonly prompt: string
  readonly timeout?: number
  readonly maxCost?: number
  readonly check?: string
}

export type LauncherPorts = {
  readonly endings: Endings
  readonly places: Places
  readonly forks: ForkHost
  readonly randomID: () => string
  readonly ledger: Ledger
  readonly waiting: Waiting
  readonly answers: Answers
  /** Tasks run: look after them. */
  readonly watch: () => void
}

/** Makes tasks and starts their runs, at once or when there is a slot. */
export class Launcher {
  readonly #parts: Parts
  readonly #ports: LauncherPorts
  /** Tasks whose session is being made: they hold their slot already. */
  readonly #making = new Set<Task>()
  /** Launches under way that an identical one may wait for, by session and fingerprint. */
  readonly #launching = new Map<string, Promise<Task>>()
  /** The prompts of runs that wait for their slot. In memory alone: after a restart nothing is started by itself. */
  readonly #prompts = new Map<string, string>()
  /** The prompts of runs whose place is being made ready. */
  readonly #entering = new Map<string, string>()
  readonly #launches = new Map<string, number[]>()

  constructor(parts: Parts, ports: LauncherPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** Makes a task. Throws a `CallError`, with nothing left behind, where that cannot be done. */
  async launch(request: LaunchRequest, caller: Caller): Promise<{ task: Task; reused: boolean }> {
    const { host, options } = this.#parts
    const [agents, parent, persona] = await Promise.all([
      host.agents(),
      host.parent(caller.sessionID),
      host.caller(caller.sessionID, caller.messageID),
    ])
    const agent = findAgent(request.agent, agents)
    const model = request.model ? await chooseModel(this.#parts, request.model) : (agent.model ?? persona?.model)
    const depth = await depthBelow(this.#parts, caller.sessionID, parent)
    const mark = fingerprint(agent.name, model, request.prompt)
    const draft = { agent: agent.name, model, depth, fingerprint: mark }
    const atLimit = options.maxDepth > 0 && depth >= options.maxDepth
    const rules = rulesFor(parent, { atLimit, board: options.board !== undefined })
    const make = () => this.#authorized(request, caller, draft, rules)
    if (!options.reuseIdentical || !isPlain(request)) return { task: await make(), reused: false }
    return this.#once(`${caller.sessionID} ${mark}`, () => this.#identical(caller.sessionID, mark), make)
  }

  /**
   * Asks an ended task again. Throws a `CallError` where its state or its session does not allow it. Without a caller
   * it is somebody at the screen who asks: that needs no permission.
   */
  async resume(task: Task, request: ResumeRequest, caller?: Caller): Promise<Task> {
    const { host, store, clock, options, toaster } = this.#parts
    refuseUnlessResumable(task, options.resumable)
    await this.#ports.endings.closed(task.id)
    if (!(await host.session(task.sessionID)))
      throw new CallError(
        `The session of task ${task.id} no longer exists, so it cannot be resumed. Start a new superagents_task instead.`,
      )
    if (caller) await authorize(caller, task.agent, task.description)
    if (caller) await permit(caller, { ...request, merge: false })
    await this.refuseBeyondLimits(task.parentID, task.id)
    const current = store.get(task.id)
    if (!current) throw new CallError(`Task ${task.id} was cleared meanwhile. Start a new superagents_task instead.`)
    refuseUnlessResumable(current, options.resumable)
    if (caller) this.#countLaunch(caller.sessionID)
    const now = clock.now()
    const generation = current.run.generation + 1
    const promptID = messageID("prompt", task.id, generation, now)
    const run: Run = {
      generation,
      promptID,
      createdAt: now,
      timeout: request.timeout ?? options.taskTimeout,
      budget: this.#budget(request.maxCost, task.id),
      ...checkOf(request),
      recent: recentRuns(current, current.outcome?.usage.cost ?? 0, now),
    }
    const change = store.apply(task.id, { type: "resumed", run }, now)
    if (!change) throw alreadyResumed(task.id)
    toaster.launched(change.after)
    await this.enqueue(change.after, request.prompt)
    return store.get(task.id) ?? change.after
  }

  /** Has a run begin that is in the store already, as soon as there is a slot; resolves when it is written down. */
  async enqueue(task: Task, prompt: string): Promise<void> {
    this.#prompts.set(task.id, prompt)
    this.pump()
    await this.#parts.journal.save(task)
    this.#logLaunch(task)
    this.#ports.watch()
  }

  /** Starts what may start. Called whenever a slot may have become free. */
  pump(): void {
    const { store, clock, background, journal, stopped } = this.#parts
    if (stopped.aborted) return
    for (const id of this.#prompts.keys()) if (!isWaiting(store.get(id))) this.#prompts.delete(id)
    for (const task of this.#admissible([...store.active(), ...this.#making])) {
      const prompt = this.#prompts.get(task.id)
      if (prompt === undefined || this.#making.has(task)) continue
      if (this.#endBeyondLimits(task)) continue
      const event = { type: "admitted", generation: task.run.generation, at: clock.now() } as const
      const change = store.apply(task.id, event, clock.now())
      if (!change) continue
      this.#prompts.delete(task.id)
      background.run("start", async () => {
        await journal.save(change.after)
        await this.#prompt(change.after, prompt)
      })
      this.#ports.watch()
    }
  }

  /** Puts more behind the prompt of a run that has not begun; false where it has. */
  append(taskID: string, text: string): boolean {
    for (const prompts of [this.#prompts, this.#entering]) {
      const prompt = prompts.get(taskID)
      if (prompt !== undefined) prompts.set(taskID, `${prompt}\n\n${text}`)
      if (prompt !== undefined) return true
    }
    return false
  }

  /** Forgets what is remembered of a session that was deleted. */
  forgetSession(sessionID: string): void {
    this.#launches.delete(sessionID)
  }

  /** What is found, or what a launch under way brings, or what `make` makes. */
  async #once(
    key: string,
    find: () => Task | undefined,
    make: () => Promise<Task>,
  ): Promise<{ task: Task; reused: boolean }> {
    for (let other = this.#launching.get(key); other; other = this.#launching.get(key)) await other.catch(() => {})
    const earlier = find()
    if (earlier) return { task: earlier, reused: true }
    const launching = make().finally(() => this.#launching.delete(key))
    this.#launching.set(key, launching)
    return { task: await launching, reused: false }
  }

  async #authorized(
    request: LaunchRequest,
    caller: Caller,
    found: Pick<Task, "agent" | "model" | "depth" | "fingerprint">,
    rules: readonly Rule[],
  ): Promise<Task> {
    await this.refuseBeyondLimits(caller.sessionID)
    const waitsFor = () =>
      request.after === undefined
        ? undefined
        : resolveAfter(request.after, this.#parts.store.ofParent(caller.sessionID))
    waitsFor()
    await authorize(caller, found.agent, request.description)
    await permit(caller, request)
    const after = waitsFor()
    this.#countLaunch(caller.sessionID)
    const draft = this.#draft(request, caller, found, after)
    if (draft.place) await this.#ports.places.capture(draft.id, draft.place.folder)
    return this.#make(draft, request, rules, caller.abort)
  }

  async #make(draft: TaskDraft, request: LaunchRequest, rules: readonly Rule[], abort?: AbortSignal): Promise<Task> {
    const { store, clock, journal, background } = this.#parts
    const reserved = this.#reserve({ ...draft, sessionID: "" })
    try {
      refuseIfAborted(abort)
      const task = await (request.fork ? this.#fork(reserved, rules) : this.#fresh(reserved, rules))
      if (abort?.aborted) await this.#parts.host.deleteSession(task.sessionID)
      refuseIfAborted(abort)
      store.add(task, clock.now())
      this.#making.delete(reserved)
      if (isQueued(task)) this.#prompts.set(task.id, request.prompt)
      if (task.fork) await journal.save(task)
      if (!this.#runs(task)) throw new CallError(`Task ${task.id} was stopped before it began.`)
      // Not waited for: the host says nothing of a prompt but that it came, and the caller goes on all the sooner.
      if (!isQueued(task)) background.run("start", () => this.#prompt(task, request.prompt))
      this.#announce(task)
      return task
    } catch (error) {
      this.#making.delete(reserved)
      this.pump()
      if (!store.get(draft.id)) background.run("sweep up after a launch", () => this.#sweep(draft))
      throw error instanceof CallError ? error : new CallError(`The task could not be launched: ${messageOf(error)}`)
    }
  }

  /** Deletes what a failed launch may have left: a call that failed can have done its work. */
  async #sweep({ id, parentID }: TaskDraft): Promise<void> {
    const { host, clock, stopped } = this.#parts
    await persistently(clock, stopped, async () => {
      const left = (await host.recordsOf(parentID)).find(({ task }) => task.id === id)
      if (left) await host.deleteSession(left.task.sessionID)
    })
  }

  async #fresh({ sessionID: _none, ...draft }: Task, rules: readonly Rule[]): Promise<Task> {
    const { parentID, agent, model } = draft
    const title = `${draft.description} (@${agent} background agent)`
    const sessionID = await this.#parts.host.createSession({ parentID, title, agent, model, rules }, draft)
    return { ...draft, sessionID }
  }

  /** A session with the parent's history. Its prompt gets an id of now: it comes after what was copied. */
  async #fork({ sessionID: _none, ...draft }: Task, rules: readonly Rule[]): Promise<Task> {
    const { options, clock, host } = this.#parts
    const { forks } = this.#ports
    const title = `${draft.description} (@${draft.agent} background fork)`
    const { sessionID, info } = await forkContext(
      { forks, host },
      { draft, title, rules, limits: limitsOf(options.fork) },
    )
    const promptID = messageID("prompt", draft.id, 0, clock.now())
    return { ...draft, sessionID, fork: info, run: { ...draft.run, promptID } }
  }

  /** Takes a slot for a task that is being made, or leaves it queued. */
  #reserve(task: Task): Task {
    const candidates = [...this.#parts.store.active(), ...this.#making, task]
    const free = this.#admissible(candidates).includes(task)
    const reserved = free ? { ...task, run: { ...task.run, startedAt: this.#parts.clock.now() } } : task
    this.#making.add(reserved)
    return reserved
  }

  #announce(task: Task): void {
    this.#parts.toaster.launched(task)
    this.#logLaunch(task)
    this.#ports.watch()
    this.pump()
    // What it waits for may have failed while its session was made.
    this.#ports.waiting.endStranded(this.#ports.endings)
  }

  #logLaunch(task: Task): void {
    const { id, sessionID: session, parentID: parent, description, agent, model, run } = task
    this.#parts.host.log("info", run.generation > 0 ? "task resumed" : "task launched", {
      task: id,
      session,
      parent,
      description,
      agent,
      model: model && modelKey(model),
      queued: isQueued(task),
    })
  }

  #admissible(active: Iterable<Task>): readonly Task[] {
    const { store, options } = this.#parts
    return admissible(
      active,
      options,
      (task) => store.hasActive(task.sessionID),
      (task) => this.#ports.waiting.waitsFor(task).length > 0,
    )
  }

  /** Nothing begins where a limit that it would come under is used up. */
  async refuseBeyondLimits(sessionID: string, taskID?: string): Promise<void> {
    const { ledger } = this.#ports
    await ledger.lookElsewhere()
    const why = refusalOf(this.#parts.options, ledger.spentBefore(sessionID, taskID))
    if (why) throw new CallError(`Nothing was launched: ${why}.`)
  }

  /** The same for a run that waited for its slot while others spent what there was. */
  #endBeyondLimits({ id, parentID, run }: Task): boolean {
    const { ledger, endings } = this.#ports
    const why = refusalOf(this.#parts.options, ledger.spentBefore(parentID, id))
    const reason = { code: "budget", text: `It never began: ${why}.` } as const
    return why !== undefined && endings.end(id, run.generation, { type: "failed", reason })
  }

  #budget(max: number | undefined, taskID: string): Run["budget"] {
    return max === undefined ? undefined : { max, before: this.#ports.ledger.ofTask(taskID).cost }
  }

  /**
   * Sends a run's prompt, if the run has not ended meanwhile. A failure ends it, since its caller has gone, and stops its
   * session: the prompt may have been taken all the same.
   */
  async #prompt(task: Task, prompt: string): Promise<void> {
    const { sessionID, agent, model } = task
    const { generation, createdAt, promptID } = task.run
    if (!this.#runs(task)) return
    this.#entering.set(task.id, prompt)
    const preface = task.place ? await this.#enter(task) : ""
    const whole = this.#entering.get(task.id) ?? prompt
    this.#entering.delete(task.id)
    if (preface === undefined || !this.#runs(task)) return
    try {
      const text = withAnswers(whole, await this.#answersFor(task))
      if (!this.#runs(task)) return
      const texts = preface === "" ? [{ text }] : [{ text }, { text: preface, synthetic: true }]
      const parts = texts.map((part, at) => ({ id: partID("prompt", task.id, generation, createdAt, at), ...part }))
      await this.#parts.host.prompt({ sessionID, messageID: promptID, agent, model, parts })
      // One that ended while the prompt was on its way was stopped before it began: it is stopped again.
      if (!this.#runs(task)) await stopSession(this.#parts, sessionID)
    } catch (error) {
      const text = `OpenCode did not take the prompt: ${messageOf(error)}`
      this.#ports.endings.end(task.id, generation, { type: "failed", reason: { code: "host", text } })
    }
  }

  /** What the tasks that a run waited for have answered. */
  async #answersFor({ run }: Task): Promise<readonly Answered[]> {
    const tasks = (run.after ?? []).flatMap((id) => this.#parts.store.get(id) ?? [])
    return Promise.all(tasks.map(async (task) => ({ task, text: (await this.#ports.answers.of(task)).text })))
  }

  /** Makes a run's place ready; undefined where that failed, which ends the run. */
  async #enter(task: Task): Promise<string | undefined> {
    const tracker = this.#parts.store.tracker(task.id)
    tracker?.hold(true)
    try {
      return await this.#ports.places.enter(task)
    } catch (error) {
      const reason = { code: "place", text: messageOf(error) } as const
      this.#ports.endings.end(task.id, task.run.generation, { type: "failed", reason })
      return undefined
    } finally {
      tracker?.hold(false)
      tracker?.sign(this.#parts.clock.now())
    }
  }

  /** Whether the run has not ended since. */
  #runs(task: Task): boolean {
    const current = this.#parts.store.get(task.id)
    return current !== undefined && isActive(current) && current.run.generation === task.run.generation
  }

  #draft(
    request: LaunchRequest,
    caller: Caller,
    found: Pick<Task, "agent" | "model" | "depth" | "fingerprint">,
    after: readonly string[] | undefined,
  ): TaskDraft {
    const { clock, store, options } = this.#parts
    const now = clock.now()
    const id = taskID(this.#ports.randomID)
    const siblings = [...store.ofParent(caller.sessionID), ...this.#making].filter(
      (task) => task.parentID === caller.sessionID,
    )
    return {
      id,
      parentID: caller.sessionID,
      parentMessageID: caller.messageID,
      description: request.description,
      ...found,
      batch: batchFor(request.batch, id, siblings),
      ...this.#placeOf(request, caller),
      createdAt: now,
      earlier: NO_FIGURES,
      status: "running",
      run: {
        generation: 0,
        promptID: messageID("prompt", id, 0, now),
        createdAt: now,
        timeout: request.timeout ?? options.taskTimeout,
        budget: this.#budget(request.maxCost, id),
        after,
        ...checkOf(request),
      },
      delivery: { state: "none" },
    }
  }

  #placeOf({ place, merge = false }: LaunchRequest, { sessionID }: Caller): Pick<TaskDraft, "place"> {
    if (place !== "worktree") return {}
    return { place: { kind: "worktree", folder: this.#parts.host.folderOf(sessionID), merge } }
  }

  /** A task that was asked the same and nothing since: it runs, or completed a short while ago. */
  #identical(parentID: string, fingerprint: string): Task | undefined {
    const { options, store, clock } = this.#parts
    return store.ofParent(parentID).findLast((task) => {
      if (task.fingerprint !== fingerprint || task.fork || task.place || task.run.generation > 0) return false
      if (isActive(task)) return true
      return task.status === "completed" && (task.run.endedAt ?? 0) + options.resultCacheTTL > clock.now()
    })
  }

  #countLaunch(sessionID: string): void {
    const now = this.#parts.clock.now()
    const { maxLaunchesPerMinute } = this.#parts.options
    const launches = this.#launches.get(sessionID) ?? []
    const delay = launchDelay(launches, maxLaunchesPerMinute, now)
    if (delay > 0)
      throw new CallError(
        `Too many launches: the option maxLaunchesPerMinute allows ${maxLaunchesPerMinute} a minute. Try again in ${Math.ceil(delay / 1000)} s.`,
      )
    this.#launches.set(sessionID, [...launches.filter((at) => at > now - MINUTE_MS), now])
  }
}

/** 0 turns a limit off. */
const limitsOf = ({ maxTokens, maxToolResultChars }: Options["fork"]): Options["fork"] => ({
  maxTokens: maxTokens || Number.MAX_SAFE_INTEGER,
  maxToolResultChars: maxToolResultChars || Number.MAX_SAFE_INTEGER,
})

const checkOf = ({ check }: { readonly check?: string }): Pick<Run, "check"> => (check === undefined ? {} : { check })

/** Nothing goes with it but agent, model and prompt: one such is like another. */
const isPlain = ({ fork, after, place, check }: LaunchRequest): boolean =>
  !fork && after === undefined && place !== "worktree" && check === undefined

const isWaiting = (task: Task | undefined): boolean => task !== undefined && isQueued(task)

function refuseIfAborted(abort: AbortSignal | undefined): void {
  if (abort?.aborted) throw new CallError("The call was stopped while the task was being made. Nothing was launched.")
}
