import { batchFor } from "../core/batch.ts"
import { CallError } from "../core/errors.ts"
import { messageID, partID, taskID } from "../core/ids.ts"
import { admissible, launchDelay, MINUTE_MS } from "../core/limits.ts"
import type { Clock, Host, Rule } from "../core/ports.ts"
import { isActive, type Model, NO_USAGE, type Run, type Task, type TaskDraft } from "../core/task.ts"
import type { Toaster } from "../delivery/toaster.ts"
import { forkContext } from "../fork/fork.ts"
import type { ForkHost } from "../fork/ports.ts"
import type { Options } from "../options.ts"
import {
  alreadyResumed,
  authorize,
  chooseModel,
  depthBelow,
  findAgent,
  fingerprint,
  refuseUnlessResumable,
  rulesFor,
} from "./checks.ts"
import type { Ending } from "./lifecycle.ts"
import type { TaskStore } from "./store.ts"

export type LaunchRequest = {
  readonly description: string
  readonly prompt: string
  readonly agent: string
  readonly fork: boolean
  readonly model?: string
  readonly batch?: string
  readonly timeout?: number
}

export type ResumeRequest = { readonly prompt: string; readonly timeout?: number }

/** Who calls a tool. */
export type Caller = {
  readonly sessionID: string
  readonly messageID: string
  /** Rejects where the user, or the calling agent's rules, do not allow to launch this agent. */
  readonly authorize?: (agent: string, description: string) => Promise<void>
}

export type LauncherPorts = {
  readonly host: Host
  readonly clock: Clock
  readonly options: Options
  readonly store: TaskStore
  readonly toaster: Toaster
  readonly forks: ForkHost
  readonly randomID: () => string
  /** Tasks run: look after them. */
  readonly watch: () => void
  readonly save: (task: Task) => Promise<void>
  /** Ends a run with this reason and stops its session. */
  readonly stop: (task: Task, ending: Ending) => void
  readonly background: (what: string, work: () => Promise<unknown>) => void
}

/** Makes tasks and starts their runs, at once or when there is a slot. */
export class Launcher {
  readonly #ports: LauncherPorts
  /** Tasks whose session is being made: they hold their slot already. */
  readonly #making = new Set<Task>()
  readonly #launches = new Map<string, number[]>()

  constructor(ports: LauncherPorts) {
    this.#ports = ports
  }

  /** Makes a task. Throws a `CallError`, with nothing left behind, where that cannot be done. */
  async launch(request: LaunchRequest, caller: Caller): Promise<{ task: Task; reused: boolean }> {
    const { host, options } = this.#ports
    const [agents, parent, persona] = await Promise.all([
      host.agents(),
      host.parent(caller.sessionID),
      host.caller(caller.sessionID, caller.messageID),
    ])
    const agent = findAgent(request.agent, agents)
    const model = request.model ? await chooseModel(this.#ports, request.model) : (agent.model ?? persona?.model)
    const depth = await depthBelow(this.#ports, caller.sessionID, parent)
    const mark = fingerprint(agent.name, model, request.prompt)
    const earlier = request.fork ? undefined : this.#identical(caller.sessionID, mark)
    if (earlier) return { task: earlier, reused: true }
    await authorize(caller, agent.name, request.description)
    this.#countLaunch(caller.sessionID)
    const draft = this.#draft(request, caller, { agent: agent.name, model, depth, fingerprint: mark })
    const task = await this.#make(draft, request, rulesFor(parent, depth >= options.maxDepth))
    return { task, reused: false }
  }

  /** Asks an ended task again. Throws a `CallError` where its state or its session does not allow it. */
  async resume(task: Task, request: ResumeRequest): Promise<Task> {
    const { host, store, clock } = this.#ports
    refuseUnlessResumable(task, this.#ports.options.resumable)
    const session = await host.session(task.sessionID)
    if (!session)
      throw new CallError(
        `The session of task ${task.id} no longer exists, so it cannot be resumed. Start a new superagents_task instead.`,
      )
    const current = store.get(task.id)
    if (!current) throw new CallError(`Task ${task.id} was cleared meanwhile. Start a new superagents_task instead.`)
    refuseUnlessResumable(current, this.#ports.options.resumable)
    const now = clock.now()
    const generation = current.run.generation + 1
    const run: Run = {
      generation,
      promptID: messageID("prompt", task.id, generation, now),
      createdAt: now,
      timeout: this.#timeout(request.timeout),
      usageBefore: session.usage,
      queuedPrompt: request.prompt,
    }
    const change = store.apply(task.id, { type: "resumed", run }, now)
    if (!change) throw alreadyResumed(task.id)
    this.pump()
    await this.#ports.save(store.get(task.id) ?? change.after)
    this.#ports.toaster.launched(change.after)
    this.#ports.watch()
    return store.get(task.id) ?? change.after
  }

  /** Starts what may start. Called whenever a slot may have become free. */
  pump(): void {
    const { store, clock } = this.#ports
    for (const task of this.#admissible([...store.active(), ...this.#making])) {
      if (this.#making.has(task)) continue
      const prompt = task.run.queuedPrompt
      const change = store.apply(
        task.id,
        { type: "admitted", generation: task.run.generation, at: clock.now() },
        clock.now(),
      )
      if (!change || prompt === undefined) continue
      this.#ports.background("start", async () => {
        await this.#ports.save(change.after)
        await this.#prompt(change.after, prompt)
      })
      this.#ports.watch()
    }
  }

  /** Forgets what is remembered of a session that was deleted. */
  forgetSession(sessionID: string): void {
    this.#launches.delete(sessionID)
  }

  async #make(draft: TaskDraft, request: LaunchRequest, rules: readonly Rule[]): Promise<Task> {
    const { store, clock } = this.#ports
    const reserved = this.#reserve({ ...draft, sessionID: "" })
    try {
      const task = await (request.fork ? this.#fork(reserved, rules) : this.#fresh(reserved, rules))
      store.add(task, clock.now())
      this.#making.delete(reserved)
      if (task.fork) await this.#ports.save(task)
      if (!this.#runs(task)) throw new CallError(`Task ${task.id} was stopped before it began.`)
      // Not waited for: the host says nothing of a prompt but that it came, and the caller goes on all the sooner.
      if (task.run.startedAt !== undefined) this.#ports.background("start", () => this.#prompt(task, request.prompt))
      this.#announce(task)
      return task
    } catch (error) {
      this.#making.delete(reserved)
      this.pump()
      throw error instanceof CallError ? error : new CallError(`The task could not be launched: ${messageOf(error)}`)
    }
  }

  async #fresh({ sessionID: _none, ...draft }: Task, rules: readonly Rule[]): Promise<Task> {
    const { parentID, agent, model } = draft
    const title = `${draft.description} (@${agent} background agent)`
    const sessionID = await this.#ports.host.createSession({ parentID, title, agent, model, rules }, draft)
    return { ...draft, sessionID }
  }

  /** A session with the parent's history. Its prompt gets an id of now: it comes after what was copied. */
  async #fork({ sessionID: _none, ...draft }: Task, rules: readonly Rule[]): Promise<Task> {
    const { forks, options, clock } = this.#ports
    const title = `${draft.description} (@${draft.agent} background fork)`
    const { sessionID, info, usageBefore } = await forkContext(forks, { draft, title, rules, limits: options.fork })
    const promptID = messageID("prompt", draft.id, 0, clock.now())
    return { ...draft, sessionID, fork: info, usageBefore, run: { ...draft.run, promptID, usageBefore } }
  }

  /** Takes a slot for a task that is being made, or leaves it queued. */
  #reserve(task: Task): Task {
    const now = this.#ports.clock.now()
    const candidates = [...this.#ports.store.active(), ...this.#making, task]
    const free = this.#admissible(candidates).includes(task)
    const { queuedPrompt: _sent, ...run } = task.run
    const reserved = free ? { ...task, run: { ...run, startedAt: now } } : task
    this.#making.add(reserved)
    return reserved
  }

  #announce(task: Task): void {
    const { host, toaster } = this.#ports
    toaster.launched(task)
    host.log("info", "task launched", {
      task: task.id,
      session: task.sessionID,
      parent: task.parentID,
      agent: task.agent,
      queued: task.run.startedAt === undefined,
    })
    this.#ports.watch()
    this.pump()
  }

  #admissible(active: Iterable<Task>): readonly Task[] {
    const { store, options } = this.#ports
    return admissible(active, options, (task) => store.hasActive(task.sessionID))
  }

  /**
   * Sends a run's prompt, if the run has not ended meanwhile. A failure ends it, since its caller has gone, and stops its
   * session: the prompt may have been taken all the same.
   */
  async #prompt(task: Task, prompt: string): Promise<void> {
    if (!this.#runs(task)) return
    const { generation, createdAt, promptID } = task.run
    try {
      await this.#ports.host.prompt({
        sessionID: task.sessionID,
        messageID: promptID,
        agent: task.agent,
        model: task.model,
        parts: [{ id: partID("prompt", task.id, generation, createdAt, 0), text: prompt }],
      })
      // One that ended while the prompt was on its way was stopped before it began: it is stopped again.
      if (!this.#runs(task)) await this.#ports.host.abort(task.sessionID)
    } catch (error) {
      const text = `OpenCode did not take the prompt: ${messageOf(error)}`
      this.#ports.stop(task, { type: "failed", reason: { code: "host", text } })
    }
  }

  /** Whether the run has not ended since. */
  #runs(task: Task): boolean {
    const current = this.#ports.store.get(task.id)
    return current !== undefined && isActive(current) && current.run.generation === task.run.generation
  }

  #draft(
    request: LaunchRequest,
    caller: Caller,
    found: { agent: string; model?: Model; depth: number; fingerprint: string },
  ): TaskDraft {
    const { clock, store, randomID } = this.#ports
    const now = clock.now()
    const id = taskID(randomID)
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
      usageBefore: NO_USAGE,
      status: "running",
      run: {
        generation: 0,
        promptID: messageID("prompt", id, 0, now),
        createdAt: now,
        timeout: this.#timeout(request.timeout),
        usageBefore: NO_USAGE,
        queuedPrompt: request.prompt,
      },
      delivery: { state: "none" },
    }
  }

  #timeout(asked: number | undefined): number {
    return asked ?? this.#ports.options.taskTimeout
  }

  #identical(parentID: string, fingerprint: string): Task | undefined {
    const { options, store, clock } = this.#ports
    if (!options.reuseIdentical) return undefined
    return store.ofParent(parentID).findLast((task) => {
      if (task.fingerprint !== fingerprint || task.fork) return false
      if (isActive(task)) return true
      return task.status === "completed" && (task.run.endedAt ?? 0) + options.resultCacheTTL > clock.now()
    })
  }

  #countLaunch(sessionID: string): void {
    const now = this.#ports.clock.now()
    const { maxLaunchesPerMinute } = this.#ports.options
    const launches = this.#launches.get(sessionID) ?? []
    const delay = launchDelay(launches, maxLaunchesPerMinute, now)
    if (delay > 0)
      throw new CallError(
        `Too many launches: the option maxLaunchesPerMinute allows ${maxLaunchesPerMinute} a minute. Try again in ${Math.ceil(delay / 1000)} s.`,
      )
    this.#launches.set(sessionID, [...launches.filter((at) => at > now - MINUTE_MS), now])
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
